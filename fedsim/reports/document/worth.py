"""The worth of a model in words and blocks, for each task of `fedsim.learning.training.tasks`."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from fedsim.audits.results.numbers import Proportion, Quality
from fedsim.learning.training import quality
from fedsim.learning.training.criterion import (
    ACCURACY,
    AUC,
    BALANCED,
    CONFIDENCE,
    ERROR,
    PERPLEXITY,
    Judged,
    Measured,
    judge,
)
from fedsim.reports.document.blocks import Block, Prose, tabulated
from fedsim.reports.document.wording import DASH, beside_accuracy, number, percent, span


@dataclass(frozen=True)
class Words:
    """The words of one task.

    Attributes:
        use: inputs and outputs of a loaded model.
        advice: what to change if the model has not learnt, most effective first.
        constant: the model that has learnt nothing.
        unit: of the loss, with a space before it.
    """

    use: str
    predicts: str
    advice: str
    constant: str = "a constant answer"
    unit: str = " nats"


_REGRESSION = Words(
    use="records to numbers: output / 40 + 0.5 is a share of the range",
    predicts="a number",
    advice="Try more training.rounds, another training.clipping-norm, or a larger privacy.epsilon.",
    constant="always answering the median",
    unit="",
)

WORDS = {
    "classification": Words(
        use="records to logits",
        predicts="one of {classes} classes",
        advice='Try a smaller model.name ("linear" is the smallest), more training.rounds, another '
        "training.clipping-norm, no training.learning-rate (the default optimiser adapts its step "
        "size), or a larger privacy.epsilon.",
    ),
    "next-token": Words(
        use="texts to the mean loss of their next tokens and the share of right ones",
        predicts="the next token of a text",
        advice="Start from a network that was trained on public texts, train more rounds, or use a "
        "larger privacy.epsilon.",
        constant="a unigram model, which sees no context,",
    ),
    "regression": _REGRESSION,
    "huber": _REGRESSION,
}
"""By the name of the task in model.task."""


def as_text(name: str, value: float | None) -> str:
    """Return the value of the measure with this name, as text."""
    if value is None:
        return DASH
    return number(value) if name in (AUC, PERPLEXITY) else percent(value)


def leading(name: str) -> str:
    """Return a measure's name at the start of a sentence."""
    return name[:1].upper() + name[1:]


def baseline(judged: Judged) -> str:
    """Return what a constant answer reaches, as text."""
    constant = as_text(judged.name, judged.constant)
    if judged.name == ERROR:
        return f"always answering the median: {constant}"
    names = {ACCURACY: "majority class", PERPLEXITY: "unigram baseline"}
    if judged.name not in names:
        return f"{constant} for a constant answer"
    return f"{names[judged.name]} {constant}"


def beside(measured: Measured, least_recall: tuple[str, float] | None = None) -> str:
    """Return the other measures as text, the baseline first."""
    judged = judge(measured)
    if judged.name == PERPLEXITY:
        between = judged.interval and f"95% interval {span(judged.interval, number)}, "
        right = f"{percent(measured.accuracy)} of next tokens right"
        return f"{between or ''}{baseline(judged)}, {right}"
    if judged.name == ERROR:
        return f"of the target's range; {baseline(judged)}"
    others = beside_accuracy(
        measured.majority,
        None if judged.name == BALANCED else measured.balanced_accuracy,
        None if judged.name == AUC else measured.area_under_curve,
        least_recall,
    )
    if judged.name == ACCURACY:
        return others
    return f"{baseline(judged)}; accuracy {percent(measured.accuracy)}, {others}"


def unless_learnt(
    measured: Measured, confusion: Sequence[Sequence[float]] = (), loss_before: float | None = None
) -> tuple[str, str]:
    """Return a fault of the model, such as that it is not shown to have learnt, and advice; or "".

    confusion: records by class and answer; loss_before: loss of the first model.
    """
    judged, words = judge(measured), WORDS[measured.task]
    if not judged.has_learnt:
        reached = as_text(judged.name, judged.value)
        if judged.interval is not None:
            ends = span(judged.interval, lambda end: as_text(judged.name, end))
            reached += f" ({ends} at {CONFIDENCE:.0%})"
        return (
            f"The model is not shown to have learnt anything: its {judged.name} is {reached}, and "
            f"{words.constant} reaches {as_text(judged.name, judged.constant)}.",
            words.advice,
        )
    if measured.task == "classification" and quality.answers_one_class(confusion):
        return (
            "The model answers one class for nearly every record.",
            "Choose a threshold of its probabilities that suits your purpose, set "
            "model.class-priors, or train more rounds.",
        )
    # With class priors the loss may rise, since it weighs all records alike.
    rose = measured.loss is not None and loss_before is not None and measured.loss > loss_before
    if rose and judged.name not in (AUC, BALANCED):
        return (
            "The model has learnt little: its loss is above the loss of the first model.",
            words.advice,
        )
    return "", ""


MANY_CLASSES = 30


def blocks(quality: Quality, named: Callable[[str], str] = str) -> Iterator[Block]:
    """Yield recall and precision of each class, and the confusion matrix."""
    names = [named(each.name) for each in quality.classes]
    rows = [
        [name, f"{each.records:,}", share(each.recall), share(each.precision)]
        for name, each in zip(names, quality.classes, strict=True)
    ]
    yield Prose(f"By class, with intervals at {percent(quality.confidence)}:")
    yield tabulated(["class", "records", "recall", "precision"], rows)
    if len(names) <= MANY_CLASSES:
        yield Prose("Records by class (rows) and by the model's answer (columns):")
        counts = [
            [name, *map(_count, row)] for name, row in zip(names, quality.confusion, strict=True)
        ]
        yield tabulated(["class", *names], counts)


def share(proportion: Proportion | None) -> str | None:
    if proportion is None:
        return None
    between = span(proportion.interval, percent)
    return f"{percent(proportion.value)} ({between})" if between else percent(proportion.value)


def _count(value: float) -> str:
    return f"{value:,.0f}" if value == round(value) else f"{value:,.1f}"
