"""The report of `fedsim reconstruct`: JSON, terminal, and a page."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scipy.special import ndtri

import fedsim
from adversaries.statistics.intervals import ALARM_CONFIDENCE, clopper_pearson
from fedsim.audits.results import verdicts
from fedsim.audits.results.verdicts import Check
from fedsim.common import report_directory
from fedsim.common.strict_json import strict_json
from fedsim.config.objects import Scheme
from fedsim.privacy import risks
from fedsim.privacy.mechanism import Mechanism
from fedsim.report.document import blocks as shown
from fedsim.report.document import first_screen
from fedsim.report.document.blocks import Block, Document, Figure, FirstScreen, Heading, Prose
from fedsim.report.document.first_screen import FAILED, OPEN, PASSED
from fedsim.report.document.html import render
from fedsim.report.document.wording import percent, plain, span
from fedsim.report.figures import risk_figures
from fedsim.studies.reconstruction.candidate_game import Played
from fedsim.studies.reconstruction.candidates import Candidates

Report = Mapping[str, Any]

PREDICTION = (
    "Monte Carlo at the models of the trials: candidate, coins and noise drawn anew in every round"
)

NOTE = (
    "The adversary is a curious participant that knows all other records, all candidates and the "
    "mechanism, and guesses by the exact posterior. No adversary of this kind does better on these "
    "candidates. The bound is 1 - f(baseline), with the trade-off curve f between a training with "
    "and a training without the record; it holds for any candidates. The prediction leaves out "
    "that a round's noise also changes later gradients."
)

LARGE_BASELINES = (0.3, 0.6)
SURE = f"with confidence {ALARM_CONFIDENCE:g}"


@dataclass(frozen=True)
class Setting:
    """The facts of a game that its report states.

    Attributes:
        column: the guessed column; None where records are guessed.
        prior: "uniform" or "data".
        mechanism: whose trade-off curve bounds the success.
    """

    name: str
    data: str
    column: str | None
    prior: str
    noise_multiplier: float
    mechanism: Mechanism
    confidence: float
    seed: int


def assemble(
    setting: Setting, scheme: Scheme, candidates: Candidates, played: Played, seconds: float
) -> dict[str, Any]:
    """Return the report as strict JSON values."""
    right, trials = int(played.right.sum()), len(played.right)
    interval = clopper_pearson(right, trials, setting.confidence)
    bound = risks.success(setting.mechanism, candidates.baseline)
    checks = list(_checks(played, bound))
    raised = verdicts.alarms(checks)
    baselines = sorted({*risks.BASELINES, *LARGE_BASELINES, candidates.baseline})
    largest = risks.true_positives(setting.mechanism, baselines).tolist()
    report = {
        "kind": "reconstruction",
        "name": setting.name,
        "data": setting.data,
        "records": scheme.records,
        "column": setting.column,
        "question": candidates.question,
        "candidates": len(candidates),
        "values": list(candidates.values),
        "prior": setting.prior,
        "baseline": candidates.baseline,
        "bound": bound,
        "prediction": {
            "success": float(played.predicted.mean()),
            "standard_error": float(played.predicted.std() / trials**0.5),
            "method": PREDICTION,
        },
        "measured": {
            "success": right / trials,
            "right": right,
            "interval": [interval.low, interval.high],
            "surely_at_least": clopper_pearson(right, trials, ALARM_CONFIDENCE).low,
            "believed": float(played.certainty.mean()),
            "surprise": _surprise(played),
        },
        "contradictions": raised,
        "alarms": len(raised),
        "chance_alarms": verdicts.chance_alarms(checks),
        "success_by_baseline": list(zip(baselines, largest, strict=True)),
        "trials": trials,
        "rounds": scheme.training.rounds,
        "sampling_rate": scheme.participation.rate,
        "noise_multiplier": setting.noise_multiplier,
        "trust": scheme.federation.trust.value,
        "vantage": scheme.federation.vantage.value,
        "clients": scheme.federation.clients,
        "confidence": setting.confidence,
        "seed": setting.seed,
        "seconds": seconds,
        "versions": {"fedsim": fedsim.__version__},
    }
    return strict_json(report)


def _surprise(played: Played) -> float:
    """Return the sum of the scores as a standard normal deviate."""
    return float(played.scores.sum() / len(played.scores) ** 0.5)


def _checks(played: Played, bound: float) -> Iterator[Check]:
    """Yield the checks of the success against its bound, and of the posterior against the truth."""
    right, trials = int(played.right.sum()), len(played.right)
    low = clopper_pearson(right, trials, ALARM_CONFIDENCE).low
    alarm = None
    if low > bound:
        alarm = (
            f"The success is above its bound: it is at least {percent(low)} {SURE}, but theory "
            f"allows {percent(bound)}. The noise is not the noise that was accounted for, or a "
            "clipped gradient exceeds the sensitivity."
        )
    yield Check("success", alarm)
    deviate, alarm = _surprise(played), None
    if abs(deviate) > ndtri((1 + ALARM_CONFIDENCE) / 2):
        rank, noise = ("more", "smaller") if deviate < 0 else ("less", "larger")
        alarm = (
            f"The posterior is not exact: it finds the true candidates {rank} often than it should "
            f"({abs(deviate):.1f} standard deviations, {SURE}). The noise is {noise} than was "
            "accounted for, or has another law."
        )
    yield Check("posterior", alarm)


def answer(report: Report) -> list[str]:
    """Return the result and the alarms as sentences."""
    measured = report["measured"]
    said = (
        f"The adversary guesses {report['question']}. It is right in "
        f"{percent(measured['success'])} of {report['trials']:,} trials "
        f"({span(measured['interval'], percent)}). Without the training it is right in "
        f"{percent(report['baseline'])}, and theory allows {percent(report['bound'])}."
    )
    return [said, *(f"ALARM: {text}" for text in report["contradictions"].values())]


def table(report: Report) -> shown.Table:
    """Return baseline, measurement, prediction and bound."""
    measured, predicted = report["measured"], report["prediction"]
    between = f"{100 * report['confidence']:g}% interval {span(measured['interval'], percent)}"
    rows = [
        ("without the training", percent(report["baseline"]), "the most frequent candidate"),
        ("measured", percent(measured["success"]), between),
        (
            "predicted",
            percent(predicted["success"]),
            f"standard error {percent(predicted['standard_error'])}",
        ),
        ("by the adversary's own belief", percent(measured["believed"]), "mean of its certainty"),
        ("at most, by theory", percent(report["bound"]), "any attack"),
    ]
    return shown.tabulated(("Right guesses", "share", "remark"), rows)


def blocks(report: Report) -> list[Block]:
    """Return the answer and the table, for a terminal or a notebook."""
    return [*map(Prose, answer(report)), table(report), Prose(NOTE, small=True)]


def write(report: Report, directory: Path) -> Path:
    """Write report.html and report.json into a directory; return the path of the page."""
    return report_directory.write_report(directory, report, render_html(report))


def render_html(report: Report) -> str:
    """Return the page, which needs no other file, script or network."""
    caption = (
        "Largest success of any attack, against its success without the training. The mark is the "
        "measured success with its interval; the dashed line is an attack that learns nothing."
    )
    low, high = report["measured"]["interval"]
    mark = report["baseline"], report["measured"]["success"], low, high
    drawing = risk_figures.success({"any attack": report["success_by_baseline"]}, mark)
    kind = "Reconstruction" if report["column"] is None else "Attribute inference"
    return render(
        Document(
            title=f"{kind} on {report['name']}",
            kind=kind,
            heading=report["name"],
            first=FirstScreen(
                answer=answer(report),
                alarming=bool(report["alarms"]),
                table=table(report),
                checks=_shown_checks(report),
                steps=_steps(report),
                sign_off=first_screen.sign_off(
                    data=f"{report['data']}, {report['records']} records",
                    date=first_screen.today(),
                    limits="One target, one set of candidates; other candidates are easier or "
                    "harder to tell apart.",
                ),
            ),
            blocks=[
                Figure("success", drawing, "Success of any attack.", caption),
                Heading("How it was measured"),
                Prose(NOTE),
                Prose(f"Prediction: {report['prediction']['method']}."),
                Heading("Settings"),
                shown.Listing([(key.replace("_", " "), plain(report[key])) for key in SETTINGS]),
            ],
        )
    )


SETTINGS = (
    *("candidates", "column", "prior", "trials", "rounds", "sampling_rate", "noise_multiplier"),
    *("trust", "vantage", "clients", "seed", "seconds"),
)


def _steps(report: Report) -> list[shown.Words]:
    if report["alarms"]:
        return ["Do not rely on the stated ε; the warnings say what contradicts it."]
    baseline = f"--baseline-risk {report['baseline']:.3g}"
    return [
        "Rely on the bound, which holds for any attack and any candidates.",
        [
            "To lower it, choose the noise for a limit: ",
            shown.Code(f"fedsim choose CONFIG --max-risk {0.9 * report['bound']:.2g} {baseline}"),
        ],
    ]


def _shown_checks(report: Report) -> list[shown.Check]:
    contradictions = report["contradictions"]

    def settled(name: str, text: str, failed: str) -> shown.Check:
        return first_screen.settled(name not in contradictions, text, failed)

    below = report["measured"]["interval"][1] <= report["bound"]
    return [
        settled(
            "success", "The success is not above its bound.", "The success is above its bound."
        ),
        settled(
            "posterior",
            "The adversary's posterior agrees with the true candidates.",
            "The adversary's posterior does not agree with the true candidates.",
        ),
        shown.Check(PASSED, "The interval of the success lies below the bound.")
        if below
        else shown.Check(
            FAILED if "success" in contradictions else OPEN,
            "The interval of the success reaches above the bound.",
        ),
    ]
