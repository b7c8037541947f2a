"""The words of a verdict, for pages and terminals alike: a state, four lines, the own limits."""

import math
from dataclasses import dataclass

from fedsim.audits.results.report import Report
from fedsim.audits.results.verdicts import (
    NO_GUARANTEE,
    NO_LIMIT,
    NO_PROTECTION,
    AllowedThere,
    OwnLimit,
    StateWords,
    VantageVerdict,
    words_of,
)
from fedsim.report.document.blocks import Mark
from fedsim.report.document.first_screen import share
from fedsim.report.document.wording import DASH, number, percent, plain, span, would_have_noticed
from fedsim.report.sections.section import (
    clients_of,
    is_clipped,
    score_caution,
)

NAMES = {"server": "server", "participant": "participant", "released-model": "released model"}
WHO = {
    "server": "the operator of the server",
    "participant": "a participant",
    "released-model": "someone who sees only the released model",
}
NO_LIMIT_OF_THEORY = "theory sets no limit"
NOT_MEASURED = "(not measured)"
NOT_ATTACKED = "not attacked"
WITH_A_CONDITION = (
    "“With a condition” means: for the attacked target alone, except in rare trainings, or once "
    "aggregation is secure. Trials may decide about this target alone; for a belief, they can only "
    "show that the limit is exceeded."
)
MEASURES_ALL = 'audit.vantages = "all"'

NEARLY = 0.01
"""Relative distance from the limit that trials cannot resolve."""

GAUSSIAN = "if the noise is Gaussian"
CONDITIONS = {
    "gaussian": GAUSSIAN,
    "mu_gdp": GAUSSIAN,
    "one_run": GAUSSIAN,
    "trade_off": "if the noise differs from the claim only in its amount",
}
"""Condition under which a lower bound on epsilon holds, for estimators that need more than
independent trials. Both leading bounds from canaries need Gaussian noise."""


@dataclass(frozen=True)
class Said:
    """A number, with the interval, limit or reason that belongs to it."""

    headline: str
    detail: str

    def __str__(self) -> str:
        return f"{self.headline} {self.detail}"


@dataclass(frozen=True)
class Lines:
    advantage: Said
    belief: Said
    epsilon: Said
    reading: str


def mark(report: Report, verdict: VantageVerdict) -> Mark:
    """Return the state of a vantage in a few words; good is only what lies below its limit."""
    words = state_words(report, verdict)
    return Mark(words.kind, words.text)


def state_words(report: Report, verdict: VantageVerdict) -> StateWords:
    measured, limit = verdict.measured, verdict.allowed.advantage
    interval = None if measured is None else measured.interval
    return words_of(
        verdict.state,
        interval=interval,
        over=interval is not None and interval[0] > limit,
        measured=measured is not None,
        unlimited=_unlimited(report, verdict),
    )


def lines(report: Report, verdict: VantageVerdict) -> Lines:
    return Lines(
        advantage=_advantage(verdict),
        belief=_belief(verdict),
        epsilon=_epsilon(verdict),
        reading=" ".join(
            part
            for part in (
                _reading(report, verdict) + _seen(report, verdict) + _of_score(report, verdict),
                _power(report, verdict),
            )
            if part
        ),
    )


def own_limit(report: Report, verdict: VantageVerdict, limit: OwnLimit) -> Mark:
    """Return the answer to a limit of the organisation's own in a few words.

    Good is only what theory promises everybody, in every training: never a limit of the belief.
    """
    if limit.answer == "misses":
        return Mark("alarm", "Misses")
    if limit.answer == "cannot-tell":
        return Mark("open", "Cannot tell")
    rounding = report.mechanism.rounding
    simulated = rounding is not None and rounding.secure_aggregation == "simulated"
    conditional = (
        limit.of == "belief"
        or limit.by == "measured"
        or report.mechanism.sensitivity == "local"
        or (simulated and verdict.vantage == "server")
    )
    return Mark("open", "Meets, with a condition") if conditional else Mark("good", "Meets")


def own_limit_allowed(verdict: VantageVerdict, limit: OwnLimit) -> str:
    """Return what theory allows of the limited quantity, for the worst-off client."""
    allowed = verdict.allowed
    if limit.of == "advantage":
        if allowed.kind == "none":
            return NO_LIMIT_OF_THEORY
        return f"at most {number(max(allowed.advantage, allowed.worst.rho_alpha))}"
    most = f"at most {percent(max(allowed.rho_beta, allowed.worst.rho_beta))}"
    return f"{most}, {_rarely(allowed)}" if math.isfinite(allowed.epsilon) else NO_LIMIT_OF_THEORY


def own_limit_measured(verdict: VantageVerdict, limit: OwnLimit) -> str:
    """Return what was measured of the limited quantity, and how many trials may decide."""
    shown = _limited(verdict, limit)
    return shown if limit.trials is None else f"{shown}; {limit.trials} trials may decide"


