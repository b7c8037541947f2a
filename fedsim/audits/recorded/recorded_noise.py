"""The recorded mechanism of a round, or of a step of DP-SGD, in believable numbers."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from fedsim.federation.transcripts.records import ObservedRound

CONFIGURED = 1e-30, 1e30
"""Range of believed numbers other than 0, in which squares do not overflow."""

NUMBERS = (
    "noise_multiplier",
    "clipping_norm",
    "noise_clipping_norm",
    "num_sampled_clients",
    "clipped_count_std",
    "local_clipping_norm",
    "local_sensitivity",
    "local_epsilon",
    "local_delta",
    "local_noise_std",
    "divisor",
    "neighbour_divisor",
    "total_weight",
    "sample_rate",
    "expected_batch_size",
    "accountant_noise_multiplier",
    "accountant_sample_rate",
)
"""Numbers that an audit reads from a mechanism."""


def claimed_std(mechanism: Mapping[str, Any]) -> float | None:
    """Return the noise of Flower's central DP: z C/n, with the C that scales the noise."""
    multiplier = number(mechanism, "noise_multiplier")
    norm = number(mechanism, "noise_clipping_norm") or number(mechanism, "clipping_norm")
    clients = number(mechanism, "num_sampled_clients")
    if multiplier is None or norm is None or not clients:
        return None
    return multiplier * norm / clients


def claimed_local_std(mechanism: Mapping[str, Any]) -> float | None:
    """Return the declared noise, or Flower's LocalDpMod's: s sqrt(2 ln(1.25/delta)) / epsilon."""
    declared = number(mechanism, "local_noise_std")
    if declared is not None:
        return declared
    sensitivity, epsilon, delta = (
        number(mechanism, f"local_{name}") for name in ("sensitivity", "epsilon", "delta")
    )
    if sensitivity is None or not epsilon or not delta or delta >= 1.25:
        return None
    return sensitivity * math.sqrt(2 * math.log(1.25 / delta)) / epsilon


def number(mechanism: Mapping[str, Any], name: str) -> float | None:
    """Return a recorded number; None without a believable one."""
    value = mechanism.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return None if unbelievable(value) else float(value)


def unbelievable(value: Any) -> bool:
    """Return whether a value is a number outside the believed range."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    smallest, largest = CONFIGURED
    return not (value == 0 or smallest <= value <= largest)


class Charge(NamedTuple):
    """An accountant's record of a step: z, q, and how many steps it counts."""

    noise_multiplier: float
    sample_rate: float
    steps: int


@dataclass(frozen=True)
class Step:
    """One step of DP-SGD, as recorded; None where a value is unknown.

    Attributes:
        place: index in the file, from 1.
        engine: name of its recorder, one for each engine or process.
        parameters: size of the whole model; the transcript may have a part of it.
        divisor: d, above 0.
        clipping_norm: C.
        noise_multiplier: z of the sum.
        sample_rate: q, if batches are declared Poisson samples; 1 for all records.
        batch: number of records in the batch.
        members: the records of the batch.
        records: N.
        sum_length: |S| of the whole clipped sum.
        expected: expected size of the batch, N q rounded down, where N was not recorded.
        accumulated: number of batches in the step.
        sampling: name of the sampling.
        count_std: noise on a count of clipped gradients, 0 if unknown; None without a count.
        neighbour_divisor: d with one record fewer.
        weight: total weight of all users, which divides the release later.
        weights_differ: whether two weights differed so far; None if unknown.
        charged: the accountant's record.
        clipped: whether the sum is that of clipped gradients; None if it was not checked.
    """

    place: int
    engine: str
    parameters: int
    divisor: float
    clipping_norm: float | None
    noise_multiplier: float | None
    sample_rate: float | None
    batch: int | None
    members: tuple[int, ...] | None
    records: int | None
    sum_length: float | None
    expected: float | None
    accumulated: int
    sampling: str
    count_std: float | None
    neighbour_divisor: float | None
    weight: float | None
    weights_differ: bool | None
    charged: Charge | None
    clipped: bool | None = None


def step_of(place: int, observed: ObservedRound) -> Step | None:
    """Return a recorded step; None if its divisor is not a number above 0.

    place: index of the step in the file, from 1.
    """
    mechanism = observed.mechanism
    divisor = 1.0 if "divisor" not in mechanism else number(mechanism, "divisor")
    if not divisor or divisor < 0:
        return None
    reply = next(iter(observed.replies.values()), None)
    size = None if reply is None else reply.num_examples
    rate, accumulated = number(mechanism, "sample_rate"), number(mechanism, "accumulated")
    kept = sum(array.size for array in (observed.aggregate or {}).values())
    clipped = mechanism.get("clipped")
    adaptive, differ = mechanism.get("adaptive") is True, mechanism.get("weights_differ")
    return Step(
        place=place,
        engine=str(mechanism.get("engine", "")),
        parameters=int(number(mechanism, "parameters") or kept),
        divisor=divisor,
        clipping_norm=number(mechanism, "clipping_norm"),
        noise_multiplier=number(mechanism, "noise_multiplier"),
        sample_rate=rate if rate is not None and 0 < rate <= 1 else None,
        batch=None if size is None or not 0 <= size < 2**53 else int(size),
        members=observed.participants,
        records=int(number(mechanism, "records") or 0) or None,
        sum_length=number(mechanism, "sum_length"),
        expected=number(mechanism, "expected_batch_size"),
        accumulated=max(1, int(accumulated or 1)),
        sampling=str(mechanism.get("sampling", "")),
        count_std=(number(mechanism, "clipped_count_std") or 0.0) if adaptive else None,
        neighbour_divisor=number(mechanism, "neighbour_divisor") or None,
        weight=number(mechanism, "total_weight"),
        weights_differ=differ if isinstance(differ, bool) else None,
        charged=_charge(observed),
        clipped=clipped if isinstance(clipped, bool) else None,
    )


def _charge(observed: ObservedRound) -> Charge | None:
    multiplier, rate, steps = (
        number(observed.mechanism, f"accountant_{name}")
        for name in ("noise_multiplier", "sample_rate", "steps")
    )
    if multiplier is None or rate is None or not 0 < rate <= 1 or not steps:
        return None
    return Charge(multiplier, rate, int(steps))
