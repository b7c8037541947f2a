"""What the canaries of one client measured."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import expit

from adversaries.statistics import canaries, gaussian
from adversaries.statistics.intervals import ALARM_CONFIDENCE


@dataclass(frozen=True)
class Scored:
    """A canary round whose outcome was seen.

    Attributes:
        round: its number in the transcript.
        coin: whether the client sent the long canary rather than the short one.
        score: how far the model moved along the canary, as `canaries.score` has it.
    """

    round: int
    coin: bool
    score: float


def measured(scored: Sequence[Scored], delta: float, confidence: float) -> dict[str, Any]:
    """Return what the canaries of a client measured, as report.json has it.

    Args:
        scored: rounds of one client, in order: a belief is judged by those before it.
        confidence: of the intervals and the bound of one round; that of all rounds under "proven"
            holds with `ALARM_CONFIDENCE`.
    """
    coins = np.array([one.coin for one in scored])
    scores = np.array([one.score for one in scored])
    found = canaries.effect(coins, scores, confidence)
    odds = canaries.prequential_log_odds(coins, scores)
    right, guesses, proven = canaries.success_bound(coins, odds, delta, confidence)
    one = {"point": found.mu, "low": found.interval.low, "high": found.interval.high}
    if found.reason:
        one["point"] = None  # type: ignore[assignment]
    rounds = math.sqrt(len(scored))
    least = canaries.effect(coins, scores, ALARM_CONFIDENCE).interval.low * rounds
    composed = {name: None if mu is None else max(0.0, mu) * rounds for name, mu in one.items()}
    return {
        "towards": "whoever sees the global models, as any participant does",
        "rounds": len(scored),
        "loud": int(coins.sum()),
        "mu": one | {"confidence": confidence},
        "reason": found.reason,
        "p_value": found.p_value,
        "epsilon_one_round": _epsilons(one, delta),
        "epsilon_all_rounds": _epsilons(composed, delta),
        "guesses": guesses,
        "right_guesses": right,
        "epsilon_proven_one_round": proven,
        "proven": {
            "confidence": ALARM_CONFIDENCE,
            "epsilon_all_rounds": gaussian.epsilon(max(0.0, least), delta),
        },
        "round_numbers": [one.round for one in scored],
        "scores": scores.tolist(),
        "coins": coins.tolist(),
        "log_odds": odds.tolist(),
        "belief": expit(odds).tolist(),
        "assumptions": [
            "mu: scores normal, of one variance; other clients' updates hide the canary too, so mu "
            "is what an outsider faces, at most that of the noise alone",
            "all rounds: each as loud as the rounds measured, and all of them about one secret",
            "proven of one round: nothing but a fair coin",
        ],
    }


def _epsilons(mu: Mapping[str, float | None], delta: float) -> dict[str, float | None]:
    return {
        name: None if value is None else gaussian.epsilon(max(0.0, value), delta)
        for name, value in mu.items()
    }
