"""Every observer of a run: its state, what theory allows it, and what was measured.

Page, terminal and comparison take their cells from `short` and `numbers`.
"""

import math

from fedsim.audits.results.report import Report
from fedsim.audits.results.rows import RunRow as Row
from fedsim.audits.results.verdicts import (
    MUST_BE_TRUSTED,
    NO_GUARANTEE,
    NO_LIMIT,
    NO_PROTECTION,
    TOO_FEW,
    StateWords,
)
from fedsim.reports.document.blocks import Mark
from fedsim.reports.document.first_screen import most, share, shares
from fedsim.reports.document.wording import DASH, number, percent, span, would_have_noticed
from fedsim.reports.sections.section import (
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
SHOWN = ("participant", "released-model", "server")
"""Order of observers on a screen, after those whose measurement contradicts theory."""

NOT_ATTACKED = "not attacked"
GAUSSIAN = "if the noise is Gaussian"
CONDITIONS = {
    "gaussian": GAUSSIAN,
    "mu_gdp": GAUSSIAN,
    "one_run": GAUSSIAN,
    "trade_off": "if the noise differs from the claim only in its amount",
}
"""Condition under which a lower bound on epsilon holds, for estimators that need more than
independent trials. Both leading bounds from canaries need Gaussian noise."""


def shown(report: Report) -> list[Row]:
    """Return the rows in the order in which a screen shows them."""
    ordered = sorted(report.rows.values(), key=lambda row: SHOWN.index(row.observer))
    return sorted(ordered, key=lambda row: row.standing != "contradicted")


def mark(report: Report, row: Row) -> Mark:
    """Return the state of an observer in a few words; good is only what lies below its limit."""
    words = state_words(report, row)
    return Mark(words.kind, words.text)


def state_words(report: Report, row: Row) -> StateWords:
    return row.words(_unlimited(report, row))


def _unlimited(report: Report, row: Row) -> StateWords:
    if not is_clipped(report):
        return NO_GUARANTEE
    if math.isfinite(row.limit.epsilon):
        return NO_LIMIT
    return MUST_BE_TRUSTED if row.observer == "server" else NO_PROTECTION


def by_sampling_alone(row: Row) -> bool:
    """Return whether an observer has a limit without noise: it may miss the target's rounds."""
    return row.limit.rho_alpha < 1 and math.isinf(row.limit.epsilon)


def right(row: Row) -> str:
    """Return the measured share of right answers with its interval, or why there is none."""
    attack = row.attack
    if attack is None:
        sees_all = row.observer == "server" and math.isinf(row.limit.epsilon)
        return "sees unprotected sums" if sees_all else "not measured"
    if attack.advantage is None:
        return "no rate (one training)"
    ends = shares(attack.interval)
    between = f" ({percent(ends[0])[:-1]} to {percent(ends[1])})" if ends else ""
    return f"{percent(share(attack.advantage))}{between}"


def right_at_most(row: Row) -> str:
    """Return the largest share of right answers that theory allows."""
    by_sampling = " (sampling)" * by_sampling_alone(row)
    return f"{most(row.limit.rho_alpha, row.limit.epsilon)}{by_sampling}"


def epsilon(row: Row) -> str:
    return number(row.limit.epsilon) if math.isfinite(row.limit.epsilon) else "none"


def short(report: Report, row: Row) -> dict[str, str]:
    """Return the cells of an observer by their headings, on a first screen and the terminal."""
    return {
        "Observer": NAMES[row.observer],
        "Right answers": right(row),
        "Limit": right_at_most(row),
        f"ε (δ = {report.bounds.delta:.3g})": epsilon(row),
    }


MEANT = "Limit: theory's bound on right answers, (1 + ρα)/2. ε: the privacy guarantee."
MEANT_OF_A_SEED = "Limit: theory's bound on right answers. ε: what secret noise would guarantee."
"""What the two columns of theory in `short` are; neither is computed from the other."""


def meant(report: Report) -> str:
    return MEANT_OF_A_SEED if report.noise_source == "seed" else MEANT


def numbers(report: Report, row: Row) -> dict[str, tuple[str, str]]:
    """Return the numbers of an observer by their headings, each with a remark or ""."""
    limit, attack = row.limit, row.attack
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


def power(report: Report, row: Row) -> str:
    """Return how much missing noise the trials at a vantage detect."""
    here = row.observer == report.vantage
    measures_noise = here and report.residuals is not None
    what = "audit" if here else "attack"
    return would_have_noticed(row.detects, what, measures_noise=measures_noise)


def holds_for(report: Report) -> str:
    if report.contradictions:
        return "A measurement contradicts the limits of theory: do not rely on them."
    if not is_clipped(report):
        return "Without clipping, theory sets no limit."
    if report.mechanism.sensitivity == "local":
        return "The noise was scaled to this target: the limits hold for this target alone."
    return worst_off(report) or (
        "The limits of theory hold for every record, also those that were not attacked."
    )


def worst_off(report: Report) -> str:
    """Return what theory allows about the client in most rounds; "" where it is no more."""
    worse = [
        f"{NAMES[row.observer]} {percent(share(row.limit.largest.rho_alpha))}, "
        f"ε {number(row.limit.largest.epsilon)}"
        for row in report.rows.values()
        if row.limit.largest.rho_alpha > row.limit.rho_alpha
    ]
    if not worse:
        return ""
    return f"For the client in most rounds, theory allows more: {'; '.join(worse)}."


READINGS = {
    "contradicted": "The adversary learns more than theory allows. Do not rely on ε before the "
    "cause is known, which the alarms name.",
    "above-by-chance": "The measurement is above the limit, but chance alone can explain it.",
    "agrees": "The interval contains the limit: the trials neither contradict theory nor prove "
    "that the adversary stays below.",
    "attack-below": "This attack stays below the limit. A better attack may achieve more.",
    "below": "The adversary stays below the limit, and no adversary at this place does better.",
    "not-measured": "The limit comes from theory alone.",
}
"""By state; those without a limit depend on why there is none."""

UNDECIDED = "The trials cannot tell: the interval contains both guessing and the limit."
SAMPLED_ONLY = (
    "In a round that samples it, no noise surely hides {hidden} from {who}. Sampling alone limits "
    "this adversary to {most} right answers."
)
WITHOUT_LIMIT = {
    NO_GUARANTEE: "Gradients are not clipped, so theory sets no limit.",
    NO_LIMIT: "The budget is so large that theory allows certainty.",
    MUST_BE_TRUSTED: "No noise hides {hidden} from {who}, who can always tell whether it was used.",
    NO_PROTECTION: "No noise hides {hidden} from {who}, who can always tell whether it was used.",
}


def reading(report: Report, row: Row) -> str:
    """Return what a row means, in sentences."""
    attack, limit = row.attack, row.limit
    if row.standing == "no-limit":
        words = SAMPLED_ONLY if by_sampling_alone(row) else WITHOUT_LIMIT[_unlimited(report, row)]
        most = percent(share(limit.rho_alpha))
        told = words.format(hidden=clients_of(report), who=WHO[row.observer], most=most)
    elif state_words(report, row) is TOO_FEW:
        told = UNDECIDED
    else:
        told = READINGS[row.standing]
    sentences = [told]
    if row.observer == "server" and row.standing != "no-limit" and limit.note:
        server = limit.note.startswith("sees")
        sentences.append(f"The server {limit.note}." if server else _sentence(limit.note))
    if attack is not None and not attack.best and row.observer == report.vantage:
        sentences.append(score_caution(report).strip())
    if attack is not None and row.note:
        sentences.append(_sentence(row.note))
    if attack is None and row.standing == "not-measured":
        sentences.append(_how_to_measure(report, row))
    if row.standing != "contradicted":
        sentences.append(power(report, row))
    return " ".join(filter(None, sentences))


def _how_to_measure(report: Report, row: Row) -> str:
    """Return how to measure a vantage, or why fedsim does not, as a sentence."""
    for part in row.note.split("; "):
        if part.startswith(NOT_ATTACKED):
            return f"It was {part}."
    if report.one_run is not None:
        return "A run with canaries does not measure it."
    return 'To measure it, set audit.vantages = "all".'


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}."
