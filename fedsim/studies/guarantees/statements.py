"""The guarantees of one mechanism as data."""

import math
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from adversaries.errors import InputError
from fedsim.privacy import identifiability, risks
from fedsim.privacy.accounting import ACCOUNTANTS, accountant
from fedsim.privacy.mechanism import Mechanism
from fedsim.privacy.releases import Releases
from fedsim.privacy.trust import Trust
from fedsim.privacy.trust.model import Vantage

Row = dict[str, Any]


def described(releases: Releases, vantage: Vantage) -> Row:
    """Return the mechanism, for JSON; a value that differs between rounds is None."""
    rounds = releases.rounds

    def common(name: str) -> Any:
        values = {getattr(alike, name) for alike in rounds}
        return values.pop() if len(values) == 1 else None

    multipliers = {group.noise_multiplier for group in releases.towards(vantage).groups}
    return {
        "noise_multiplier": common("noise_multiplier"),
        "effective_noise_multiplier": multipliers.pop() if len(multipliers) == 1 else None,
        "rounds": releases.count,
        "local_steps": common("local_steps"),
        "sampling_rate": common("sampling_rate"),
        "sampling": "full batch" if common("sampling_rate") == 1 else "Poisson",
        "participants": common("participants"),
        "clipping_norm": releases.clipping_norm,
        "neighbouring": releases.neighbouring.value,
        "trust": releases.trust.value,
        "vantage": vantage.value,
        "clients": releases.clients,
        "colluding": releases.colluders,
        "round_groups": [asdict(alike) for alike in rounds],
    }


def accounted(mechanism: Mechanism, delta: float) -> dict[str, Row]:
    """Return the bounds by every accountant, or why it has none."""

    def row(name: str) -> Row:
        bound = identifiability.bounds(mechanism, delta, name)
        note = ACCOUNTANTS[name].note(mechanism, delta)
        if note is None and math.isinf(bound.epsilon):
            note = "epsilon is larger than any float, so that it has no value"
        return {
            "epsilon": bound.epsilon,
            "rho_beta": bound.rho_beta,
            "tail_probability": bound.tail_probability,
            "tail_limit": tail_limit(mechanism, bound.epsilon),
            "theorem2_rho_alpha": bound.theorem2_rho_alpha,
            "covers": ACCOUNTANTS[name].covers,
            "note": note,
        }

    return {name: or_refusal(row, name) for name in ACCOUNTANTS}


def risks_of(mechanism: Mechanism, baseline: float) -> list[Row]:
    """Return the largest success of any attack for several successes without the release.

    baseline: one of them.
    """
    baselines = sorted({*risks.BASELINES, baseline}, reverse=True)
    return [
        {"baseline": each, "at_most": at_most}
        for each, at_most in risks.success_by_baseline(mechanism, baselines)
    ]


def tail_limit(mechanism: Mechanism, epsilon: float) -> float:
    """Return the largest share of trainings in which a belief exceeds rho_beta(epsilon)."""
    # The worst pair's tail is larger only far out, where its mass is truncated and counts as tail.
    worst = identifiability.tail_probability(mechanism, epsilon) or 0.0
    return max(identifiability.tail_limit(mechanism, epsilon), worst)


def or_refusal(answer: Callable[[str], Row], name: str) -> Row:
    """Return an accountant's row, or a row with its reason for refusing."""
    try:
        return answer(name)
    except InputError as reason:
        return {"refusal": str(reason), "covers": accountant(name).covers}


def to_whom(releases: Releases, delta: float) -> list[Row]:
    """Return the bounds for every trust and vantage with the same rounds, or why there are none."""
    rows: list[Row] = []
    for trust in Trust:
        try:
            bounds = identifiability.vantage_bounds(releases, delta, trust)
        except InputError as reason:
            rows.append({"trust": trust.value, "refusal": str(reason)})
        else:
            under = releases.under(trust)
            rows += [
                asdict(row) | {"tail_limit": tail_limit(under.towards(row.vantage), row.epsilon)}
                for row in bounds
            ]
    return rows
