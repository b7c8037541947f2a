"""Every observer of a run in numbers and in words, for its page."""

import math

from fedsim.audits.results.rows import Row
from fedsim.audits.run.report import RunReport
from fedsim.reports.document.first_screen import share
from fedsim.reports.document.wording import DASH, number, percent, span, would_have_noticed
from fedsim.reports.sections.every_audit import epsilon, named, state_words
from fedsim.reports.sections.section import is_clipped, score_caution

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
