"""Recall, precision, confusion matrix and calibration of models as a page has them."""

from collections.abc import Callable, Iterator

from fedsim.audits.results.quality import Proportion, Quality
from fedsim.report.document.blocks import Block, Prose, tabulated
from fedsim.report.document.wording import percent, span

MANY_CLASSES = 30
"""A larger confusion matrix is in the JSON alone."""


def blocks(found: Quality, named: Callable[[str], str] = str) -> Iterator[Block]:
    """Yield recall and precision of each class, the confusion matrix and the calibration curve.

    Args:
        named: returns how a page has the name of a class.
    """
    names = [named(each.name) for each in found.classes]
    rows = [
        [name, f"{each.records:,}", share(each.recall), share(each.precision)]
        for name, each in zip(names, found.classes, strict=True)
    ]
    yield Prose(f"By class, with intervals at {percent(found.confidence)}:")
    yield tabulated(["class", "records", "recall", "precision"], rows)
    if len(names) <= MANY_CLASSES:
        yield Prose("Records by class (rows) and by the model's answer (columns):")
        counts = [
            [name, *map(_count, row)] for name, row in zip(names, found.confusion, strict=True)
        ]
        yield tabulated(["class", *names], counts)
    yield Prose("Confidence of the model, and its share of right answers:")
    bins = [
        [percent(each.confidence), share(each.accuracy), _count(each.records)]
        for each in found.calibration
    ]
    yield tabulated(["confidence", "right", "records"], bins)


def share(found: Proportion | None) -> str | None:
    """Return a share and its interval as text; None if it is missing."""
    if found is None:
        return None
    between = span(found.interval, percent)
    return f"{percent(found.value)} ({between})" if between else percent(found.value)


def _count(value: float) -> str:
    return f"{value:,.0f}" if value == round(value) else f"{value:,.1f}"
