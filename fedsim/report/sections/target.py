"""Section about the target."""

import base64
import io
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from markupsafe import Markup
from PIL import Image

from fedsim.audits.results.report import Report
from fedsim.report.document import blocks as doc
from fedsim.report.document.wording import percent
from fedsim.report.sections.observers import holds_for
from fedsim.report.sections.section import is_client

Shown = Mapping[str, Any]
"""A record of public data, as `fedsim.game.record_display.shown`."""

CHOSEN = {
    "max": "the most unusual record (measure: {})",
    "min": "the least unusual record (measure: {})",
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
        who = f"{whose} is the target: {how}."
    return f"{who} The measurements are about this target alone. {holds_for(report)}"


def part(report: Report, picture: Shown | None) -> doc.Part:
    blocks: Sequence[doc.Block] = [doc.Prose(_why_not(report), small=True)]
    if picture is not None:
        blocks = record(picture, f"Record {report.challenge.record}", "The data are public.")
    return doc.Part("Who is the target?", [doc.Prose(target(report)), *blocks])


def _why_not(report: Report) -> str:
    if is_client(report):
        return "No record is shown: all data of a client are the target."
    if report.challenge.kind != "record":
        return "No record is shown: the target is not a person's record."
    return (
        "The record is not shown, because this page may be handed on and the data "
        f"'{report.data.name}' are not known to be public."
    )


def record(picture: Shown, name: str, why: str) -> list[doc.Block]:
    """Return a record as blocks: a picture, or its most unusual columns."""
    if picture.get("pixels") is not None:
        pixels = np.array(picture["pixels"], dtype=np.uint8)
        what = f"{name}, a picture labelled {picture['label']}"
        image = IMAGE.format(_png(pixels), f"{what}, {pixels.shape[0]} by {pixels.shape[1]} pixels")
        return [doc.Picture("target", image, "", f"{what}. {why}")]
    lines = [
        doc.Line(
            doc.Cell(one["name"]),
            [
                doc.Cell(
                    one["value"],
                    mark=doc.Mark("caution", "Unusual") if one["share"] <= UNUSUAL else None,
                    style="value",
                ),
                doc.Cell(one["other"]),
                doc.Cell(percent(one["share"])),
            ],
        )
        for one in picture["attributes"]
    ]
    headings = "Column", "Record", "Typical value", "Records at least as unusual"
    entries = (
        f"{name}, labelled {picture['label']}: the columns that differ most from typical values. "
        f"{why}"
    )
    return [doc.Prose(entries), doc.Table(headings, [doc.Group("", lines)])]


def _png(pixels: np.ndarray) -> str:
    """Return pixels [H, W] or [H, W, 3] as a PNG, dark where a grey value is high, in base64."""
    buffer = io.BytesIO()
    Image.fromarray(255 - pixels if pixels.ndim == 2 else pixels).save(buffer, "PNG")
    return base64.b64encode(buffer.getvalue()).decode()
