"""The first screen of a run's report: answer, figure, table, checks, next steps and sign-off."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

from adversaries.statistics.intervals import ALARM_CONFIDENCE
from fedsim.audits.results.conditions import number_at
from fedsim.audits.results.report import Report, encode
from fedsim.audits.results.verdicts import NOT_CONTRADICTED, NOT_MEASURED, VantageVerdict
from fedsim.report.document import blocks as doc
from fedsim.report.document import first_screen, worth
from fedsim.report.document.first_screen import (
    FAILED,
    NOT_STATED,
    OPEN,
    PASSED,
    power,
    report_check,
    share,
    shares,
)
from fedsim.report.document.wording import number, percent
from fedsim.report.sections import answer, vantage_words
from fedsim.report.sections.answer import labels
from fedsim.report.sections.section import (
    challenge_of,
    clients_of,
    confidence_of,
    is_alarming,
    is_client,
    is_clipped,
    trials_of,
)
from fedsim.report.sections.target import Shown
from fedsim.report.sections.vantage_words import NAMES, WHO
from fedsim.report.sections.verdict import choose

ENOUGH = 0.95
"""Share of the claimed noise below which an audit is so precise that more trials add little."""

HEADINGS = "Observer", "Right answers, at most", "Belief, at most"


@dataclass(frozen=True)
class About:
    """Facts about a run that its report does not hold.

    Attributes:
        purpose: as configured; "" where none is stated.
        author: as configured; "" where none is stated.
        data_sha256: of D, where the data are public; "" otherwise.
        target: the target's record, where the data are public; None otherwise.
    """

    purpose: str = ""
    author: str = ""
    data_sha256: str = ""
    target: Shown | None = None


def first(report: Report, about: About) -> doc.FirstScreen:
    answers: list[str | doc.Mark] = []
    for name, mark in states(report):
        answers += [f"{name.capitalize()}: ", mark, " "]
    titles = " ".join(label.title for label in labels(report))
    own = [each.limit for each in report.verdicts[0].limits if each.of == "advantage"]
    guarantee = "" if report.mechanism.dp_guarantee else f" {_no_guarantee(report)}"
    version = "their version is not stated, because a digest could disclose a private record"
    if about.data_sha256:
        version = f"their version: SHA-256 {about.data_sha256[:16]}…"
    return doc.FirstScreen(
        answer=[answers, answer.verdict(report), *([titles] if titles else [])],
        alarming=is_alarming(report),
        figure=doc.Bars(
            [
                bar(NAMES[each.vantage].capitalize(), report, each, share(each.allowed.advantage))
                for each in report.verdicts
            ],
            f"How often the adversary is right about {challenge_of(report)} "
            f"({confidence_of(report)}intervals).",
            share(own[0]) if own else None,
        ),
        table=doc.Table(
            (*HEADINGS, f"ε, at most (δ = {report.bounds.delta:.3g})"),
            [doc.Group("", [_line(report, each) for each in report.verdicts])],
        ),
        checks=[*checks(report), *_own_limits(report)],
        steps=_steps(report),
        sign_off=first_screen.sign_off(
            purpose=about.purpose or f"{NOT_STATED} (run.purpose)",
            data=f"{report.data.name}, {report.data.records} records; {version}",
            author=about.author or f"{NOT_STATED} (run.author)",
            date=report.created[:10],
            limits=(
                f"One target was attacked, in {trials_of(report)}. Others may be easier or harder "
                "to identify. "
                f"{vantage_words.holds_for(report)}{guarantee}"
            ),
        ),
    )


def states(report: Report) -> list[tuple[str, doc.Mark]]:
    return [
        (NAMES[verdict.vantage], vantage_words.mark(report, verdict)) for verdict in report.verdicts
    ]


def bar(
    name: str, report: Report, verdict: VantageVerdict, limit: float | None, remark: str = ""
) -> doc.Bar:
    measured = verdict.measured
    return doc.Bar(
        name,
        vantage_words.mark(report, verdict),
        None if measured is None or measured.advantage is None else share(measured.advantage),
        shares(None if measured is None else measured.interval),
        limit,
        remark,
    )


def _line(report: Report, verdict: VantageVerdict) -> doc.Line:
    allowed = verdict.allowed
    finite = allowed.passed < 1
    rarely = f"except in up to {percent(allowed.passed)} of trainings" if finite else ""
    return doc.Line(
        doc.Cell(NAMES[verdict.vantage], "audited here" * (verdict.vantage == report.vantage)),
        [
            doc.Cell("no limit" if allowed.kind == "none" else percent(share(allowed.advantage))),
            doc.Cell(percent(allowed.rho_beta) if finite else "no limit", rarely),
            doc.Cell(number(allowed.epsilon)),
        ],
    )


def checks(report: Report) -> list[doc.Check]:
    values, place = (
        encode(report),
        [verdict.vantage for verdict in report.verdicts].index(report.vantage),
    )
    limit, one = report.bounds.rho_alpha, 1.001 * report.bounds.tight_epsilon
    checked = [
        report_check(
            f"No measurement contradicts theory (at {ALARM_CONFIDENCE:.2%} confidence).",
            "alarms > 0",
            values,
            failed=f"A measurement contradicts theory (at {ALARM_CONFIDENCE:.2%} confidence).",
        ),
        power(values, f"verdicts.{place}.seen_below"),
    ]
    hidden = [_hidden(report, values, at, each) for at, each in enumerate(report.verdicts)]
    # The first is the worst: where it passes, all do.
    checked += [each for each in hidden if each.mark is not PASSED] or hidden[:1]
    if report.bounds.rho_alpha < 1:
        text = "The measured advantage lies below the limit of theory."
        unknown = "The trials do not show that the adversary stays below the limit of theory."
        allowed = number(report.bounds.rho_alpha)
        if (high := number_at(values, "advantage.high")) is not None:
            unknown = (
                f"The interval reaches {percent(share(high))} right answers (advantage "
                f"{number(high)}), above the limit of {percent(share(report.bounds.rho_alpha))} "
                f"({allowed})."
            )
        if vantage_words.reaches_limit(report, report.verdicts[place]):
            unknown += (
                " Theory predicts that this adversary reaches the limit, so more trials will not "
                "show whether it stays below."
            )
        shuts = f"advantage.high > {limit}"
        checked.append(report_check(text, shuts, values, fails="", unknown=unknown))
    if report.bounds.tight_epsilon < float("inf"):
        text = "Everything that was released has no more ε than one training."
        failed = (
            f"If all {report.released.trainings} models are released, ε is "
            f"{number(report.released.epsilon)} in total, instead of "
            f"{number(report.bounds.tight_epsilon)} for one."
            if report.released is not None
            else ""
        )
        unknown = (
            "This run itself guarantees no ε, because anyone who knows its seed can remove the "
            "noise. The ε above is for one training with secret noise."
            if report.noise_source == "seed"
            else "The total ε of everything that was released is not known."
        )
        shuts = f"released.epsilon > {one}"
        checked.append(report_check(text, shuts, values, failed=failed, unknown=unknown))
    return [*checked, worth.check(report.utility.measured)]


def _hidden(
    report: Report, values: Mapping[str, object], place: int, verdict: VantageVerdict
) -> doc.Check:
    """Return the check that noise limits how often an observer is right."""
    who, allowed = WHO[verdict.vantage], verdict.allowed
    text = f"By theory, noise limits how often {who} is right."
    shuts, failed = f"verdicts.{place}.allowed.advantage >= 1", f"Theory sets no limit for {who}"
    if allowed.advantage < 1 and math.isinf(allowed.epsilon):
        shuts = f"verdicts.{place}.allowed.epsilon > 1e300"
        failed = f"No noise surely hides {clients_of(report)} from {who}; only sampling does"
    elif is_clipped(report):
        was = "were" if is_client(report) else "was"
        failed += f", who can always tell whether {clients_of(report)} {was} used"
    return report_check(text, shuts, values, failed=f"{failed}.")


KINDS = {"good": PASSED, "alarm": FAILED, "open": OPEN}
ALLOWED = {"advantage": "advantage", "belief": "rho_beta"}


def _own_limits(report: Report) -> list[doc.Check]:
    limits = []
    for place, verdict in enumerate(report.verdicts):
        for limit in verdict.limits:
            mark = vantage_words.own_limit(report, verdict, limit)
            text = (
                f"Own limit for the {NAMES[verdict.vantage]}, {limit.of} at most "
                f"{number(limit.limit)}: {mark.text[:1].lower()}{mark.text[1:]}."
            )
            condition = f"verdicts.{place}.allowed.{ALLOWED[limit.of]} > {limit.limit:.12g}"
            limits.append(doc.Check(KINDS[mark.kind], text, condition))
    return limits


def _steps(report: Report) -> list[doc.Words]:
    kinds: dict[str, list[str]] = {}
    for verdict in report.verdicts:
        words = vantage_words.state_words(report, verdict)
        advice = f"{words.advice}."
        if words is NOT_CONTRADICTED and verdict.seen_below is not None:
            advice = (
                "more trials would hardly improve the check of the noise. "
                if verdict.seen_below >= ENOUGH
                else "more trials detect smaller losses of noise. "
            ) + vantage_words.noticed(report, verdict)
        if words is NOT_MEASURED:
            how = vantage_words.how_to_measure(report, verdict.vantage)
            advice = f"{how[:1].lower()}{how[1:]}"
        kinds.setdefault(advice, []).append(NAMES[verdict.vantage])
    steps: list[doc.Words] = [
        f"{' and '.join(names).capitalize()}: {advice}" for advice, names in kinds.items()
    ]
    if report.released is not None and report.released.epsilon > report.bounds.tight_epsilon:
        steps.append("Do not release the models of all trials: together they cost more than one.")
    if command := choose(report):
        finds = "Do you want lower limits? This command finds the least noise that meets a limit, "
        steps.append([finds, "and the accuracy that remains: ", doc.Code(command)])
    return steps


def _no_guarantee(report: Report) -> str:
    if report.noise_source == "seed" and report.mechanism.sensitivity == "global":
        return (
            "This run itself protects no one: anyone who knows its seed can remove the noise. A "
            "training with the same settings has these limits if its noise is secret, drawn by the "
            "operating system."
        )
    return "This run gives no DP guarantee."
