"""The content of report.json of `fedsim sensitivity`."""

from dataclasses import asdict
from typing import Any

import numpy as np

import fedsim
from fedsim.common.strict_json import strict_json
from fedsim.studies.sensitivity.gradient_sensitivity import Ranked
from fedsim.studies.sensitivity.pair_counts import ROUNDING
from fedsim.studies.sensitivity.sensitivity_study import LABEL, Candidate, Study, View

QUANTILES = (0.05, 0.5, 0.95)
"""Quantiles of the trials' local sensitivities in a step."""

SHARES = (0.5, 0.9, 0.99, 0.999)
"""Shares of all pairs for which the report has a quantile of local sensitivity."""


def assemble(study: Study) -> dict[str, Any]:
    """Return the report as strict JSON values; positions index D and the pool, from 0."""
    config, first = study.config, study.candidates[0]
    report = {
        "kind": "dataset sensitivity",
        "label": LABEL,
        "name": config.run.name,
        "data": config.data.name,
        "records": len(study.loaded.split.members),
        "pool": len(study.loaded.split.pool),
        "model": config.model.name,
        "neighbouring": config.privacy.neighbouring.value,
        "noise_scaled_to": f"{config.privacy.sensitivity} sensitivity",
        "clipping_norm": config.training.clipping_norm,
        "global_sensitivity": study.views[0].truth.bound,
        "dissimilarity": first.pair.measure,
        "choice": first.choice,
        "trials": len(first.course),
        "steps": first.course.shape[1],
        "seed": config.run.seed,
        "confidence": config.audit.confidence,
        "pairs_in_all": study.views[0].truth.pairs,
        "pairs": [_candidate(study, candidate) for candidate in study.candidates],
        "compared": dict(zip(("records", "replacements"), study.compared, strict=True)),
        "views": [_view(view, first.seen[i]) for i, view in enumerate(study.views)],
        "seconds": dict(study.seconds),
        "peak_memory_bytes": study.peak_memory,
        "versions": {"fedsim": fedsim.__version__},
    }
    return strict_json(report)


def _candidate(study: Study, candidate: Candidate) -> dict[str, Any]:
    pair, split, course = candidate.pair, study.loaded.split, candidate.course
    replaced = pair.replacement
    low, middle, high = np.quantile(course, QUANTILES, axis=0).tolist()
    return {
        "choice": candidate.choice,
        "place": candidate.place,
        "record": pair.record,
        "replacement": replaced,
        "dataset_record": int(split.members[pair.record]),
        "dataset_replacement": None if replaced is None else int(split.pool[replaced]),
        "label": int(split.members_records.labels[pair.record]),
        "replacement_label": (
            None if replaced is None else int(split.pool_records.labels[replaced])
        ),
        "client": candidate.client,
        "distance": pair.distance,
        "seen": [
            {
                "step": view.step,
                "local_sensitivity": ranked.sensitivity,
                "rank": ranked.rank,
                "percentile": view.truth.percentile(ranked),
            }
            for view, ranked in zip(study.views, candidate.seen, strict=True)
        ],
        "mean": float(course.mean()),
        "rms": float(np.sqrt(np.square(course).mean())),
        "largest": float(course.max()),
        "by_step": {"low": low, "median": middle, "high": high},
    }


def _view(view: View, chosen: Ranked) -> dict[str, Any]:
    comparison = {} if view.comparison is None else asdict(view.comparison)
    correlations = comparison.pop("correlations", {})
    order = sorted(correlations, key=lambda name: -correlations[name]["rho"])
    reached = view.truth.by_record
    equal = ROUNDING * view.truth.bound
    return {
        "step": view.step,
        "largest": asdict(view.truth.largest[0]),
        "reach": view.reach(chosen),
        "quantiles": {f"{share:g}": view.truth.quantile(share) for share in SHARES},
        # The largest that each record of D reaches, alone or with any replacement.
        "by_record": view.truth.by_record.tolist(),
        "record_rank": 1 + int(np.count_nonzero(reached > reached[chosen.record] + equal)),
        "measures": {name: correlations[name] for name in order}
        | {name: {"refusal": reason} for name, reason in view.refusals.items()},
        "comparison": comparison or None,
    }