def _limited(verdict: VantageVerdict, limit: OwnLimit) -> str:
    measured = verdict.measured
    if measured is None:
        return "not measured"
    if limit.of == "belief":
        odds = math.log(limit.limit) - math.log1p(-limit.limit)
        return (
            f"above it in {percent(measured.passed_limit)} of trials with the record; ε is at "
            f"least {number(measured.epsilon)}{condition(measured.epsilon_by)}, and the limit "
            f"stands for ε = {number(odds)}"
        )
    if measured.interval is None:
        return "no interval"
    return f"{number(measured.advantage)} ({span(measured.interval, number)})"


def holds_for(report: Report) -> str:
    if not is_clipped(report):
        return "Without clipping, theory sets no limit."
    if report.mechanism.sensitivity == "local":
        return "The noise was scaled to this target: the limits hold for this target alone."
    worse = [
        f"{NAMES[each.vantage]} {number(each.allowed.worst.rho_alpha)}"
        for each in report.verdicts
        if each.allowed.worst.rho_alpha > each.allowed.rho_alpha
    ]
    if worse:
        return (
            "The limits of theory are for the target's client. For the client that takes part in "
            f"most rounds, the advantage may be larger: {', '.join(worse)}."
        )
    return "The limits of theory hold for every record, also those that were not attacked."


def condition(estimator: str) -> str:
    """Return the condition under which a lower bound on epsilon holds, as the end of a sentence."""
    words = CONDITIONS.get(estimator, "")
    return f", {words}" if words else ""


def how_to_measure(report: Report, vantage: str) -> str:
    """Return how to measure a vantage, or why fedsim does not, as a sentence."""
    for part in report.vantages[vantage].note.split("; "):
        if part.startswith(NOT_ATTACKED):
            return f"It was {part}."
    if report.one_run is not None:
        return "A run with canaries does not measure it."
    return f"To measure it, set {MEASURES_ALL}."


def _rarely(allowed: AllowedThere) -> str:
    return f"except in up to {percent(allowed.passed)} of trainings with the record"


def _advantage(verdict: VantageVerdict) -> Said:
    measured, allowed = verdict.measured, verdict.allowed
    name = {"rho-alpha": "limit ρα"}.get(allowed.kind, "")
    limit = f"{name} {number(allowed.advantage)}" if name else NO_LIMIT_OF_THEORY
    if measured is None:
        return Said(_allowed(number(allowed.advantage), bool(name)), NOT_MEASURED)
    if measured.advantage is None:
        return Said(DASH, f"of one training; {limit}")
    between = f"({span(measured.interval, number)}); " if measured.interval else ""
    reached = f"a coin: −{number(measured.chance)} to {number(measured.chance)}"
    return Said(number(measured.advantage), f"{between}{limit}; {reached}")


def _belief(verdict: VantageVerdict) -> Said:
    measured, allowed = verdict.measured, verdict.allowed
    limited = math.isfinite(allowed.epsilon)
    if measured is None:
        rarely = _rarely(allowed) if limited else ""
        return Said(_allowed(percent(allowed.rho_beta), limited), rarely)
    highest, limit = "in the highest trial", f"limit ρβ {percent(allowed.rho_beta)}"
    bounded = measured.exact_posterior and allowed.passed < 1
    if not limited:
        return Said(percent(measured.belief), f"{highest}; {NO_LIMIT_OF_THEORY}")
    if measured.passed is None:
        rarely = f", {_rarely(allowed)}" if bounded else ""
        return Said(percent(measured.belief), f"{highest}; {limit}{rarely}")
    most = f"; theory allows up to {percent(allowed.passed)}" if bounded else ""
    between = f" ({span(measured.passed_interval, percent)})" if measured.passed_interval else ""
    above = f"Above the limit: {percent(measured.passed)}{between} of the trials with the record"
    return Said(percent(measured.belief), f"{highest}; {limit}. {above}{most}")


def _epsilon(verdict: VantageVerdict) -> Said:
    measured, allowed = verdict.measured, verdict.allowed
    at_delta = f"at δ = {plain(allowed.delta)}"
    limited = math.isfinite(allowed.epsilon)
    if measured is None:
        return Said(_allowed(number(allowed.epsilon), limited), at_delta * limited)
    at_most = f"theory: at most {number(allowed.epsilon)} {at_delta}"
    theory = at_most if limited else NO_LIMIT_OF_THEORY
    if not measured.epsilon:
        return Said("no lower bound", f"from the trials; {theory}")
    canaries = " with canaries of one training" * (measured.epsilon_by == "one_run")
    how = f"by measurement{canaries}{condition(measured.epsilon_by)}"
    return Said(f"at least {number(measured.epsilon)}", f"{how}; {theory}")


