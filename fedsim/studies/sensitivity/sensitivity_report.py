"""The page and the terminal's report of `fedsim sensitivity`; the page shows the pairs."""

from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import RenderableType

import fedsim
from adversaries.neighbours.dataset_sensitivity import Pair
from adversaries.neighbours.rank_correlation import RankCorrelation
from fedsim.common import report_directory
from fedsim.common.strict_json import strict_json
from fedsim.game import record_display
from fedsim.reports.document import blocks as doc
from fedsim.reports.document import first_screen, terminal
from fedsim.reports.document.html import render
from fedsim.reports.document.wording import DASH, number, percent, plain
from fedsim.reports.figures import training_figures
from fedsim.reports.figures.training_figures import Followed, Relation
from fedsim.studies.sensitivity.gradient_sensitivity import ROUNDING, Ranked
from fedsim.studies.sensitivity.sensitivity_study import CHOICES, LABEL, PairCandidate, Study, View

QUANTILES = (0.05, 0.5, 0.95)


def as_json(study: Study) -> dict[str, Any]:
    """Return the report as strict JSON values; positions index D and the pool, from 0."""
    experiment, first = study.experiment, study.candidates[0]
    scheme = experiment.game.scheme
    report = {
        "kind": "dataset sensitivity",
        "label": LABEL,
        "name": experiment.run.name,
        "data": experiment.data.name,
        "records": len(study.loaded.split.members),
        "pool": len(study.loaded.split.pool),
        "model": experiment.game.model.name,
        "neighbouring": scheme.privacy.neighbouring.value,
        "noise_scaled_to": f"{scheme.privacy.sensitivity} sensitivity",
        "clipping_norm": scheme.training.clipping_norm,
        "global_sensitivity": study.views[0].truth.bound,
        "dissimilarity": first.pair.measure,
        "choice": first.choice,
        "trials": len(first.course),
        "steps": first.course.shape[1],
        "seed": experiment.run.seed,
        "confidence": study.confidence,
        "pairs_in_all": study.views[0].truth.pairs,
        "pairs": [_pair(study, candidate) for candidate in study.candidates],
        "compared": dict(zip(("records", "replacements"), study.compared, strict=True)),
        "views": [_view(view, first.seen[i]) for i, view in enumerate(study.views)],
        "versions": {"fedsim": fedsim.__version__},
    }
    return strict_json(report)


def _pair(study: Study, candidate: PairCandidate) -> dict[str, Any]:
    pair, split, course = candidate.pair, study.loaded.split, candidate.course
    low, middle, high = np.quantile(course, QUANTILES, axis=0).tolist()
    label, replacement_label = _labels(study, pair)
    return {
        "choice": candidate.choice,
        "place": candidate.place,
        "record": pair.record,
        "replacement": pair.replacement,
        "dataset_record": int(split.members[pair.record]),
        "dataset_replacement": (
            None if pair.replacement is None else int(split.pool[pair.replacement])
        ),
        "label": label,
        "replacement_label": replacement_label,
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
        "rms": candidate.rms,
        "largest": float(course.max()),
        "by_step": {"low": low, "median": middle, "high": high},
    }


def _labels(study: Study, pair: Pair) -> tuple[int, int | None]:
    """Return the labels of a record and of its replacement; None without one."""
    split, other = study.loaded.split, pair.replacement
    replaced = None if other is None else int(split.pool_records.labels[other])
    return int(split.members_records.labels[pair.record]), replaced


def _view(view: View, chosen: Ranked) -> dict[str, Any]:
    reached = view.truth.by_record
    equal = ROUNDING * view.truth.bound
    return {
        "step": view.step,
        "largest": asdict(view.truth.largest[0]),
        "reach": view.reach(chosen),
        # The largest that each record of D reaches, alone or with any replacement.
        "by_record": reached.tolist(),
        "record_rank": 1 + int(np.count_nonzero(reached > reached[chosen.record] + equal)),
        "measures": {
            name: {"refusal": measure} if isinstance(measure, str) else asdict(measure)
            for name, measure in view.measures.items()
        },
    }


def write_sensitivity(study: Study, directory: Path) -> Path:
    """Write report.html and report.json into a directory; return the path of the page."""
    return report_directory.write_report(directory, as_json(study), render_html(study))


