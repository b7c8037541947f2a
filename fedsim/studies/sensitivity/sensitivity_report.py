"""The page and the terminal's report of `fedsim sensitivity`; the page shows the pairs."""

from collections.abc import Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import RenderableType

import fedsim
from fedsim.common import report_directory
from fedsim.common.strict_json import strict_json
from fedsim.game import record_display
from fedsim.report.document import blocks as doc
from fedsim.report.document import first_screen, terminal
from fedsim.report.document.html import render
from fedsim.report.document.wording import DASH, number, percent, plain
from fedsim.report.figures import training_figures
from fedsim.report.figures.training_figures import Followed, Relation
from fedsim.studies.sensitivity.gradient_sensitivity import ROUNDING, Ranked
from fedsim.studies.sensitivity.sensitivity_study import CHOICES, LABEL, Candidate, Study, View

QUANTILES = (0.05, 0.5, 0.95)
SHARES = (0.5, 0.9, 0.99, 0.999)


def assemble(study: Study) -> dict[str, Any]:
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


Report = Mapping[str, Any]


def write(study: Study, report: Report, directory: Path) -> Path:
    """Write report.html and report.json into a directory; return the path of the page."""
    return report_directory.write_report(directory, report, render_html(study, report))


def verdict(report: Report) -> list[str]:
    """Return sentences about the choice of the challenge, and the best dissimilarity."""
    chosen = report["pairs"][0]
    how = CHOICES[chosen["choice"]]
    by = "" if chosen["choice"] == "given" else f" by {report['dissimilarity']}"
    noun = "pair" if report["neighbouring"] == "replace" else "record"
    sentences = [f"The challenge is the {noun} {how}{by}."]
    for view, seen in zip(report["views"], chosen["seen"], strict=True):
        median = min(1.0, view["quantiles"]["0.5"] / view["largest"]["sensitivity"])
        sentences.append(
            f"In step {view['step']}, its local sensitivity is {_share(view['reach'])} of the "
            f"largest of any {noun} (rank {seen['rank']:,} of {report['pairs_in_all']:,}). Half of "
            f"all have {_share(median)} of the largest or more."
        )
    return [
        " ".join(sentences),
        f"Over {report['trials']} trainings of {report['steps']} steps, the root mean square of "
        f"its local sensitivity was {number(chosen['rms'])}; clipping allows "
        f"{number(report['global_sensitivity'])}.",
        *(_predicts_best(report, view) for view in report["views"]),
    ]


def _share(value: float) -> str:
    return percent(round(value, 5))  # clipped gradients differ by rounding and count as equal


def _predicts_best(report: Report, view: Report) -> str:
    comparison, step = view["comparison"], f"local sensitivity in step {view['step']}"
    if comparison is None:
        reasons = dict.fromkeys(row["refusal"] for row in view["measures"].values())
        return f"No dissimilarity can be compared with {step}: {next(iter(reasons))}."
    best, second = comparison["best"], comparison["runner_up"]
    row = view["measures"][best]
    if row["high"] < 0:
        return (
            f"Every dissimilarity with a rank correlation orders {_compared(report)} opposite to "
            f"{step}: the highest correlation, of {best}, is {_interval(report, row)}."
        )
    if row["low"] <= 0:
        return (
            f"No dissimilarity is shown to order {_compared(report)} like {step}: the best, "
            f"{best}, has a rank correlation of {_interval(report, row)}."
        )
    sentence = (
        f"Of the dissimilarities, {best} orders {_compared(report)} most like {step}: rank "
        f"correlation {_interval(report, row)}."
    )
    if second is None:
        return sentence
    sure = "The lead may be chance."
    if comparison["lead_low"] > 0:
        sure = "The interval excludes 0, but best and second were selected on the same data."
    return (
        f"{sentence} It leads {second} by {number(comparison['lead'])} "
        f"({number(comparison['lead_low'])} to {number(comparison['lead_high'])}). {sure}"
    )


