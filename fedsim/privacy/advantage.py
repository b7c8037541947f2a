"""The advantage that a guarantee allows an adversary, for any mechanism that has it."""

import math

from scipy.special import expit


def advantage_of_epsilon(epsilon: float, delta: float) -> float:
    """Return the largest advantage that (epsilon, delta)-differential privacy allows.

    Source: Kairouz, Oh and Viswanath, 2015, "The Composition Theorem for Differential Privacy",
    Theorem 2.1: tanh(epsilon / 2) + 2 delta / (1 + e^epsilon).
    """
    return min(1.0, math.tanh(epsilon / 2) + 2 * delta * float(expit(-epsilon)))
