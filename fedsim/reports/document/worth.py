"""The worth of a model in words and blocks, for each task of `fedsim.learning.training.tasks`."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from fedsim.audits.results.numbers import Real
from fedsim.common.foreign_text import shown
from fedsim.learning.training.criterion import (
    ACCURACY,
    AUC,
    BALANCED,
    ERROR,
    PERPLEXITY,
    Judged,
    Measured,
    judge,
)
from fedsim.learning.training.quality import Confusion, Share, answers_one_class
from fedsim.reports.document.blocks import Block, Prose, tabulated
from fedsim.reports.document.wording import DASH, number, percent, span


@dataclass(frozen=True)
class ModelUtility:
    """Quality of the model on held-out records; None or empty for what was not measured.

    Attributes:
        records: number of held-out records; public ones where clients have data of their own.
        accuracy: share of right predictions, in [0, 1]: of records, or of next tokens.
        majority: share of the most frequent label.
        loss, loss_before, baseline_loss: mean loss in nats of the model, of the first model, and of
            one that has learnt nothing.
        clipped: share of these records whose gradient is longer than the clipping norm at the final
            model, measured on some of them.
        confusion: records by class (rows) and by the model's answer (columns).
        errors: errors of a regression with their 95 % intervals, as in `quality.ERRORS`.
        target: smallest and largest value of a regression's target.
    """

    records: int
    accuracy: Real
    loss: Real
    majority: Real
    balanced_accuracy: Real | None
    area_under_curve: Real | None
    loss_before: Real | None = None
    clipped: Real | None = None
    classes: list[str] = field(default_factory=list)
    confusion: list[list[int]] = field(default_factory=list)
    errors: dict[str, tuple[Real, Real, Real]] = field(default_factory=dict)
    target: list[Real] = field(default_factory=list)
    baseline_loss: Real | None = None
    loss_interval: tuple[Real, Real] | None = None

    def measured(self, task: str) -> Measured:
        """Return the measures of the model, for `judge`; `task` is model.task."""
        counts = tuple(map(sum, self.confusion))
        interval = self.loss_interval
        if "mean_absolute" in self.errors:
            _, low, high = self.errors["mean_absolute"]
            interval = (1 - high, 1 - low)
        return Measured(
            task=task,
            records=self.records,
            accuracy=self.accuracy,
            majority=self.majority,
            loss=self.loss,
            of_class=counts,
            recalls=tuple(
                self.confusion[label][label] / count if count else None
                for label, count in enumerate(counts)
            ),
            balanced_accuracy=self.balanced_accuracy,
            area_under_curve=self.area_under_curve,
            baseline_loss=self.baseline_loss,
            interval=interval,
        )


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
    others = [f"majority class {percent(measured.majority)}"]
    if measured.balanced_accuracy is not None and judged.name != BALANCED:
        others.append(f"balanced accuracy {percent(measured.balanced_accuracy)}")
    if measured.area_under_curve is not None and judged.name != AUC:
        others.append(f"AUC {measured.area_under_curve:.3f}")
    if least_recall is not None:
        name, share = least_recall
        others.append(f"least recall {percent(share)} for class {shown(name)}")
    if judged.name != ACCURACY:
        others.insert(0, f"{baseline(judged)}; accuracy {percent(measured.accuracy)}")
    return ", ".join(others)


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
    if measured.task == "classification" and answers_one_class(confusion):
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


CONFIDENCE, MANY_CLASSES = 0.95, 30
SELDOM, NEARLY_ALWAYS = 0.01, 0.98
"""Shares of clipped gradients that are worth a hint."""

CLIPPED = "{} of these records have gradients longer than training.clipping-norm"
SELDOM_CLIPPED = (
    f" Only {CLIPPED}. The noise is proportional to this norm, so a smaller one may learn more; "
    "fedsim choose tries some."
)
ALWAYS_CLIPPED = (
    f" {CLIPPED}: the model is far from fitting them. Try more training.rounds, or a larger "
    "training.clipping-norm."
)


def learning(utility: ModelUtility, task: str = "classification") -> tuple[str, str, str]:
    """Return what a model reached, that it has learnt nothing, and what to change; or ""."""
    measured, clipped = utility.measured(task), utility.clipped
    judged = judge(measured)
    recalls = zip(measured.recalls, utility.classes, strict=False)
    known = [(name, share) for share, name in recalls if share is not None]
    least = min(known, key=lambda one: one[1], default=None)
    said = (
        f"{leading(judged.name)} is {as_text(judged.name, judged.value)} on {utility.records:,} "
        f"held-out records ({beside(measured, least)})."
    )
    fault, advice = unless_learnt(measured, utility.confusion, utility.loss_before)
    if clipped is not None and clipped <= SELDOM:
        advice += SELDOM_CLIPPED.format(percent(clipped))
    elif clipped is not None and clipped >= NEARLY_ALWAYS:
        advice += ALWAYS_CLIPPED.format(percent(clipped))
    return said, fault, advice.strip()


MEASURES = {
    "mean_absolute": "mean absolute error",
    "root_mean_squared": "root of the mean squared error",
    "r_squared": "R², the share of the variance that is explained",
}


def blocks(utility: ModelUtility, named: Callable[[str], str] = str) -> Iterator[Block]:
    """Yield the errors of a regression, or recall, precision and answers class by class."""
    if utility.errors:
        reach, rows = utility.target[1] - utility.target[0], []
        for name in (each for each in MEASURES if each in utility.errors):
            unit = 1 if name == "r_squared" else reach
            value, low, high = (unit * each for each in utility.errors[name])
            rows.append([MEASURES[name], number(value), span((low, high), number)])
        yield tabulated(["measure", "value", f"interval at {percent(CONFIDENCE)}"], rows)
    if not utility.confusion:
        return
    counted = Confusion(tuple(map(tuple, utility.confusion)))
    names = [named(each) for each in utility.classes]
    rows = [
        [
            name,
            f"{sum(utility.confusion[label]):,}",
            _share(counted.recall(label, CONFIDENCE)),
            _share(counted.precision(label, CONFIDENCE)),
        ]
        for label, name in enumerate(names)
    ]
    yield Prose(f"By class, with intervals at {percent(CONFIDENCE)}:")
    yield tabulated(["class", "records", "recall", "precision"], rows)
    if len(names) <= MANY_CLASSES:
        yield Prose("Records by class (rows) and by the model's answer (columns):")
        answers = zip(names, utility.confusion, strict=True)
        yield tabulated(["class", *names], [[n, *map("{:,}".format, row)] for n, row in answers])


def _share(share: Share | None) -> str:
    return (
        DASH if share is None else f"{percent(share.value)} ({span(share.interval.ends, percent)})"
    )