def _allowed(value: str, limited: bool) -> str:
    return f"theory allows at most {value}" if limited else NO_LIMIT_OF_THEORY


def _unlimited(report: Report, verdict: VantageVerdict) -> StateWords:
    if not is_clipped(report):
        return NO_GUARANTEE
    return NO_LIMIT if math.isfinite(verdict.allowed.epsilon) else NO_PROTECTION


def _reading(report: Report, verdict: VantageVerdict) -> str:
    if verdict.state == "above":
        return (
            "The adversary learns more than theory allows. The warnings say what was measured. Do "
            "not rely on the stated ε before the cause is known."
        )
    if verdict.state == "no-limit":
        return _of_no_limit(report, verdict)
    if verdict.state == "untested":
        return _of_theory(report, verdict)
    return _of_interval(report, verdict)


def _of_no_limit(report: Report, verdict: VantageVerdict) -> str:
    who, limit = WHO[verdict.vantage], verdict.allowed.advantage
    if limit < 1 and math.isinf(verdict.allowed.epsilon):
        why = "No noise hides" if is_clipped(report) else "Without clipping, no noise surely hides"
        return (
            f"{why} {clients_of(report)} from {who} in a round that samples it. Only sampling "
            f"limits this adversary: it is right in at most {percent(share(limit))} of cases."
        )
    if not is_clipped(report):
        return "Gradients are not clipped, so theory sets no limit."
    if math.isfinite(verdict.allowed.epsilon):
        return "The budget is so large that theory allows certainty."
    return (
        f"No noise hides {clients_of(report)} from {who}, who can always tell whether it was used. "
        "Participants have to trust the operator."
    )


def _of_theory(report: Report, verdict: VantageVerdict) -> str:
    if verdict.measured is not None:
        return (
            "The limits come from theory alone: one training has no success rate."
            if report.trials == 1
            else "The limits come from theory alone: trainings on D alone have no success rate."
        )
    less = verdict.vantage == "released-model"
    bound = " This adversary sees less than a participant, so it can achieve no more." * less
    how = how_to_measure(report, verdict.vantage)
    return f"These limits come from theory alone. {holds_for(report)}{bound} {how}"


def _of_interval(report: Report, verdict: VantageVerdict) -> str:
    measured = verdict.measured
    if measured is None or measured.interval is None:
        raise ValueError(f"the state {verdict.state} has an interval")
    low, high = measured.interval
    coin = low <= 0 <= high
    if verdict.state == "attack-below":
        return (
            "This attack stays below the limit. It does not use the exact posterior, so a better "
            "attack may achieve more."
        )
    if verdict.state == "below":
        words = "is not shown to be better than guessing" if coin else "is better than guessing"
        return (
            f"The adversary {words}, and stays below the limit. The measurement is of this target "
            f"alone. {holds_for(report)}"
        )
    if verdict.state == "within-chance":
        return (
            "The measurement is above the limit, but chance alone can explain it. Repeat the run "
            "with more trials."
        )
    if coin:
        return "The trials cannot tell: the interval contains both guessing and the limit."
    return (
        "The adversary is better than guessing. The interval contains the limit, so the trials "
        "neither contradict theory nor prove that the adversary stays below the limit."
    )


def _seen(report: Report, verdict: VantageVerdict) -> str:
    if verdict.vantage != "server" or verdict.state == "no-limit":
        return ""
    (note,) = (row.note for row in report.bounds.vantages if row.vantage == verdict.vantage)
    return f" The server {note}." if note.startswith("sees") else f" {note[:1].upper()}{note[1:]}."


def _power(report: Report, verdict: VantageVerdict) -> str:
    if verdict.state == "above":
        return ""
    return noticed(report, verdict)


def noticed(report: Report, verdict: VantageVerdict) -> str:
    """Return how much missing noise the trials at a vantage detect.

    Residuals, where there are any, measure the noise at the audited vantage point; elsewhere an
    attack counts decisions.
    """
    configured = verdict.vantage == report.vantage
    measures = configured and report.residuals is not None
    what = "audit" if configured else "attack"
    return would_have_noticed(verdict.seen_below, what, measures_noise=measures)


def reaches_limit(report: Report, verdict: VantageVerdict) -> bool:
    """Return whether theory predicts that this adversary is as good as the limit allows.

    No realistic number of trials can then show that it stays below.
    """
    predicted = report.vantages[verdict.vantage].prediction
    advantage = None if predicted is None else predicted.advantage
    limit = verdict.allowed.advantage
    return limit < 1 and advantage is not None and advantage >= (1 - NEARLY) * limit


def _of_score(report: Report, verdict: VantageVerdict) -> str:
    if verdict.measured is None or verdict.measured.exact_posterior:
        return ""
    if verdict.vantage == report.vantage:
        return score_caution(report)
    return " Here the belief is the score of an attack; ρβ does not limit such a score."