def _interval(report: Report, row: Report) -> str:
    """Return a rank correlation with its interval, or why it is undefined."""
    if "refusal" in row:
        return str(row["refusal"])
    return (
        f"{number(row['rho'])} ({number(row['low'])} to {number(row['high'])}, "
        f"{100 * report['confidence']:g}%)"
    )


def _compared(report: Report) -> str:
    records, replacements = report["compared"]["records"], report["compared"]["replacements"]
    return f"{records} records" + ("" if replacements is None else f" × {replacements} others")


def headings(report: Report) -> list[str]:
    record = "record → by" if report["neighbouring"] == "replace" else "record"
    views = [text for view in report["views"] for text in (f"LS {view['step']}", "rank")]
    return ["pair", record, "label", "client", "d", *views, "RMS LS"]


def rows(report: Report) -> list[list[str]]:
    def rank(place: int) -> str:
        return f"{place:,}" if place < 10_000 else percent(place / report["pairs_in_all"])

    return [
        [
            _name(row),
            _arrow(row["record"], row["replacement"]),
            _arrow(row["label"], row["replacement_label"]),
            str(row["client"]),
            f"{row['distance']:.4g}",
            *(
                text
                for seen in row["seen"]
                for text in (f"{seen['local_sensitivity']:.3f}", rank(seen["rank"]))
            ),
            f"{row['rms']:.3f}",
        ]
        for row in report["pairs"]
    ]


def _arrow(one: int, other: int | None) -> str:
    return str(one) if other is None else f"{one} → {other}"


def _name(row: Report) -> str:
    """Return the name of a pair by its choice, such as "max 2"."""
    several = row["choice"] in ("max", "min", "client")
    return f"{row['choice']} {row['place']}" if several else str(row["choice"])


def measures(report: Report) -> list[list[str]]:
    """Return the rank correlations as text: a row for each dissimilarity, its view by view."""
    views = report["views"]
    return [
        [name, *(_interval(report, view["measures"][name]) for view in views)]
        for name in views[-1]["measures"]
    ]


def summary(report: Report) -> RenderableType:
    steps = [f"LS in step {view['step']}" for view in report["views"]]
    shown, without = [], []
    for name, *cells in measures(report):
        refused = ["refusal" in view["measures"][name] for view in report["views"]]
        if all(refused):
            without.append(name)
        else:
            values = (DASH if no else cell for no, cell in zip(refused, cells, strict=True))
            shown.append([name, *values])
    explained = f"No correlation, as the page explains: {', '.join(without)}."
    pairs = doc.tabulated(headings(report), rows(report))
    correlations = doc.tabulated(["dissimilarity", *steps], shown)
    return terminal.shown(
        *map(doc.Prose, verdict(report)),
        terminal.table(pairs, "Pairs, and their local sensitivity (LS)", dense=True),
        doc.Prose(LEGEND),
        terminal.table(correlations, f"Rank correlation, of {_compared(report)}", dense=True),
        *([doc.Prose(explained)] if without else []),
        doc.Prose(LABEL),
    )


LEGEND = (
    "max, min: the most and the least dissimilar pair. client: the most dissimilar pair of one "
    "client. worst: the largest LS in step 1. d: dissimilarity. LS with a number: local "
    "sensitivity in this step of the first training. rank: among all pairs, 1 for the largest; "
    "equal pairs share a rank, and from 10,000 on it is a share of all."
)


def render_html(study: Study, report: Report) -> str:
    """Return the page, which needs no other file, script or network."""
    data, name = report["data"], report["name"]
    subject = data if name == data else f"{data} ({name})"
    first = doc.FirstScreen(
        verdict(report),
        steps=[
            "Before the run that attacks it, name the record with challenge.record, or its "
            "dissimilarity with challenge.dissimilarity."
        ],
        sign_off=first_screen.sign_off(
            data=f"{data}, {report['records']} records",
            date=first_screen.today(),
            limits=report["label"],
        ),
    )
    title = f"Dataset sensitivity of {subject}"
    return render(
        doc.Document(title, "Dataset sensitivity", subject, first, _blocks(study, report))
    )


