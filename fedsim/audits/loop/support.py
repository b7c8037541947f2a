"""What the measured noise supports: epsilon at the least noise that may have been added.

A claim is supported if that epsilon is within it. If not, further runs may tell.
"""

import math
from dataclasses import asdict, dataclass
from typing import Any

from fedsim.audits.loop import guarantee, noise
from fedsim.audits.loop.guarantee import NOISE_TAIL, Observation

HALVINGS = 16
"""Bisections for the share of noise that a claim needs."""


UNKNOWN = (
    "theory does not know the loop, and the attack disproved nothing. Theory knows loops whose "
    "every step is taken by Opacus's optimizer, and that return the model which those steps made"
)

BESIDE = (
    "the model carries something beside its weights that differs between honest runs, or that "
    "cannot be read ({}); return a state dict of weights alone"
)

UNEVEN = (
    "the noise of the steps is not independent Gaussian noise of one scale (p below 1e-4), and "
    "theory knows no other noise"
)

LEAST = (
    "at least {0.at_least:.3g} of the configured noise was measured ({0.confidence:.0%} "
    "confidence, {0.runs} runs). At that noise epsilon is {0.epsilon:.4g}, above the claimed "
    "{1:.4g}; "
)

MORE = (
    "about {} more runs would tell with 80 % probability, if the noise is as configured: give "
    "--trials {}"
)

NO_ROOM = (
    "no number of runs would tell, because the claim leaves no room for a measurement error; "
    "these runs support a claim of {:.4g}"
)


@dataclass(frozen=True)
class MeasuredNoise:
    """The measured noise of all steps, against the configured noise.

    Attributes:
        at_least: lower bound on the share of the configured noise that was added; at most 1.
        confidence: confidence of `at_least` and of epsilon.
        epsilon: by theory at that share; None where theory does not know the loop.
        seen_below: share below which the rule `realised-noise` objects with probability 95 %.
        numbers: number of coordinates of noise that were measured.
        runs_more: further runs that support the claim with probability 80 %, if the noise is as
            configured. 0: none are needed, or the noise is less. inf: no number would do.
    """

    at_least: float
    confidence: float
    epsilon: float | None
    seen_below: float
    numbers: int
    runs: int
    runs_more: float = 0

    def as_json(self) -> dict[str, Any]:
        """Return the values, with None for an infinite number of runs."""
        more = self.runs_more if math.isfinite(self.runs_more) else None
        return asdict(self) | {"runs_more": more, "seen_with": noise.SEEN}


def measured(
    observation: Observation, delta: float, confidence: float, claim: float | None
) -> MeasuredNoise | None:
    """Return the measured noise; None where no step with noise was observed.

    claim: an epsilon; None without a claim.
    """
    sums = observation.noise
    if not sums.steps or not observation.steps:
        return None
    tail = 1 - confidence
    least = min(1.0, noise.worst(sums, tail))
    runs = sums.steps / len(observation.steps)
    epsilon = guarantee.epsilon(observation, delta, least)
    more = 0.0
    short = claim is not None and epsilon is not None and epsilon > claim
    if short and observation.noise_off is None:
        assert claim is not None
        low, high = least, 1.0  # bisection for the share at which epsilon is the claimed one
        for _ in range(HALVINGS):
            middle = (low + high) / 2
            above = (guarantee.epsilon(observation, delta, middle) or math.inf) > claim
            low, high = (middle, high) if above else (low, middle)
        needed = noise.freedom_for(
            high,
            tail / len(sums.sizes),
            (1 - noise.POWER) / len(sums.sizes),
        )
        smallest = min(size for size in sums.sizes if size)
        more = max(1.0, needed / smallest / len(observation.steps) - runs)
    return MeasuredNoise(
        at_least=least,
        confidence=confidence,
        epsilon=epsilon,
        seen_below=noise.least_seen(sums.freedom, NOISE_TAIL),
        numbers=sums.freedom,
        runs=round(runs),
        runs_more=math.ceil(more) if math.isfinite(more) else math.inf,
    )


def not_judged(
    observation: Observation,
    epsilon: float | None,
    noise: MeasuredNoise | None,
    claim: float,
    trials: int,
) -> str:
    """Return why a claim is not judged that nothing contradicts.

    epsilon: by theory, None where it does not know the loop.
    """
    if beside := observation.beside:
        return BESIDE.format("; ".join(beside))
    if observation.steps and not observation.one_scale:
        return UNEVEN
    if epsilon is None or noise is None or noise.epsilon is None:
        return UNKNOWN
    least = LEAST.format(noise, claim)
    if math.isinf(noise.runs_more):
        return least + NO_ROOM.format(noise.epsilon)
    return least + MORE.format(int(noise.runs_more), int(trials + noise.runs_more))
