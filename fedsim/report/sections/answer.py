"""The answer of a report: how often the adversary was right, how sure it was, what that proves."""

import math

from scipy.special import expit

from adversaries.statistics.intervals import clopper_pearson
from fedsim.audits.results.numbers import Ends
from fedsim.audits.results.report import Report
from fedsim.audits.results.verdicts import VAGUE
from fedsim.audits.run.guarantee import ONE_TRAINING
from fedsim.report.document.blocks import Label
from fedsim.report.document.wording import number, percent, plain
from fedsim.report.sections import attacks
from fedsim.report.sections.section import (
    challenge_of,
    confidence_of,
    is_alarming,
    is_client,
    is_clipped,
    is_sampled,
    success,
    success_ends,
    trials_of,
)
from fedsim.report.sections.theory import released
from fedsim.report.sections.vantage_words import NAMES, condition

EXPERIMENT = "Experiment, not a DP guarantee: anyone who knows its seed can remove the noise."


def labels(report: Report) -> list[Label]:
    cautions = [
        Label(title, text) for applies, title, text in _possible_cautions(report) if applies
    ]
    if not cautions and not report.mechanism.dp_guarantee:
        cautions.append(Label("Not a DP guarantee.", report.mechanism.dp_note))
    if report.job == "rehearsal" and report.noise_source == "seed":
        others = (each for each in cautions if each.title != EXPERIMENT)
        cautions = [_rehearsal(report), *others]
    released = report.released
    if released is not None and released.trainings > 1:
        cost = f"ε = {number(released.epsilon)}"
        cautions.insert(
            0,
            Label(
                f"An experiment of {released.trainings} trainings on these people, not one "
                f"release: together they cost {cost}.",
                f"{released.trainings} trained models were released, each with its own noise: the "
                f"mean of all of them has much less noise. Together they cost {cost} at "
                f"δ = {plain(released.delta)}. Every other ε on this page is for one training.",
            ),
        )
    return cautions


def _rehearsal(report: Report) -> Label:
    """Return what stands in place of the caution that the noise is the seed's."""
    bounds, mechanism = report.bounds, report.mechanism
    gradients = "gradients that are not clipped"
    if is_clipped(report):
        gradients = f"gradients clipped to {plain(mechanism.clipping_norm)}"
    return Label(
        f"Rehearsal of the training '{report.name}': not a DP guarantee for these records.",
        f"It stands for fedsim train with the same file: the same {report.rounds} rounds, "
        f"{gradients}, noise multiplier "
        f"{number(mechanism.noise_multiplier)}, ε = {number(bounds.epsilon)} at δ = "
        f"{plain(bounds.delta)} towards the {NAMES[report.vantage]}. Here the noise comes from "
        f"seed {report.seed}: anyone who knows the seed can remove it.",
    )


def _possible_cautions(report: Report) -> list[tuple[bool, str, str]]:
    rounding = report.mechanism.rounding
    return [
        (
            not is_clipped(report),
            "Gradients are not clipped: no DP guarantee.",
            "Nothing bounds what one record can change, so no amount of noise gives a guarantee. "
            "The measurements still show what the adversary achieved.",
        ),
        (
            report.mechanism.sensitivity == "local",
            "Measurement, not a DP guarantee.",
            f"The noise was scaled to the local sensitivity of {challenge_of(report)}, which "
            "depends on the data. Such a run measures how tight the theory is.",
        ),
        (
            report.noise_source == "seed",
            EXPERIMENT,
            f"The noise comes from seed {report.seed}. Anyone who knows the seed can remove the "
            "noise. Use this run for measuring, not for protecting people.",
        ),
        (
            report.audit_mode == "oracle",
            "Oracle audit, not a DP guarantee.",
            "The auditor computed the beliefs from the noise, which the clients disclosed. The "
            "numbers equal the adversary's own and cost less to compute, but this federation "
            "protects no one.",
        ),
        (
            rounding is not None and rounding.secure_aggregation == "simulated",
            "Simulated secure aggregation, not a DP guarantee.",
            "The server saw every message, each with one client's share of the noise. The limits "
            "for the server assume that secure aggregation hides the single messages.",
        ),
        (
            report.bayesian is not None,
            "Gradient distances were released: not a DP guarantee.",
            "For the Bayesian accountant, the clients disclosed norms or distances of their "
            "records' gradients without noise.",
        ),
    ]


PLACE = {
    "participant": "It took part in the federation",
    "server": "It ran the server of the federation",
    "released-model": "It saw only the released model",
}
INFORMED = ("participant", "oracle")
"""The values of `audit.mode` whose adversaries know all that the bounds assume."""


