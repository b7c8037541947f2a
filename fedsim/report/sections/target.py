"""Sections about the target, and how likely its re-identification is."""

import base64
import io
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from markupsafe import Markup
from PIL import Image

from fedsim.audits.results.report import Report
from fedsim.audits.results.theory import VantageBounds
from fedsim.report.document.blocks import (
    Block,
    Cell,
    Figure,
    Group,
    Line,
    Mark,
    Part,
    Picture,
    Place,
    Prose,
    Table,
    tabulated,
)
from fedsim.report.document.wording import number, percent, span
from fedsim.report.sections.section import Section, Transcript, confidence_of, is_client, is_pac
from fedsim.report.sections.vantage_words import NAMES, WHO, holds_for

Shown = Mapping[str, Any]
"""A record of public data, as `fedsim.game.record_display.shown`."""

CHOSEN = {
    "max": "the most unusual by {}",
    "min": "the least unusual by {}",
    "median": "one of middling distance by {}",
    "given": "the record that the configuration names",
}

UNUSUAL = 0.05
IMAGE = Markup('<div class="target"><img src="data:image/png;base64,{}" alt="{}"></div>')


def target(report: Report) -> str:
    challenge = report.challenge
    if challenge.kind != "record":
        who = "The target was crafted to be noticed, and is no person's record."
    else:
        how = CHOSEN[challenge.choice].format(challenge.measure)
        whose = (
            f"Client {challenge.client}, with all its {challenge.records} records,"
            if is_client(report)
            else f"Record {challenge.record}, of client {challenge.client},"
        )
        distance = "" if challenge.distance is None else f" (distance {number(challenge.distance)})"
        who = f"{whose} is the target: {how}{distance}."
    return (
        f"{who} The measurements are about this target alone: other records may be easier or "
        f"harder to identify. {holds_for(report)}"
    )


def part(report: Report, picture: Shown | None) -> Part:
    blocks: Sequence[Block] = [Prose(_why_not(report), small=True)]
    if picture is not None:
        blocks = record(picture, f"Record {report.challenge.record} of D", "The data are public.")
    return Part("Whom this is about", [Prose(target(report)), *blocks])


def _why_not(report: Report) -> str:
    if is_client(report):
        return "No record is shown: all data of a client are the target."
    if report.challenge.kind != "record":
        return "No record is shown: the target is no person's."
    return (
        f"The record is not shown, because this page may be handed on. The data "
        f"'{report.data.name}' are not known to be public, or the run kept no copy of the record."
    )


def record(picture: Shown, name: str, why: str) -> list[Block]:
    """Return a record as blocks: a picture, or its most unusual columns."""
    if picture.get("pixels") is not None:
        pixels = np.array(picture["pixels"], dtype=np.uint8)
        what = f"{name}, a picture labelled {picture['label']}"
        image = IMAGE.format(_png(pixels), f"{what}, {pixels.shape[0]} by {pixels.shape[1]} pixels")
        return [Picture("target", image, "", f"{what}. {why}")]
    lines = [
        Line(
            Cell(one["name"]),
            [
                Cell(
                    one["value"],
                    mark=Mark("caution", "Unusual") if one["share"] <= UNUSUAL else None,
                    style="value",
                ),
                Cell(one["other"]),
                Cell(percent(one["share"])),
            ],
        )
        for one in picture["attributes"]
    ]
    headings = "Column", "Record", "Typical of D", "Records as far from typical"
    entries = (
        f"{name}, labelled {picture['label']}: the columns that differ most from typical values. "
        f"{why}"
    )
    return [Prose(entries), Table(headings, [Group("", lines)])]


def _png(pixels: np.ndarray) -> str:
    """Return pixels [H, W] or [H, W, 3] as a PNG, dark where a grey value is high, in base64."""
    buffer = io.BytesIO()
    Image.fromarray(255 - pixels if pixels.ndim == 2 else pixels).save(buffer, "PNG")
    return base64.b64encode(buffer.getvalue()).decode()


