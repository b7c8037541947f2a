"""The report of a study of dataset sensitivity: JSON, what the terminal shows, and a page.

It words what `fedsim.studies.sensitivity.sensitivity_study` found, and shows the pairs
themselves: images side by side, or the attributes in which records differ.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from rich.console import RenderableType

from fedsim.common import report_directory
from fedsim.game import record_display
from fedsim.report.document import first_screen, terminal
from fedsim.report.document.blocks import (
    Block,
    Document,
    Figure,
    FirstScreen,
    Heading,
    Label,
    Listing,
    Part,
    Prose,
    tabulated,
)
from fedsim.report.document.html import render
from fedsim.report.document.wording import DASH, number, percent, plain
from fedsim.report.figures import study_figures, training_figures
from fedsim.report.figures.study_figures import Followed, Relation
from fedsim.studies.sensitivity.sensitivity_study import CHOICES, LABEL, Study

Report = Mapping[str, Any]


def write(study: Study, report: Report, directory: Path) -> Path:
    """Write report.html and report.json into a directory; return the page.

    Raises:
        InputError, OSError: as of `report_directory.write_report`.
    """
    return report_directory.write_report(directory, report, render_html(study, report))


def verdict(report: Report) -> list[str]:
    """Return in a few sentences how good the choice was, and which dissimilarity predicts best."""
    chosen = report["pairs"][0]
    how = CHOICES[chosen["choice"]]
    by = "" if chosen["choice"] == "given" else f" by {report['dissimilarity']}"
    return [
        f"The challenge is the {_one(report)} {how}{by}. "
        + " ".join(_standing(report, i) for i in range(len(report["views"]))),
        f"Over {report['trials']} trainings of {report['steps']} steps the root mean square of its "
        f"local sensitivity was {number(chosen['rms'])}, of the "
        f"{number(report['global_sensitivity'])} that clipping allows.",
        *(_predicts_best(report, view) for view in report["views"]),
    ]


def _one(report: Report) -> str:
    return "pair" if report["neighbouring"] == "replace" else "record"


def _standing(report: Report, i: int) -> str:
    view, seen = report["views"][i], report["pairs"][0]["seen"][i]
    median = min(1.0, view["quantiles"]["0.5"] / view["largest"]["sensitivity"])
    return (
        f"In step {view['step']} it has {_share(view['reach'])} of the largest local sensitivity "
        f"of any {_one(report)} (rank {seen['rank']:,} of {report['pairs_in_all']:,}); half of all "
        f"have {_share(median)} of it or more."
    )


def _share(value: float) -> str:
    return percent(round(value, 5))  # what rounding leaves of clipped gradients is all of it


def _predicts_best(report: Report, view: Report) -> str:
    comparison, step = view["comparison"], f"local sensitivity in step {view['step']}"
    if comparison is None:
        reasons = dict.fromkeys(row["refusal"] for row in view["measures"].values())
        return f"No dissimilarity can be compared with {step}: {next(iter(reasons))}."
    best, second = comparison["best"], comparison["runner_up"]
    row = view["measures"][best]
    if row["high"] < 0:
        return (
            f"Every dissimilarity with a rank correlation orders {_compared(report)} the other way "
            f"round than {step} does: the highest, of {best}, is {_interval(report, row)}."
        )
    if row["low"] <= 0:
        return (
            f"No dissimilarity is known to order {_compared(report)} like {step} does: the best, "
            f"{best}, has a rank correlation of {_interval(report, row)}."
        )
    sentence = (
        f"Of the dissimilarities, {best} orders {_compared(report)} most like {step} does: rank "
        f"correlation {_interval(report, row)}"
    )
    if second is None:
        return f"{sentence}."
    sure = (
        "whose interval excludes 0, but best and second were picked on the same data"
        if comparison["lead_low"] > 0
        else "which may be chance"
    )
    return (
        f"{sentence}. It leads {second} by {number(comparison['lead'])} "
        f"({number(comparison['lead_low'])} to {number(comparison['lead_high'])}), {sure}."
    )


def _interval(report: Report, row: Report) -> str:
    """Word a rank correlation with its interval, or why there is none."""
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
    """Name a pair by how it came in, such as "max 2"."""
    several = row["choice"] in ("max", "min", "client")
    return f"{row['choice']} {row['place']}" if several else str(row["choice"])


def measures(report: Report) -> list[list[str]]:
    """Return the rank correlations as texts: a row for each dissimilarity, a column for a view."""
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
            known = (DASH if no else cell for no, cell in zip(refused, cells, strict=True))
            shown.append([name, *known])
    explained = f"No correlation, as the page explains: {', '.join(without)}."
    pairs = tabulated(headings(report), rows(report))
    correlations = tabulated(["dissimilarity", *steps], shown)
    return terminal.shown(
        *map(Prose, verdict(report)),
        terminal.table(pairs, "Pairs, and their local sensitivity (LS)", dense=True),
        Prose(LEGEND),
        terminal.table(correlations, f"Rank correlation, of {_compared(report)}", dense=True),
        *([Prose(explained)] if without else []),
        Prose(LABEL),
    )


LEGEND = (
    "max, min: the most and the least dissimilar; client: the most dissimilar of one client's "
    "records; worst: the largest LS in step 1. d: the dissimilarity. LS with a number is that of "
    "this step of the first training; the rank is among all, 1 for the largest, from 10,000 on as "
    "a share of all, and equals share it."
)


def render_html(study: Study, report: Report) -> str:
    """Return the report as one HTML page that needs no other file, script or network."""
    is_image = study.known.split.dataset.kind == "image"
    several = report["compared"]["replacements"]
    shared = " and over replacements, because pairs share them" if several else ""
    data, name = report["data"], report["name"]
    subject = data if name == data else f"{data} ({name})"
    seconds = [(name, f"{value:.1f} s") for name, value in report["seconds"].items()]
    stepwise = ["Dissimilarity", *(f"LS in step {view['step']}" for view in report["views"])]
    blocks: list[Block] = [
        Label("A measurement.", report["label"]),
        Part(
            "The pairs",
            [
                tabulated(headings(report), rows(report)),
                Prose(
                    f"{LEGEND} RMS LS: root mean square over {report['trials']} trainings of "
                    f"{report['steps']} steps.",
                    small=True,
                ),
                *(_pictures(study) if is_image else _attributes(study, report)),
            ],
        ),
        Heading("Which dissimilarity predicts local sensitivity"),
        tabulated(stepwise, measures(report)),
        Prose(
            f"Spearman's rank correlation with local sensitivity, of {_compared(report)}. "
            f"Intervals are bootstrapped over records{shared}; each has its confidence by itself, "
            "and that best and second were picked on the same data flatters the lead somewhat.",
            small=True,
        ),
        Part("Local sensitivity during training", _courses(study, report)),
        Part(
            "What was studied",
            [
                Listing(_settings(report), several=True),
                Heading("Where the time went"),
                Listing(seconds, several=True),
            ],
        ),
    ]
    return render(
        Document(
            title=f"Dataset sensitivity of {subject}",
            kind="Dataset sensitivity",
            heading=subject,
            first=FirstScreen(
                verdict(report),
                steps=[
                    "Name the record with challenge.record, or the dissimilarity that finds it "
                    "with challenge.dissimilarity, before the run that attacks it."
                ],
                sign_off=first_screen.sign_off(
                    data=f"{data}, {report['records']} records",
                    date=first_screen.today(),
                    limits=report["label"],
                ),
            ),
            blocks=blocks,
        )
    )


def _pictures(study: Study) -> list[Block]:
    drawn: list[Block] = []
    for choice in dict.fromkeys(candidate.choice for candidate in study.candidates):
        candidates = study.of(choice)
        pairs = [record_display.images(study.known.split, one.pair) for one in candidates]
        titles = [
            f"client {one.client}"
            if choice == "client"
            else f"{one.pair.record}, client {one.client}"
            for one in candidates
        ]
        replaced = (
            " Above the record of D, below what replaces it." if pairs[0][1] is not None else ""
        )
        caption = f"{CHOICES[choice].capitalize()}.{replaced}"
        drawing = training_figures.record_pairs(titles, pairs)
        drawn.append(Figure(choice, drawing, "", caption))
    return drawn


def _courses(study: Study, report: Report) -> list[Block]:
    bound, names = report["global_sensitivity"], map(_name, report["pairs"])
    followed = [
        Followed(name, one.pair.distance, one.choice, one.course)
        for name, one in zip(names, study.candidates, strict=True)
        if one.choice in study_figures.COLOURS
    ]
    distributions = (
        "Local sensitivity in all steps of all trainings, by pair, with its dissimilarity d: bars "
        "are the median and the range of 90%. After Figure 4 of the core paper."
    )
    course = (
        "Local sensitivity of the challenge in every step, against the global sensitivity that the "
        "noise must cover. After Figure 5 of the core paper."
    )
    relation = Relation(report["neighbouring"], study.candidates[0].course, bound)
    return [
        Figure("by-pair", study_figures.by_pair(followed, bound), "", distributions),
        Figure("course", study_figures.over_training([relation]), "", course),
    ]


def _attributes(study: Study, report: Report) -> Iterator[Block]:
    """Yield for each pair a table of what its records differ most in."""
    against = "Typical of D" if report["neighbouring"] == "add-remove" else "Replacement"
    for row, candidate in zip(report["pairs"], study.candidates, strict=True):
        if candidate.choice == "client":
            continue
        found, name = record_display.differences(study.known.split, candidate.pair), _name(row)
        rows = [[one.name, one.value, one.other] for one in found.attributes]
        yield Heading(name[0].upper() + name[1:])
        yield tabulated(["Attribute", "Record", against], rows, "stacked attributes")
        yield Prose(
            f"{len(rows)} of {found.differing} attributes that differ, those that differ most.",
            small=True,
        )


def _settings(report: Report) -> list[tuple[str, str]]:
    keys = ["data", "records", "pool", "model", "neighbouring", "noise_scaled_to", "clipping_norm"]
    keys += ["dissimilarity", "choice", "trials", "steps", "seed"]
    settings = [(key.replace("_", " "), plain(report[key])) for key in keys]
    return [*settings, ("peak memory", f"{report['peak_memory_bytes'] / 2**20:.0f} MiB")]
