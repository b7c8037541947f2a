"""The report of `fedsim sensitivity`; its page shows the pairs themselves."""

from collections.abc import Iterator
from typing import Any

from adversaries.neighbours.dataset_sensitivity import Pair
from fedsim.common.strict_json import strict_json
from fedsim.game import record_display
from fedsim.reports.document import blocks as doc
from fedsim.reports.document.wording import counted, number, percent
from fedsim.reports.figures import drawings
from fedsim.reports.sections import target
from fedsim.studies import page
from fedsim.studies.sensitivity.sensitivity_study import CHOICES, PairCandidate, Study

LABEL = (
    "Local sensitivity is a measurement on the private data, not a DP release. Show this report "
    "only to people who may see the records."
)

LEGEND = (
    "max, min: the most and the least dissimilar pair. worst: the largest LS of all pairs. d: "
    "dissimilarity. LS: local sensitivity in the first step of the first training. RMS LS: root "
    "mean square over all steps of all trainings."
)


NAME_IT = (
    "Before a run attacks the record, name it with challenge.record, or name its dissimilarity "
    "with challenge.dissimilarity."
)


def as_json(study: Study) -> dict[str, Any]:
    """Return the report as strict JSON values; positions index D and the pool, from 0."""
    config, first = study.config, study.candidates[0]
    report = {
        "kind": "dataset sensitivity",
        "label": LABEL,
        **page.settings(config),
        "pool": len(study.loaded.split.pool),
        "noise_scaled_to": f"{config.privacy.sensitivity} sensitivity",
        "global_sensitivity": study.largest.bound,
        "dissimilarity": first.pair.measure,
        "choice": first.choice,
        "trials": len(first.course),
        "pairs_in_all": study.largest.pairs,
        "pairs": [_pair(study, candidate) for candidate in study.candidates],
        "largest": study.largest.sensitivity,
    }
    return strict_json(report)


def _pair(study: Study, candidate: PairCandidate) -> dict[str, Any]:
    pair, split, course = candidate.pair, study.loaded.split, candidate.course
    label, replacement_label = _labels(study, pair)
    other = pair.replacement
    return {
        "choice": candidate.choice,
        "place": candidate.place,
        "record": pair.record,
        "replacement": other,
        "dataset_record": int(split.members[pair.record]),
        "dataset_replacement": None if other is None else int(split.pool[other]),
        "label": label,
        "replacement_label": replacement_label,
        "client": candidate.client,
        "distance": pair.distance,
        "first": candidate.first,
        "mean": float(course.mean()),
        "rms": candidate.rms,
        "largest": float(course.max()),
    }


def _labels(study: Study, pair: Pair) -> tuple[int, int | None]:
    split, other = study.loaded.split, pair.replacement
    replaced = None if other is None else int(split.pool_records.labels[other])
    return int(split.members_records.labels[pair.record]), replaced


def told(study: Study) -> doc.Told:
    return page.told(
        study.config,
        as_json(study),
        "",
        lambda: _sections(study),
        kind="Dataset sensitivity",
        played=counted(len(study.candidates[0].course), "training"),
        answer=verdict(study),
        table=doc.tabulated(headings(study), rows(study)),
        legend=LEGEND,
        cautions=[LABEL],
        limits=LABEL,
        steps=[NAME_IT],
    )


def verdict(study: Study) -> list[str]:
    chosen = study.candidates[0]
    by = "" if chosen.choice == "given" else f" by {chosen.pair.measure}"
    noun = "record" if chosen.pair.replacement is None else "pair"
    sentences = [f"The challenge is the {noun} {CHOICES[chosen.choice]}{by}."]
    # Clipped gradients differ by rounding and count as equal.
    reach = round(chosen.first / study.largest.sensitivity, 5)
    sentences.append(
        f"In the first step, its local sensitivity is {percent(reach)} of the largest of any "
        f"{noun} (of {study.largest.pairs:,})."
    )
    trials, steps = chosen.course.shape
    return [
        " ".join(sentences),
        f"Over {trials} trainings of {steps} steps, the root mean square of "
        f"its local sensitivity was {number(chosen.rms)}; clipping allows "
        f"{number(study.largest.bound)}.",
    ]


def headings(study: Study) -> list[str]:
    record = "record" if study.candidates[0].pair.replacement is None else "record → by"
    return ["pair", record, "label", "client", "d", "LS", "RMS LS"]


def rows(study: Study) -> list[list[str]]:
    return [
        [
            one.name,
            _arrow(one.pair.record, one.pair.replacement),
            _arrow(*_labels(study, one.pair)),
            str(one.client),
            f"{one.pair.distance:.4g}",
            f"{one.first:.3f}",
            f"{one.rms:.3f}",
        ]
        for one in study.candidates
    ]


def _arrow(one: int, other: int | None) -> str:
    return str(one) if other is None else f"{one} → {other}"


BY_PAIR = (
    "Local sensitivity in all steps of all trainings, by pair, with its dissimilarity d. Bars show "
    "the median and the range of 90%. After Figure 4 of the core paper."
)
COURSE = (
    "Local sensitivity of the challenge in every step, against the global sensitivity, which the "
    "noise must cover. After Figure 5 of the core paper."
)


def _sections(study: Study) -> Iterator[doc.Block]:
    # Each pair's record of D is a picture, or what differs most from typical values.
    for candidate in study.candidates:
        shown = record_display.shown(study.loaded.split, candidate.pair.record)
        name = f"{candidate.name[0].upper()}{candidate.name[1:]}: record {candidate.pair.record}"
        yield target.record(shown, name, f"It is one of client {candidate.client}.")
    yield doc.Heading("Local sensitivity during training")
    bound, relation = study.largest.bound, study.config.privacy.neighbouring.value
    pairs = {one: {each.label: each.course for each in study.of(one)} for one in ("max", "min")}
    course = drawings.over_training({relation: (study.candidates[0].course, bound)})
    yield doc.Figure("by-pair", drawings.by_pair(pairs, bound), "", BY_PAIR)
    yield doc.Figure("course", course, "", COURSE)
