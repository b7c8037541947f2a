"""Makes the pages beside a report again, and holds the signed ones against them.

Words and digits of a page must be those that the code makes of the report. Another processor may
round the last digit of a number otherwise, or a coordinate of a picture; nothing else may differ.
"""

import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fedsim.audits.results.report import Report
from fedsim.federation.runs.run_directory import RunDirectory
from fedsim.federation.runs.run_transcript import read as read_transcript
from fedsim.report import model_card, training_report
from fedsim.report import page as rendering
from fedsim.report.kinds import recorded as transcript_report
from fedsim.report.tracking import live_page

PAGE = "report.html"

RELATIVE = 1e-6
"""By how much a number of a page may differ, if not by its last digit."""

NUMBER = re.compile(r"(?<![\w.])-?\d++(?:\.(\d++))?+(?:e([-+]?\d++))?+(?![\w.]*[A-Za-z])")
"""A number that stands by itself, its decimals and its exponent; no part of a name or digest."""

Pages = Mapping[str, Sequence[bytes]]
"""By name, what a page or picture may be."""


def of_run(directory: RunDirectory, report: Report) -> Pages:
    """Return the page of a run and its pictures."""
    drawn = rendering.Pictures(report, read_transcript(directory))
    # The page of one run of several leads to theirs, which need not have been copied along.
    found = [rendering.render_html(report, drawn, several).encode() for several in (False, True)]
    pictures = {
        f"figures/{name}.{'svg' if isinstance(each, str) else 'png'}": [
            each.encode() if isinstance(each, str) else each
        ]
        for name, each in drawn.files.items()
    }
    return {
        PAGE: found,
        live_page.FILE: [live_page.render_finished(directory.config.run.name).encode()],
    } | pictures


def of_training(directory: RunDirectory, report: dict[str, Any]) -> Pages:
    """Return the page of a training and the card of its model."""
    card = model_card.read(directory)
    return {
        PAGE: [training_report.render_html(report, card).encode()],
        model_card.PAGE: [model_card.as_markdown(card).encode()],
        live_page.FILE: [live_page.render_finished(directory.config.run.name).encode()],
    }


def of_transcript(report: Mapping[str, Any]) -> Pages:
    """Return the page of a transcript's audit.

    Args:
        report: as it was made again, in which what is infinite is `math.inf`.
    """
    return {PAGE: [transcript_report.render_html(report).encode()]}


def differing(folder: Path, pages: Pages) -> tuple[list[str], list[str]]:
    """Return which of the pages that are there are as they were made again, and which are not."""
    same, other = list[str](), list[str]()
    for name, made in pages.items():
        if (folder / name).exists():
            content = (folder / name).read_bytes()
            (same if any(alike(content, each) for each in made) else other).append(name)
    return same, other


def alike(told: bytes, made: bytes) -> bool:
    """Return whether two pages differ in nothing but how numbers are rounded."""
    if told == made:
        return True
    try:
        texts = told.decode(), made.decode()
    except UnicodeDecodeError:
        return False
    one, other = (NUMBER.split(text)[::3] for text in texts)
    if one != other:
        return False
    pairs = zip(*(NUMBER.finditer(text) for text in texts), strict=True)
    return all(_rounded(*pair) for pair in pairs)


def _rounded(one: re.Match[str], other: re.Match[str]) -> bool:
    """Return whether two numbers are one that was rounded otherwise; whole numbers are not."""
    if one[0] == other[0]:
        return True
    decimals = min(len(one[1] or ""), len(other[1] or ""))
    if not decimals:
        return False
    unit = 10.0 ** (max(int(one[2] or 0), int(other[2] or 0)) - decimals)
    first, second = float(one[0]), float(other[0])
    return abs(first - second) <= 1.01 * unit or math.isclose(first, second, rel_tol=RELATIVE)