def verdict(report: Report) -> str:
    if report.empirical.advantage is None:
        bounds, tail = report.bounds, ""
        was = "were" if is_client(report) or report.challenge.records != 1 else "was"
        if math.isfinite(bounds.epsilon):
            tail = f", except in up to {percent(bounds.tail_limit)} of trainings with the record"
        sentences = [
            ONE_TRAINING,
            released(report),
            "The adversary reached a belief of "
            f"{percent(float(expit(report.empirical.epsilon.belief)))} that "
            f"{challenge_of(report)} {was} used. The noise allows at most "
            f"{percent(bounds.rho_beta)}{tail}.",
        ]
        return " ".join(filter(None, sentences)) + _canaries_prove(report)
    limit = report.bounds.rho_alpha
    question = _secret(report)
    if limit >= 1:
        allowed = "Theory sets no limit below 100%: the adversary can always be right."
    else:
        allowed = f"Theory allows at most {percent((1 + limit) / 2)}."
        allowed += _by_chance(report, (1 + limit) / 2)
    return (
        f"{_too_few(report)}An adversary tried to tell {question}. {_knew(report)} It "
        f"was right in {percent(success(report))} of {trials_of(report)}; tossing a coin is right "
        f"in 50%. {allowed}{_canaries_prove(report)}"
    )


def _by_chance(report: Report, limit: float) -> str:
    between, share = _between(report), success(report)
    if between is None or share is None or share <= limit or is_alarming(report):
        return ""
    interval = f"{percent(between[0])} to {percent(between[1])}"
    if between[0] <= limit:
        return (
            " The result is above this limit, but chance can explain it: the interval, "
            f"{interval}, contains the limit."
        )
    return (
        f" The whole interval, {interval}, lies above this limit, but an alarm needs more "
        "certainty."
    )


def _knew(report: Report) -> str:
    """Return what the adversary knew; a seat of a user's own need not have known it all."""
    if report.audit_mode not in INFORMED:
        return f"It was “{report.audit_mode}” and may have known everything else."
    return f"{PLACE[report.vantage]} and knew everything else."


def _secret(report: Report) -> str:
    replaced = report.neighbouring == "replace"
    if is_client(report):
        if replaced:
            return "which of two sets of data one client used"
        return "whether one client's data were used"
    if crafted := _crafted(report):
        opposite = report.challenge.kind == "gradient"
        other = f" or {'its opposite' if opposite else 'the original record'}"
        return f"whether {crafted}{other * replaced} was used"
    if not replaced:
        return "whether one person's record was used"
    return "which of two people's records was used"


def _crafted(report: Report) -> str:
    kind = report.challenge.kind
    if kind == "record":
        return ""
    return f"a {'gradient' if kind == 'gradient' else 'record'} that was crafted for the audit"


def _too_few(report: Report) -> str:
    between = _between(report)
    if between is None or between[1] - between[0] < VAGUE:
        return ""
    return (
        f"{trials_of(report).capitalize()} are too few to tell how often the adversary is right. "
        f"The true share of right answers lies between {percent(between[0])} and "
        f"{percent(between[1])} ({confidence_of(report)}confidence). "
    )


def _between(report: Report) -> Ends | None:
    """Return the interval of how often the adversary is right; of one world, of its trials."""
    if ends := success_ends(report):
        return ends
    wins, ties = report.empirical.wins, report.empirical.ties
    if wins is None or ties is None:
        return None
    trials, confidence = report.trials, report.empirical.confidence
    high = clopper_pearson(wins + ties, trials, confidence).high
    return clopper_pearson(wins, trials, confidence).low, high


def _canaries_prove(report: Report) -> str:
    if report.one_run is None:
        return ""
    bound, name = attacks.headline(report.one_run), attacks.headline_name(report.one_run)
    shown = "nothing"
    if bound.epsilon:
        shown = f"that ε is at least {number(bound.epsilon)}{condition('one_run')}"
    return (
        f" The canaries of one trial show {shown} ({percent(bound.confidence)} confidence, "
        f"{name}). The claim is ε = {number(report.one_run.claimed_epsilon)}."
    )


def game(report: Report) -> str:
    advantage = "Advantage is its true-positive rate minus its false-positive rate"
    knows = "knows" if report.audit_mode in INFORMED else "may know"
    return (
        f"The game: every trial trains the federation anew, on the data D with "
        f"{challenge_of(report)} or on D′, {_neighbour(report)}. The adversary "
        f"{knows} both, and the mechanism. It must tell which data were used. {advantage}. Belief "
        "is the probability that it assigns to D, by Bayes' rule."
    )


def _neighbour(report: Report) -> str:
    replaced, several = report.neighbouring == "replace", report.challenge.records != 1
    if is_client(report):
        if replaced:
            return "where the same number of other records takes their place"
        drawn = "" if is_sampled(report) else " (its participation is no secret)"
        return f"where the client has no records and its update is 0{drawn}"
    if not replaced:
        return f"the same data without {'them' if several else 'it'}"
    other = {"record": "another record", "gradient": "its opposite"}.get(
        report.challenge.kind, "the original record"
    )
    return f"the same data with {other} in {'their' if several else 'its'} place"
