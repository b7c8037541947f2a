"""Flower's strategies as an audit and a recorder read them: what a server averages and adds."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from flwr.serverapp.strategy import (
    DifferentialPrivacyClientSideAdaptiveClipping,
    DifferentialPrivacyClientSideFixedClipping,
    DifferentialPrivacyServerSideAdaptiveClipping,
    DifferentialPrivacyServerSideFixedClipping,
    FedAvg,
    Strategy,
)

CLIENT_SIDE = (
    DifferentialPrivacyClientSideFixedClipping,
    DifferentialPrivacyClientSideAdaptiveClipping,
)
ADAPTIVE = (
    DifferentialPrivacyServerSideAdaptiveClipping,
    DifferentialPrivacyClientSideAdaptiveClipping,
)
CENTRAL = (DifferentialPrivacyServerSideFixedClipping, *CLIENT_SIDE, *ADAPTIVE)
OUTSIDE = ("add_gaussian_noise_inplace", "compute_stdv")
"""Flower's functions that make the noise, as its strategies call them."""


@dataclass(frozen=True)
class CentralNoise:
    """Noise that the server adds to an average of clipped updates.

    Attributes:
        noise_multiplier: z; the noise has the standard deviation z C / sampled_clients. The least
            of all rounds.
        clipping_norms: C of every round.
        sampled_clients: divisor of the strategy, however many clients replied. The largest of all
            rounds.
        adaptive: whether C follows a count of clipped updates, which no accountant here covers.
        plain_mean: whether the noise is added to Flower's plain average of the replies.
        weighted_by: the metric, sent by clients, that weights the average.
        own_noise: whether code that is not Flower's makes the noise.
        varies: whether the multiplier or the divisor differs between rounds.
    """

    strategy: str
    noise_multiplier: float
    clipping_norms: tuple[float, ...]
    sampled_clients: int
    client_clips: bool = False
    adaptive: bool = False
    plain_mean: bool = True
    weighted_by: str = "num-examples"
    equal_weights_enforced: bool = False
    own_noise: bool = False
    varies: bool = False

    @property
    def adds_noise(self) -> bool:
        return self.noise_multiplier > 0 or self.varies


def chain(strategy: Strategy) -> list[Strategy]:
    """Return a strategy and those that it wraps, from the outermost inwards."""
    strategies = [strategy]
    while isinstance(inner := getattr(strategies[-1], "strategy", None), Strategy):
        if any(inner is each for each in strategies):
            break
        strategies.append(inner)
    return strategies


def names(strategy: Strategy) -> tuple[str, ...]:
    return tuple(type(each).__name__ for each in chain(strategy))


def central_wrapper(strategy: Strategy) -> Any | None:
    return next((each for each in chain(strategy) if isinstance(each, CENTRAL)), None)


def own_code(strategies: Iterable[Strategy]) -> bool:
    """Return whether a strategy aggregates by code that is not Flower's."""
    return not all(of_flower(type(each).aggregate_train) for each in strategies)


def averages(strategy: Strategy) -> bool:
    """Return whether a strategy without an inner one releases FedAvg's weighted mean of replies."""
    return isinstance(strategy, FedAvg) and type(strategy).aggregate_train is FedAvg.aggregate_train


def weighting_key(strategy: Strategy) -> str:
    return str(getattr(chain(strategy)[-1], "weighted_by_key", ""))


def of_flower(code: Any) -> bool:
    return str(code.__module__).startswith("flwr.")


def central_noise(
    strategy: Strategy, mechanisms: Sequence[Mapping[str, Any]] = ()
) -> CentralNoise | None:
    """Return the noise of Flower's wrapper; None where the app's code may release without it.

    mechanisms: of the recorded rounds, whose least noise counts; none before the app runs.
    """
    wrapper = central_wrapper(strategy)
    if wrapper is None or own_code(chain(strategy)[: chain(strategy).index(wrapper) + 1]):
        return None
    method = wrapper._add_noise_to_aggregated_arrays
    inner = [getattr(method, "__globals__", {}).get(name) for name in OUTSIDE]
    now = {
        "noise_multiplier": float(wrapper.noise_multiplier),
        "num_sampled_clients": int(wrapper.num_sampled_clients),
        "clipping_norm": float(wrapper.clipping_norm),
    }
    multipliers, clients, clipping = (
        tuple(each.get(name, math.nan) for each in mechanisms or [now]) for name in now
    )
    return CentralNoise(
        strategy=type(wrapper).__name__,
        noise_multiplier=min(multipliers),
        clipping_norms=clipping,
        sampled_clients=max(clients),
        client_clips=isinstance(wrapper, CLIENT_SIDE),
        adaptive=isinstance(wrapper, ADAPTIVE),
        plain_mean=averages(wrapper.strategy),
        weighted_by=str(getattr(wrapper.strategy, "weighted_by_key", "")),
        equal_weights_enforced=getattr(wrapper, "accountant", None) is not None,
        own_noise=not all(map(of_flower, [method, *(each for each in inner if each)])),
        varies=len({z / n for z, n in zip(multipliers, clients, strict=True)}) > 1,
    )