def _blocks(study: Study, report: Report) -> list[doc.Block]:
    is_image = study.loaded.split.dataset.kind == "image"
    several = report["compared"]["replacements"]
    over = "records and over replacements, which pairs share" if several else "records"
    seconds = [(name, f"{value:.1f} s") for name, value in report["seconds"].items()]
    stepwise = ["Dissimilarity", *(f"LS in step {view['step']}" for view in report["views"])]
    keys = ["data", "records", "pool", "model", "neighbouring", "noise_scaled_to", "clipping_norm"]
    keys += ["dissimilarity", "choice", "trials", "steps", "seed"]
    settings = [(key.replace("_", " "), plain(report[key])) for key in keys]
    settings.append(("peak memory", f"{report['peak_memory_bytes'] / 2**20:.0f} MiB"))
    return [
        doc.Label("A measurement.", report["label"]),
        doc.Part(
            "The pairs",
            [
                doc.tabulated(headings(report), rows(report)),
                doc.Prose(
                    f"{LEGEND} RMS LS: root mean square over {report['trials']} trainings of "
                    f"{report['steps']} steps.",
                    small=True,
                ),
                *(_pictures(study) if is_image else _attributes(study, report)),
            ],
        ),
        doc.Heading("Which dissimilarity predicts local sensitivity"),
        doc.tabulated(stepwise, measures(report)),
        doc.Prose(
            f"Spearman's rank correlation with local sensitivity, of {_compared(report)}. "
            f"Intervals are bootstrapped over {over}. Each interval has its confidence by itself. "
            "Best and second were selected on the same data, which flatters the lead somewhat.",
            small=True,
        ),
        doc.Part("Local sensitivity during training", _courses(study, report)),
        doc.Part(
            "Settings",
            [
                doc.Listing(settings, several=True),
                doc.Heading("Time of each stage"),
                doc.Listing(seconds, several=True),
            ],
        ),
    ]


def _pictures(study: Study) -> list[doc.Block]:
    drawn: list[doc.Block] = []
    for choice in dict.fromkeys(candidate.choice for candidate in study.candidates):
        candidates = study.of(choice)
        pairs = [record_display.images(study.loaded.split, one.pair) for one in candidates]
        titles = [
            f"client {one.client}"
            if choice == "client"
            else f"{one.pair.record}, client {one.client}"
            for one in candidates
        ]
        replaced = " Above: record of D. Below: its replacement." * (pairs[0][1] is not None)
        caption = f"{CHOICES[choice].capitalize()}.{replaced}"
        drawing = training_figures.record_pairs(titles, pairs)
        drawn.append(doc.Figure(choice, drawing, "", caption))
    return drawn


def _courses(study: Study, report: Report) -> list[doc.Block]:
    bound, names = report["global_sensitivity"], map(_name, report["pairs"])
    followed = [
        Followed(name, one.pair.distance, one.choice, one.course)
        for name, one in zip(names, study.candidates, strict=True)
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
    relation = Relation(report["neighbouring"], study.candidates[0].course, bound)
    return [
        doc.Figure("by-pair", training_figures.by_pair(followed, bound), "", distributions),
        doc.Figure("course", training_figures.over_training([relation]), "", course),
    ]


def _attributes(study: Study, report: Report) -> Iterator[doc.Block]:
    """Yield, for each pair, a table of the attributes that differ most."""
    against = "Typical of D" if report["neighbouring"] == "add-remove" else "Replacement"
    for row, candidate in zip(report["pairs"], study.candidates, strict=True):
        if candidate.choice == "client":
            continue
        differences = record_display.differences(study.loaded.split, candidate.pair)
        rows = [[one.name, one.value, one.other] for one in differences.attributes]
        name = _name(row)
        yield doc.Heading(name[0].upper() + name[1:])
        yield doc.tabulated(["Attribute", "Record", against], rows, "stacked attributes")
        yield doc.Prose(
            f"The {len(rows)} attributes that differ most, of {differences.differing} that differ.",
            small=True,
        )
