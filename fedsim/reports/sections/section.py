"""Facts about a run, and every observer in numbers and in words, for the sections of its page."""

import math
from dataclasses import replace

from adversaries.attacks.membership_attacks import ATTACKS as LOSS_ATTACKS
from adversaries.registry import titled
from fedsim.audits.results.rows import Row
from fedsim.audits.run import empirical
from fedsim.audits.run.guarantee import PLAYED
from fedsim.audits.run.report import RunReport
from fedsim.learning.training.criterion import AUC, BALANCED, judge
from fedsim.reports.document import worth
from fedsim.reports.document.blocks import Mark
from fedsim.reports.document.first_screen import share
from fedsim.reports.document.wording import (
    DASH,
    counted,
    number,
    percent,
    plain,
    span,
    would_have_noticed,
)
from fedsim.reports.sections.every_audit import epsilon, named, state_words

TITLES = {
    "clopper_pearson": "Clopper–Pearson",
    "clopper_pearson_split": "Clopper–Pearson, split trials",
    "mu_gdp": "μ of Gaussian privacy",
    "gaussian": "Gaussian",
    "trade_off": "Sampled trade-off curve",
}


def is_client(report: RunReport) -> bool:
    return report.unit == "client"


def is_clipped(report: RunReport) -> bool:
    return report.details.mechanism.clipping


def is_sampled(report: RunReport) -> bool:
    """Return whether a record joins a round only with a probability below 1."""
    return report.details.mechanism.sampling_rate < 1


def takes_local_steps(report: RunReport) -> bool:
    return report.details.mechanism.local_steps > 1


def challenge_of(report: RunReport) -> str:
    """Return the target in words, such as "the target record"."""
    challenge = report.details.challenge
    if is_client(report):
        return f"all {challenge.records} records of client {challenge.client}"
    what = "gradient" if challenge.kind == "gradient" else "record"
    if challenge.records == 1:
        return f"the target {what}"
    return f"{challenge.records} target {what}s"


def clients_of(report: RunReport) -> str:
    return "a client's data" if is_client(report) else "the record"


def trials_of(report: RunReport) -> str:
    return counted(report.details.trials, "trial")


def confidence_of(report: RunReport) -> str:
    """Return the confidence of every interval as the start of a phrase, such as "95% "."""
    return f"{100 * report.confidence:g}% "


def is_scored(report: RunReport) -> bool:
    """Return whether log-odds are the score of an attack that counts draws, of unknown law."""
    return report.details.prediction.method == "none"


SCORED = "the belief is the score of an attack; ρβ does not limit such a score."


def score_caution(report: RunReport) -> str:
    if report.vantage == "released-model":
        return f" For the released model, {SCORED}"
    if takes_local_steps(report):
        return f" With local steps, {SCORED}"
    if is_scored(report):
        return f" {SCORED[:1].upper()}{SCORED[1:]}"
    return ""


def released(report: RunReport) -> str:
    total = report.details.released
    if total is None or not report.details.mechanism.dp_guarantee:
        return ""
    of = "the one training"
    if total.trainings > 1:
        of = f"all {total.trainings} trainings together"
    return (
        f"DP guarantee for everything released, by {of}: ε = {number(total.epsilon)} "
        f"at δ = {plain(total.delta)} towards the {total.vantage.replace('-', ' ')}. {PLAYED}"
    )


def worths_in_full(report: RunReport) -> str:
    """Return the criterion before and after the training, and whether the model has learnt."""
    utility, measured = report.details.utility, report.details.utility.measured
    if not utility.accuracy.mean:
        return DASH
    judged = judge(measured)
    worths = worth.as_text(judged.name, judged.value)
    if judged.name not in (AUC, BALANCED):
        first, loss = utility.accuracy.mean[0], utility.loss.mean[0]
        before = judge(replace(measured, accuracy=first, loss=loss)).value
        worths = f"{worth.as_text(judged.name, before)} → {worths}"
    beside = worth.beside(measured)
    warning = " ".join(worth.unless_learnt(measured, loss_before=utility.loss.mean[0]))
    return f"{worth.leading(judged.name)} {worths} ({beside}). {warning}".strip()


def model_in_short(report: RunReport) -> str:
    """Return the criterion beside a constant answer, and whether the model has learnt."""
    measured = report.details.utility.measured
    judged = judge(measured)
    texts = [f"{judged.name} {worth.as_text(judged.name, judged.value)}"]
    if measured.area_under_curve is not None and judged.name != AUC:
        texts.append(f"AUC {measured.area_under_curve:.3f}")
    learnt = "" if judged.has_learnt else "; it is not shown to have learnt anything"
    return f"{', '.join(texts)} ({worth.baseline(judged)}){learnt}"


def beside_theory(report: RunReport, name: str) -> Mark:
    """Return how a lower bound on epsilon stands to the limit; `name`: of bound and alarm."""
    if any(each.breaks and each.rule == name for each in report.findings):
        return Mark("alarm", "Above theory")
    if report.details.empirical.lower_bounds[name].epsilon > report.row.allowed.epsilon:
        return Mark("caution", "Above theory, within chance")
    return Mark("good", "Consistent")


