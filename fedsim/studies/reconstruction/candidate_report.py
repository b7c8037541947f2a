"""The report of `fedsim attack --candidates`: JSON, terminal, and a page."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from scipy.special import ndtri

from adversaries.statistics.intervals import ALARM_CONFIDENCE, clopper_pearson
from fedsim.audits.results import verdicts
from fedsim.audits.results.verdicts import Checks
from fedsim.common.strict_json import strict_json
from fedsim.configuration import Config
from fedsim.privacy import risks
from fedsim.privacy.mechanism import Mechanism
from fedsim.reports.document import blocks as doc
from fedsim.reports.document.wording import counted, percent, span
from fedsim.reports.figures import drawings
from fedsim.studies import page
from fedsim.studies.reconstruction.candidate_game import Candidates, PlayedTrials

NOTE = (
    "The adversary is a curious participant that knows all other records, all candidates and the "
    "mechanism, and guesses by the exact posterior. No adversary of this kind does better on these "
    "candidates. The bound is 1 - f(baseline), with the trade-off curve f between a training with "
    "and a training without the record; it holds for any candidates."
)

LARGE_BASELINES = (0.3, 0.6)
SURE = f"with confidence {ALARM_CONFIDENCE:g}"


@dataclass(frozen=True, eq=False)
class ReconstructionReport:
    """The outcome of a game.

    Attributes:
        column: the guessed column; None where records are guessed.
        prior: "uniform" or "data".
        mechanism: whose trade-off curve bounds the success.
    """

    config: Config
    column: str | None
    prior: str
    noise_multiplier: float
    mechanism: Mechanism
    candidates: Candidates
    played: PlayedTrials
    seconds: float

    @cached_property
    def measured(self) -> dict[str, Any]:
        """The adversary's success: measured, at least with ALARM_CONFIDENCE, and believed.

        surprise: sum of the trials' scores as a standard normal deviate.
        """
        right, trials = int(self.played.right.sum()), len(self.played.right)
        return {
            "success": right / trials,
            "right": right,
            "interval": clopper_pearson(right, trials, self.config.audit.confidence).ends,
            "surely_at_least": clopper_pearson(right, trials, ALARM_CONFIDENCE).low,
            "believed": float(self.played.certainty.mean()),
            "surprise": float(self.played.scores.sum() / trials**0.5),
        }

    @cached_property
    def bound(self) -> float:
        return risks.success(self.mechanism, self.candidates.baseline)

    @cached_property
    def contradictions(self) -> dict[str, str]:
        return verdicts.alarms(_checks(self))

    @cached_property
    def success_by_baseline(self) -> tuple[tuple[float, float], ...]:
        baselines = sorted({*risks.BASELINES, *LARGE_BASELINES, self.candidates.baseline})
        return risks.success_by_baseline(self.mechanism, baselines)

    def as_json(self) -> dict[str, Any]:
        config, candidates = self.config, self.candidates
        report = {
            "kind": "reconstruction",
            **page.settings(config),
            "column": self.column,
            "question": candidates.question,
            "candidates": len(candidates),
            "values": list(candidates.values),
            "prior": self.prior,
            "baseline": candidates.baseline,
            "bound": self.bound,
            "measured": self.measured,
            "contradictions": self.contradictions,
            "alarms": len(self.contradictions),
            "chance_alarms": len(_checks(self)),
            "success_by_baseline": self.success_by_baseline,
            "trials": len(self.played.right),
            "noise_multiplier": self.noise_multiplier,
            "vantage": config.federation.vantage.value,
            "confidence": config.audit.confidence,
            "seconds": self.seconds,
        }
        return strict_json(report)


def _checks(report: ReconstructionReport) -> Checks:
    """Return the checks of success against its bound, and of the posterior against the truth."""
    made = {"success": "", "posterior": ""}
    least = report.measured["surely_at_least"]
    if least > report.bound:
        made["success"] = (
            f"The success is above its bound: it is at least {percent(least)} "
            f"{SURE}, but theory allows {percent(report.bound)}. The noise is not the noise that "
            "was accounted for, or a clipped gradient exceeds the sensitivity."
        )
    deviate = report.measured["surprise"]
    if abs(deviate) > ndtri((1 + ALARM_CONFIDENCE) / 2):
        rank, noise = ("more", "smaller") if deviate < 0 else ("less", "larger")
        made["posterior"] = (
            f"The posterior is not exact: it finds the true candidates {rank} often than it "
            f"should ({abs(deviate):.1f} standard deviations, {SURE}). The noise is {noise} than "
            "was accounted for, or has another distribution."
        )
    return made


def answer(report: ReconstructionReport) -> str:
    measured = report.measured
    return (
        f"The adversary guesses {report.candidates.question}. It is right in "
        f"{percent(measured['success'])} of {len(report.played.right):,} trials "
        f"({span(measured['interval'], percent)}). Without the training it is right in "
        f"{percent(report.candidates.baseline)}, and theory allows {percent(report.bound)}."
    )


DOUBTED = "Do not rely on the stated ε; the warnings say what contradicts it."
RELY = "Rely on the bound, which holds for any attack and any candidates."
LOWER = "To lower it, choose the noise for a limit: "
CAPTION = (
    "Largest success of any attack, against its success without the training. The mark is the "
    "measured success with its interval; the dashed line is an attack that learns nothing."
)


def told(report: ReconstructionReport) -> doc.Told:
    config, measured = report.config, report.measured
    between = f"{100 * config.audit.confidence:g}% interval {span(measured['interval'], percent)}"
    baseline = percent(report.candidates.baseline)
    rows = [
        ("without the training", baseline, "the most frequent candidate"),
        ("measured", percent(measured["success"]), between),
        ("by the adversary's own belief", percent(measured["believed"]), "mean of its certainty"),
        ("theory allows at most", percent(report.bound), "any attack"),
    ]

    baseline_risk = f"--baseline-risk {report.candidates.baseline:.3g}"
    command = f"fedsim choose CONFIG --max-risk {0.9 * report.bound:.2g} {baseline_risk}"

    def sections() -> Iterator[doc.Block]:
        mark = report.candidates.baseline, measured["success"], *measured["interval"]
        drawing = drawings.success(report.success_by_baseline, mark)
        yield doc.Figure("success", drawing, "Success of any attack.", CAPTION)

    return page.told(
        config,
        report.as_json(),
        NOTE,
        sections,
        kind="Reconstruction" if report.column is None else "Attribute inference",
        played=counted(len(report.played.right), "trial"),
        answer=[answer(report)],
        alarms=[*report.contradictions.values()],
        table=doc.tabulated(("Right guesses", "share", "remark"), rows),
        steps=[DOUBTED] if report.contradictions else [RELY, [LOWER, doc.Code(command)]],
        limits="One target, one set of candidates; other candidates are easier or harder to tell "
        "apart.",
    )