Risks = Sequence[tuple[float, float]]
"""Success of an attack without the model, and its largest success with it."""

EXAMPLE = 0.001

MEANING = (
    "These are limits of theory for any attack on one person: re-identification, attribute "
    "inference or reconstruction. The first column is how often an attempt succeeds without what "
    "the training discloses, such as 1 in n for naming one of n people. The others are how often "
    "it succeeds, at most, after one training, by what each party sees."
)


def in_cases(baseline: float) -> str:
    return f"1 in {round(1 / baseline):,}"


def sentence(risks: Mapping[str, Risks]) -> str:
    """Return the risk from a baseline of 1 in 1,000 as a sentence; "" if it is unknown."""
    limits: dict[str, list[str]] = {}
    for name, pairs in risks.items():
        at_most = dict(pairs).get(EXAMPLE)
        if at_most is not None:
            words = f"at most {at_most / EXAMPLE:.3g} of {1 / EXAMPLE:,.0f}"
            limits.setdefault(words if at_most < 1 else "no limit", []).append(name)
    if not limits:
        return ""
    each = "; ".join(f"{words} for {' and '.join(names)}" for words, names in limits.items())
    return (
        f"An attempt about one person that succeeds in {in_cases(EXAMPLE)} cases without what the "
        f"training discloses succeeds with it in: {each}."
    )


def table(risks: Mapping[str, Risks]) -> Table:
    rows = [
        [in_cases(baseline), *("no limit" if one >= 1 else percent(one) for one in largest)]
        for baseline, largest in _by_baseline(risks)
    ]
    return tabulated(("Success without the training", *risks), rows)


def _by_baseline(risks: Mapping[str, Risks]) -> list[tuple[float, list[float]]]:
    columns = list(risks.values())
    return [
        (baseline, [column[place][1] for column in columns])
        for place, (baseline, _) in enumerate(columns[0])
    ]


def _limited(report: Report) -> list[VantageBounds]:
    """Return the vantage points with risks; none for reports of earlier versions and PAC noise."""
    return [] if is_pac(report) else [row for row in report.bounds.vantages if row.risks]


def _words(report: Report) -> list[Block]:
    rows = _limited(report)
    if not rows:
        return []
    audited = next(row for row in rows if row.vantage == report.vantage)
    return [
        Prose(f"{of_run(report)} {MEANING}"),
        Prose(holds_for(report)),
        table(_by_name(rows)),
        *_measured(report, dict(audited.risks)),
        Place("risks"),
    ]


def of_run(report: Report) -> str:
    return sentence({WHO[row.vantage]: row.risks for row in _limited(report)})


def _by_name(rows: Sequence[VantageBounds]) -> dict[str, Risks]:
    return {NAMES[row.vantage].capitalize(): row.risks for row in rows}


def _measured(report: Report, allowed: Mapping[float, float]) -> list[Block]:
    rates = report.empirical.true_positives
    if not rates:
        return []
    rows = [
        [
            percent(one.rate),
            f"cannot tell, needs {2 * one.needed:,} trials"
            if one.interval is None
            else span(one.interval, percent),
            percent(allowed.get(one.rate)),
        ]
        for one in rates
    ]
    sentences = (
        "The played game is membership inference about the target. Its intervals hold together at "
        f"{confidence_of(report).strip()}; the false-positive rate is the baseline of the table "
        "above."
    )
    headings = ("False positives", "True positives, measured", "At most, by theory")
    return [Prose(sentences), tabulated(headings, rows)]


def _figures(report: Report, _: Transcript) -> list[Figure]:
    from fedsim.report.figures import run_figures  # noqa: PLC0415  (matplotlib is slow to import)

    rows = [row for row in _limited(report) if row.risks[0][1] < 1]
    if not rows:
        return []
    caption = (
        "Largest success of any attack with what the training discloses, against its success "
        "without. The dashed line is an attack that learns nothing from the training."
    )
    return [Figure("risks", run_figures.success(_by_name(rows)), "Success of any attack.", caption)]


RISKS = Section("How likely is re-identification?", _words, _figures)