def attack_name(name: str, client: bool) -> str:
    """Return the name of an attack by losses, and what it decides about."""
    if name == empirical.POPULATION:
        return "Yeom: members are the records with at most the mean loss"
    if name == empirical.CHALLENGE and client:
        return "Yeom on the target client: by the mean loss of its records"
    if name == empirical.CHALLENGE:
        return "Yeom on the target record alone"
    if attack := LOSS_ATTACKS.get(name):
        return f"{attack.title}, on the target"
    own = titled(name).rpartition(":")[2].replace("_", " ")
    return f"{own}, an attack of your own, on the target"


# Every observer

WHO = {
    "server": "the operator of the server",
    "participant": "a participant",
    "released-model": "someone who sees only the released model",
}
GAUSSIAN = "if the noise is Gaussian"
CONDITIONS = {
    "gaussian": GAUSSIAN,
    "mu_gdp": GAUSSIAN,
    "one_run": GAUSSIAN,
    "trade_off": "if the noise differs from the claim only in its amount",
}
"""Condition under which a lower bound on epsilon holds, for estimators that need more than
independent trials. Both leading bounds from canaries need Gaussian noise."""


def numbers(row: Row) -> dict[str, tuple[str, str]]:
    """Return the numbers of an observer by their headings, each with a remark or ""."""
    limit, attack = row.allowed, row.attack
    limited = math.isfinite(limit.epsilon)
    exceeded = f"passed in up to {percent(limit.exceeded)}" if limit.exceeded < 1 else ""
    advantage = belief = proven = (DASH, "")
    if attack is not None:
        advantage = number(attack.advantage), span(attack.interval, number)
        passed = ""
        if attack.delta_prime is not None and limited:
            passed = f"above ρβ: {percent(attack.delta_prime)}"
            passed += f" ({span(attack.delta_prime_interval, percent)})"
        belief = percent(attack.belief), passed
        if attack.epsilon_at_least:
            proven = number(attack.epsilon_at_least), CONDITIONS.get(attack.estimator, "")
    predicted = None if row.predicted is None else row.predicted.advantage
    return {
        "Advantage": advantage,
        "limit ρα": ("no limit" if limit.rho_alpha >= 1 else number(limit.rho_alpha), ""),
        "predicted": (number(predicted), ""),
        "Highest belief": belief,
        "limit ρβ": (percent(limit.rho_beta), exceeded) if limited else ("no limit", ""),
        "ε at least": proven,
        "ε at most": (epsilon(row), f"z = {number(limit.noise_multiplier)}"),
    }


MEASURED = ("Advantage", "Highest belief", "ε at least")
"""The headings of `numbers` that are measured; the others are from theory."""


def condition(estimator: str) -> str:
    """Return the condition under which a lower bound on epsilon holds, as the end of a sentence."""
    words = CONDITIONS.get(estimator, "")
    return f", {words}" if words else ""


def holds_for(report: RunReport) -> str:
    if report.alarms:
        return "A measurement contradicts the limits of theory: do not rely on them."
    if not is_clipped(report):
        return "Without clipping, theory sets no limit."
    if report.details.mechanism.sensitivity == "local":
        return "The noise was scaled to this target: the limits hold for this target alone."
    return worst_off(report) or (
        "The limits of theory hold for every record, also those that were not attacked."
    )


def worst_off(report: RunReport) -> str:
    """Return what theory allows about the client in most rounds; "" where it is no more."""
    limits = {named(name): row.allowed for name, row in report.rows.items()}
    worse = [
        f"{name} {percent(share(limit.largest.rho_alpha))}, ε {number(limit.largest.epsilon)}"
        for name, limit in limits.items()
        if limit.largest.rho_alpha > limit.rho_alpha
    ]
    return f"For the client in most rounds, theory allows more: {'; '.join(worse)}." * bool(worse)


SAMPLED_ONLY = (
    "In a round that samples the target, no noise surely hides it. Sampling alone limits this "
    "adversary to {} right answers."
)


def reading(report: RunReport, row: Row) -> str:
    limit, means = row.allowed, _sentence(state_words(report, row).means)
    if limit.rho_alpha < 1 and math.isinf(limit.epsilon):
        means = SAMPLED_ONLY.format(percent(share(limit.rho_alpha)))
    sentences = [means]
    if row.observer == "server" and row.standing != "no-limit" and limit.note:
        server = limit.note.startswith("sees")
        sentences.append(f"The server {limit.note}." if server else _sentence(limit.note))
    if row.attack is not None and not row.attack.best and row.observer == report.vantage:
        sentences.append(score_caution(report).strip())
    if row.note:
        sentences.append(_sentence(row.note))
    if row.standing != "contradicted":
        sentences.append(would_have_noticed(row.detects))
    return " ".join(filter(None, sentences))


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}."
