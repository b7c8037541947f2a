"""The quality of a trained model in words and blocks, for its card and its report."""

from collections.abc import Callable, Iterator
from dataclasses import fields

from fedsim.audits.results.model_card import Utility
from fedsim.audits.results.quality import OfClass, Proportion, Quality, SureRecords
from fedsim.learning.training.quality import Confusion, Share
from fedsim.report.document import quality_blocks
from fedsim.report.document.blocks import Block, tabulated
from fedsim.report.document.markdown import quoted
from fedsim.report.document.wording import number, percent, span
from fedsim.report.document.worth import WORDS, Worth, fault_of

CONFIDENCE = 0.95
"""Confidence of the intervals of recall, precision and calibration."""


def quality_of(utility: Utility, named: Callable[[str], str] = quoted) -> Iterator[Block]:
    """Yield the errors of a regression, or the quality of a classifier class by class.

    Args:
        named: returns the name of a class as text of the page.
    """
    if utility.errors:
        yield _errors(utility)
    if (quality := quality_in(utility)) is not None:
        yield from quality_blocks.blocks(quality, named)


def quality_in(utility: Utility) -> Quality | None:
    """Return recall and precision of each class, with exact intervals; None without counts."""
    if not utility.confusion:
        return None
    counted = Confusion(tuple(map(tuple, utility.confusion)))

    def proportion(share: Share | None) -> Proportion | None:
        if share is None:
            return None
        return Proportion(share.value, (share.interval.low, share.interval.high))

    classes = [
        OfClass(
            name,
            sum(utility.confusion[label]),
            proportion(counted.recall(label, CONFIDENCE)),
            proportion(counted.precision(label, CONFIDENCE)),
        )
        for label, name in enumerate(utility.classes)
    ]
    bins = [
        SureRecords(records, sure, accuracy)
        for records, sure, right in utility.calibration
        if (accuracy := proportion(Share.of(round(right * records), records, CONFIDENCE)))
    ]
    return Quality(CONFIDENCE, classes, [list(row) for row in utility.confusion], bins)


def _errors(utility: Utility) -> Block:
    """Return the errors of a regression, in the target's unit, with their intervals."""
    reach = utility.target[1] - utility.target[0]
    rows = [
        [title, number(value * unit), span((low * unit, high * unit), number)]
        for name, title, unit in (
            ("mean_absolute", "mean absolute error", reach),
            ("root_mean_squared", "root of the mean squared error", reach),
            ("r_squared", "R², the share of the variance that is explained", 1),
        )
        for value, low, high in ([utility.errors[name]] if name in utility.errors else [])
    ]
    return tabulated(["measure", "value", f"interval at {percent(CONFIDENCE)}"], rows)


SELDOM, NEARLY_ALWAYS = 0.01, 0.98
"""Shares of clipped gradients that are worth a hint."""


def learning(utility: Utility, task: str = "classification") -> str:
    """Return a model's worth beside its baseline, with a warning if it is no better."""
    words = WORDS[task]
    quality = quality_in(utility)
    names = [each.name for each in fields(Worth) if hasattr(utility, each.name)]
    measured = Worth(
        **{name: getattr(utility, name) for name in names},
        least_recall=None if quality is None else quality.least_recall,
    )
    value = words.value(utility.accuracy, utility.loss)
    worth = (
        f"{words.measure.capitalize()} {value} ({words.beside(measured)}) on {utility.records:,} "
        "held-out records."
    )
    fault = fault_of(utility.confusion, utility.loss, utility.loss_before)
    sentences = [worth, words.unless_learnt(measured, fault), _clipping(utility.clipped, task)]
    return " ".join(sentence for sentence in sentences if sentence)


def _clipping(share: float | None, task: str) -> str:
    """Return a hint if the clipping norm is far from the length of gradients; else ""."""
    if share is None or SELDOM < share < NEARLY_ALWAYS:
        return ""
    longer = (
        f"The gradients of {percent(share)} of these records are longer than training.clipping-norm"
    )
    if share <= SELDOM:
        return (
            f"{longer}, and the noise is proportional to it: a smaller norm may learn more."
            + " fedsim tune tries some on public records." * (task == "classification")
        )
    return (
        f"{longer}: the model is far from fitting them. Try more training.rounds, or a "
        "larger training.clipping-norm."
    )
