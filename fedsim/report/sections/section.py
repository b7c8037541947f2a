"""Sections of a run's page: what they are, what their figures are drawn from, and facts for all."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from adversaries.arrays import Bools, Floats
from fedsim.audits.results.report import Report
from fedsim.learning.training.criterion import AUC, BALANCED, judge
from fedsim.report.document import worth
from fedsim.report.document.blocks import Block, Figure
from fedsim.report.document.wording import DASH, counted, number, plain


@dataclass(frozen=True, eq=False)
class SectionTranscript:
    """The adversary's observations of T trials of k rounds.

    Attributes:
        worlds: whether each trial trained on D, bool [T].
        log_odds: for D after each round, [T, k].
        sensitivities: local ones of each round, [T, k].
        noise_stds: standard deviations of each round's noise, [T, k].
        poison_scores: of the released models, [T]; None unless the target was crafted.
    """

    worlds: Bools
    log_odds: Floats
    sensitivities: Floats
    noise_stds: Floats
    poison_scores: Floats | None = None

    @classmethod
    def of(cls, arrays: Mapping[str, Any]) -> "SectionTranscript":
        return cls(
            arrays["worlds"],
            arrays["log_odds"],
            arrays["sensitivities"],
            arrays["noise_stds"],
            arrays.get("poison_scores"),
        )


@dataclass(frozen=True)
class Section:
    """One section of the page of a run: its blocks and figures.

    Its numbers come from the report, which `fedsim.audits.run` computed.

    Attributes:
        words: report -> blocks; a section without blocks and figures is left out.
        figures: report, transcript -> figures; figures that no block places stand at the end.
        specialist: whether it stands in the folded part for specialists.
    """

    title: str | Callable[[Report], str]
    words: Callable[[Report], Sequence[Block]] = lambda report: ()
    figures: Callable[[Report, SectionTranscript], Iterable[Figure]] = lambda report, seen: ()
    specialist: bool = False

    def heading(self, report: Report) -> str:
        return self.title if isinstance(self.title, str) else self.title(report)


TITLES = {
    "clopper_pearson": "Clopper–Pearson",
    "clopper_pearson_split": "Clopper–Pearson, split trials",
    "mu_gdp": "μ of Gaussian privacy",
    "gaussian": "Gaussian",
    "trade_off": "Sampled trade-off curve",
}


def is_client(report: Report) -> bool:
    return report.unit == "client"


def is_clipped(report: Report) -> bool:
    return report.mechanism.clipping


def is_sampled(report: Report) -> bool:
    """Return whether a record joins a round only with a probability below 1."""
    return report.mechanism.sampling_rate < 1


def takes_local_steps(report: Report) -> bool:
    return report.mechanism.local_steps > 1


def is_alarming(report: Report) -> bool:
    return bool(report.contradictions)


def challenge_of(report: Report) -> str:
    """Return the target in words, such as "the target record"."""
    challenge = report.challenge
    if is_client(report):
        return f"all {challenge.records} records of client {challenge.client}"
    what = "gradient" if challenge.kind == "gradient" else "record"
    if challenge.records == 1:
        return f"the target {what}"
    return f"{challenge.records} target {what}s"


def trials_of(report: Report) -> str:
    return counted(report.trials, "trial")


def confidence_of(report: Report) -> str:
    """Return the confidence of every interval as the start of a phrase, such as "95% "."""
    return f"{100 * report.attack.confidence:g}% "


def is_scored(report: Report) -> bool:
    """Return whether log-odds are the score of an attack that counts draws, of unknown law."""
    return report.prediction.method == "none"


SCORED = "the belief is the score of an attack; ρβ does not limit such a score."


def score_caution(report: Report) -> str:
    if report.vantage == "released-model":
        return f" For the released model, {SCORED}"
    if takes_local_steps(report):
        return f" With local steps, {SCORED}"
    if is_scored(report):
        return f" {SCORED[:1].upper()}{SCORED[1:]}"
    return ""


def standard_errors_apart(report: Report) -> str:
    measured, predicted = report.attack.advantage, report.prediction.advantage
    distance = report.prediction.distance
    if measured is None or predicted is None or distance is None or not distance.standard_error:
        return ""
    error = math.hypot(distance.standard_error, report.prediction.standard_error or 0.0)
    apart = abs(measured - predicted) / error
    return f"({apart:.1f} standard errors apart, p = {number(distance.p_value)})"


def measure(report: Report) -> str:
    return judge(report.utility.measured).name


def worths(report: Report) -> str:
    """Return the criterion of the task as text, before and after the training where known."""
    judged, utility = judge(report.utility.measured), report.utility
    last = worth.as_text(judged.name, judged.value)
    if not utility.accuracy.mean or judged.name in (AUC, BALANCED):
        return last
    before = replace(utility.measured, accuracy=utility.accuracy.mean[0], loss=utility.loss.mean[0])
    return f"{worth.as_text(judged.name, judge(before).value)} → {last}"


def worths_in_full(report: Report) -> str:
    utility, measured = report.utility, report.utility.measured
    if not utility.accuracy.mean:
        return DASH
    quality = utility.quality
    least_recall = quality.least_recall if quality else None
    sentence = f"{worths(report)} ({worth.beside(measured, least_recall)})"
    confusion = quality.confusion if quality else []
    warning = worth.unless_learnt(measured, confusion, utility.loss.mean[0])
    return f"{sentence}. {warning.removesuffix('.')}" if warning else sentence


def model_in_short(report: Report) -> str:
    """Return the criterion beside a constant answer, and whether the model has learnt."""
    measured = report.utility.measured
    judged = judge(measured)
    texts = [f"{judged.name} {worth.as_text(judged.name, judged.value)}"]
    if measured.area_under_curve is not None and judged.name != AUC:
        texts.append(f"AUC {measured.area_under_curve:.3f}")
    learnt = "" if judged.has_learnt else "; it is not shown to have learnt anything"
    return f"{', '.join(texts)} ({worth.baseline(judged)}){learnt}"


def clients_of(report: Report) -> str:
    return "a client's data" if is_client(report) else "the record"


def at_delta(delta: float) -> str:
    return f"at δ = {plain(delta)}"