def verdict(study: Study) -> list[str]:
    """Return sentences about the choice of the challenge, and the best dissimilarity."""
    chosen = study.candidates[0]
    by = "" if chosen.choice == "given" else f" by {chosen.pair.measure}"
    noun = "record" if chosen.pair.replacement is None else "pair"
    sentences = [f"The challenge is the {noun} {CHOICES[chosen.choice]}{by}."]
    for view, seen in zip(study.views, chosen.seen, strict=True):
        sentences.append(
            f"In step {view.step}, its local sensitivity is {_share(view.reach(seen))} of the "
            f"largest of any {noun} (rank {seen.rank:,} of {view.truth.pairs:,})."
        )
    trials, steps = chosen.course.shape
    return [
        " ".join(sentences),
        f"Over {trials} trainings of {steps} steps, the root mean square of "
        f"its local sensitivity was {number(chosen.rms)}; clipping allows "
        f"{number(study.views[0].truth.bound)}.",
        *(_predicts_best(study, view) for view in study.views),
    ]


def _share(value: float) -> str:
    return percent(round(value, 5))  # clipped gradients differ by rounding and count as equal


def _predicts_best(study: Study, view: View) -> str:
    step, compared = f"local sensitivity in step {view.step}", _compared(study)
    if not view.correlations:
        reason = next(iter(view.refusals.values()))
        return f"No dissimilarity can be compared with {step}: {reason}."
    best, measure = next(iter(view.correlations.items()))
    between = _interval(study, measure)
    if measure.high < 0:
        return (
            f"Every dissimilarity with a rank correlation orders {compared} opposite to "
            f"{step}: the highest correlation, of {best}, is {between}. The choice before training "
            "is no guide to this step."
        )
    if measure.low <= 0:
        return (
            f"No dissimilarity is shown to order {compared} like {step}: the best, "
            f"{best}, has a rank correlation of {between}."
        )
    return (
        f"Of the dissimilarities, {best} orders {compared} most like {step}: the rank correlation "
        f"is {between}. It was selected on the same data, so another may be better on others."
    )


def _interval(study: Study, measure: RankCorrelation | str) -> str:
    """Return a rank correlation with its interval, or why it is undefined."""
    if isinstance(measure, str):
        return measure
    return (
        f"{number(measure.rho)} ({number(measure.low)} to {number(measure.high)}, "
        f"{100 * study.confidence:g}%)"
    )


def _compared(study: Study) -> str:
    records, replacements = study.compared
    return f"{records} records" + ("" if replacements is None else f" × {replacements} others")


def headings(study: Study) -> list[str]:
    record = "record" if study.candidates[0].pair.replacement is None else "record → by"
    views = [text for view in study.views for text in (f"LS {view.step}", "rank")]
    return ["pair", record, "label", "client", "d", *views, "RMS LS"]


def rows(study: Study) -> list[list[str]]:
    def rank(place: int) -> str:
        return f"{place:,}" if place < 10_000 else percent(place / study.views[0].truth.pairs)

    return [
        [
            one.name,
            _arrow(one.pair.record, one.pair.replacement),
            _arrow(*_labels(study, one.pair)),
            str(one.client),
            f"{one.pair.distance:.4g}",
            *(text for seen in one.seen for text in (f"{seen.sensitivity:.3f}", rank(seen.rank))),
            f"{one.rms:.3f}",
        ]
        for one in study.candidates
    ]


def _arrow(one: int, other: int | None) -> str:
    return str(one) if other is None else f"{one} → {other}"


def measures(study: Study) -> list[list[str]]:
    """Return the rank correlations as text: a row for each dissimilarity, its view by view."""
    return [
        [name, *(_interval(study, view.measures[name]) for view in study.views)]
        for name in study.views[-1].measures
    ]


def summary(study: Study) -> RenderableType:
    steps = [f"LS in step {view.step}" for view in study.views]
    shown, without = [], []
    for name, *cells in measures(study):
        refused = [name in view.refusals for view in study.views]
        if all(refused):
            without.append(name)
        else:
            values = (DASH if no else cell for no, cell in zip(refused, cells, strict=True))
            shown.append([name, *values])
    explained = f"No correlation, as the page explains: {', '.join(without)}."
    pairs = doc.tabulated(headings(study), rows(study))
    correlations = doc.tabulated(["dissimilarity", *steps], shown)
    return terminal.shown(
        *map(doc.Prose, verdict(study)),
        terminal.table(pairs, "Pairs, and their local sensitivity (LS)", dense=True),
        doc.Prose(LEGEND),
        terminal.table(correlations, f"Rank correlation, of {_compared(study)}", dense=True),
        *([doc.Prose(explained)] if without else []),
        doc.Prose(LABEL),
    )


LEGEND = (
    "max, min: the most and the least dissimilar pair. worst: the largest LS in step 1. d: "
    "dissimilarity. LS with a number: local sensitivity in this step of the first training. rank: "
    "among all pairs, 1 for the largest; equal pairs share a rank, and from 10,000 on it is a "
    "share of all."
)


