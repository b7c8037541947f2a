"""The quality of a trained model in words and blocks, for its card and its report."""

from collections.abc import Callable, Iterator

from fedsim.audits.results.numbers import OfClass, Proportion, Quality
from fedsim.learning.training.criterion import judge
from fedsim.learning.training.quality import Confusion, Share
from fedsim.reports.card_types import ModelUtility
from fedsim.reports.document import worth
from fedsim.reports.document.blocks import Block, tabulated
from fedsim.reports.document.terminal import quoted
from fedsim.reports.document.wording import number, percent, span

CONFIDENCE = 0.95


def quality_of(utility: ModelUtility, named: Callable[[str], str] = quoted) -> Iterator[Block]:
    """Yield the errors of a regression, or the quality of a classifier class by class."""
    if utility.errors:
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
        yield tabulated(["measure", "value", f"interval at {percent(CONFIDENCE)}"], rows)
    if (quality := quality_in(utility)) is not None:
        yield from worth.blocks(quality, named)


def quality_in(utility: ModelUtility) -> Quality | None:
    """Return recall and precision of each class, with exact intervals; None without counts."""
    if not utility.confusion:
        return None
    counted = Confusion(tuple(map(tuple, utility.confusion)))

    def proportion(share: Share | None) -> Proportion | None:
        if share is None:
            return None
        return Proportion(share.value, share.interval.ends)

    classes = [
        OfClass(
            name,
            sum(utility.confusion[label]),
            proportion(counted.recall(label, CONFIDENCE)),
            proportion(counted.precision(label, CONFIDENCE)),
        )
        for label, name in enumerate(utility.classes)
    ]
    return Quality(CONFIDENCE, classes, [list(row) for row in utility.confusion])


SELDOM, NEARLY_ALWAYS = 0.01, 0.98
"""Shares of clipped gradients that are worth a hint."""


def learning(utility: ModelUtility, task: str = "classification") -> tuple[str, str, str]:
    """Return what a model reached, that it has learnt nothing, and what to change; or ""."""
    measured, quality = utility.measured(task), quality_in(utility)
    judged = judge(measured)
    value = worth.as_text(judged.name, judged.value)
    beside = worth.beside(measured, quality.least_recall if quality else None)
    said = (
        f"{worth.leading(judged.name)} is {value} on {utility.records:,} held-out records "
        f"({beside})."
    )
    fault, advice = worth.unless_learnt(measured, utility.confusion, utility.loss_before)
    return said, fault, " ".join(filter(None, [advice, _clipping(utility.clipped)]))


def _clipping(share: float | None) -> str:
    if share is None or SELDOM < share < NEARLY_ALWAYS:
        return ""
    longer = f"{percent(share)} of these records have gradients longer than training.clipping-norm"
    if share <= SELDOM:
        return (
            f"Only {longer}. The noise is proportional to this norm, so a smaller one may learn "
            "more; fedsim choose tries some."
        )
    return (
        f"{longer}: the model is far from fitting them. Try more training.rounds, or a "
        "larger training.clipping-norm."
    )