def render_html(study: Study) -> str:
    """Return the page, which needs no other file, script or network."""
    data, name = study.experiment.data.name, study.experiment.run.name
    subject = data if name == data else f"{data} ({name})"
    first = doc.FirstScreen(
        verdict(study),
        steps=[
            "Before a run attacks the record, name it with challenge.record, or name its "
            "dissimilarity with challenge.dissimilarity."
        ],
        sign_off=first_screen.sign_off(
            data=f"{data}, {len(study.loaded.split.members)} records",
            date=first_screen.today(),
            limits=LABEL,
        ),
    )
    title = f"Dataset sensitivity of {subject}"
    return render(doc.Document(title, "Dataset sensitivity", subject, first, _blocks(study)))


def _blocks(study: Study) -> list[doc.Block]:
    is_image = study.loaded.split.dataset.kind == "image"
    over = "records and over replacements, which pairs share" if study.compared[1] else "records"
    stepwise = ["Dissimilarity", *(f"LS in step {view.step}" for view in study.views)]
    keys = ["data", "records", "pool", "model", "neighbouring", "noise_scaled_to", "clipping_norm"]
    keys += ["dissimilarity", "choice", "trials", "steps", "seed"]
    values = as_json(study)
    settings = [(key.replace("_", " "), plain(values[key])) for key in keys]
    trials, steps = study.candidates[0].course.shape
    return [
        doc.Label("A measurement.", LABEL),
        doc.Part(
            "The pairs",
            [
                doc.tabulated(headings(study), rows(study)),
                doc.Prose(
                    f"{LEGEND} RMS LS: root mean square over {trials} trainings of {steps} steps.",
                    small=True,
                ),
                *(_pictures(study) if is_image else _attributes(study)),
            ],
        ),
        doc.Heading("Which dissimilarity predicts local sensitivity"),
        doc.tabulated(stepwise, measures(study)),
        doc.Prose(
            f"Spearman's rank correlation with local sensitivity, of {_compared(study)}. "
            f"Intervals are bootstrapped over {over}. Each interval has its confidence by itself. "
            "The best was selected on the same data, so another may be better on others.",
            small=True,
        ),
        doc.Part("Local sensitivity during training", _courses(study)),
        doc.Heading("Settings"),
        doc.Listing(settings, several=True),
    ]


def _pictures(study: Study) -> list[doc.Block]:
    drawn: list[doc.Block] = []
    for choice in dict.fromkeys(candidate.choice for candidate in study.candidates):
        candidates = study.of(choice)
        pairs = [record_display.images(study.loaded.split, one.pair) for one in candidates]
        titles = [f"{one.pair.record}, client {one.client}" for one in candidates]
        replaced = " Above: record of D. Below: its replacement." * (pairs[0][1] is not None)
        caption = f"{CHOICES[choice].capitalize()}.{replaced}"
        drawing = training_figures.record_pairs(titles, pairs)
        drawn.append(doc.Figure(choice, drawing, "", caption))
    return drawn


def _courses(study: Study) -> list[doc.Block]:
    bound = study.views[0].truth.bound
    followed = [
        Followed(one.name, one.pair.distance, one.choice, one.course)
        for one in study.candidates
        if one.choice in training_figures.COLOURS
    ]
    distributions = (
        "Local sensitivity in all steps of all trainings, by pair, with its dissimilarity d. Bars "
        "show the median and the range of 90%. After Figure 4 of the core paper."
    )
    course = (
        "Local sensitivity of the challenge in every step, against the global sensitivity, which "
        "the noise must cover. After Figure 5 of the core paper."
    )
    relation = Relation(
        study.experiment.game.scheme.privacy.neighbouring.value, study.candidates[0].course, bound
    )
    return [
        doc.Figure("by-pair", training_figures.by_pair(followed, bound), "", distributions),
        doc.Figure("course", training_figures.over_training([relation]), "", course),
    ]


def _attributes(study: Study) -> Iterator[doc.Block]:
    """Yield, for each pair, a table of the attributes that differ most."""
    for candidate in study.candidates:
        differences = record_display.differences(study.loaded.split, candidate.pair)
        rows = [[one.name, one.value, one.other] for one in differences.attributes]
        against = "Typical of D" if candidate.pair.replacement is None else "Replacement"
        yield doc.Heading(candidate.name[0].upper() + candidate.name[1:])
        yield doc.tabulated(["Attribute", "Record", against], rows, "stacked attributes")
        yield doc.Prose(
            f"The {len(rows)} attributes that differ most, of {differences.differing} that differ.",
            small=True,
        )
