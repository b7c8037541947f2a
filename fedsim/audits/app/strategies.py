"""Flower's strategies as an audit and a recorder read them: what a server averages and adds."""

from collections.abc import Sequence
from typing import Any

from flwr.serverapp.strategy import (
    DifferentialPrivacyClientSideAdaptiveClipping,
    DifferentialPrivacyClientSideFixedClipping,
    DifferentialPrivacyServerSideAdaptiveClipping,
    DifferentialPrivacyServerSideFixedClipping,
    FedAvg,
    Strategy,
)

from fedsim.federation.transcripts.records import Scalar

CLIENT_SIDE = (
    DifferentialPrivacyClientSideFixedClipping,
    DifferentialPrivacyClientSideAdaptiveClipping,
)
FIXED = (DifferentialPrivacyServerSideFixedClipping, DifferentialPrivacyClientSideFixedClipping)
WRAPPERS = (
    DifferentialPrivacyServerSideFixedClipping,
    DifferentialPrivacyServerSideAdaptiveClipping,
    *CLIENT_SIDE,
)
OUTSIDE = ("add_gaussian_noise_inplace", "compute_stdv")
"""Flower's functions that make the noise, as its strategies call them."""


def chain(strategy: Strategy) -> list[Strategy]:
    """Return a strategy and those that it wraps, from the outermost inwards."""
    strategies = [strategy]
    while isinstance(inner := getattr(strategies[-1], "strategy", None), Strategy):
        if any(inner is each for each in strategies):
            break
        strategies.append(inner)
    return strategies


def names(strategy: Strategy) -> str:
    return " > ".join(type(each).__name__ for each in chain(strategy))


def weighting_key(strategy: Strategy) -> str:
    return str(getattr(chain(strategy)[-1], "weighted_by_key", ""))


def wrapper_of(strategy: Strategy) -> Any | None:
    return next((each for each in chain(strategy) if isinstance(each, WRAPPERS)), None)


def averages(strategy: Strategy) -> bool:
    """Return whether Flower's own code releases the plain mean, or adds one noise of a fixed norm.

    A second wrapper would clip or add noise as well, of which the first one's numbers say nothing.
    """
    *wrappers, inner = chain(strategy)
    fixed = (isinstance(one, FIXED) and _of_flower(type(one).aggregate_train) for one in wrappers)
    mean = type(inner).aggregate_train is FedAvg.aggregate_train
    return mean and len(wrappers) <= 1 and all(fixed)


def mechanism(strategy: Strategy) -> dict[str, Scalar]:
    """Return what a strategy's attributes say now, by the names of a transcript's mechanism."""
    strategies, wrapper = chain(strategy), wrapper_of(strategy)
    said: dict[str, Scalar] = {
        "strategy": names(strategy),
        "aggregation": "mean" if averages(strategy) else "other",
    }
    if key := weighting_key(strategy):
        said["weighted_by"] = key
    if wrapper is None or not all(
        _of_flower(type(each).aggregate_train)
        for each in strategies[: strategies.index(wrapper) + 1]
    ):
        return said
    if own := _own_noise(wrapper):
        said["own_noise"] = own
    return said | {
        "clipping": "client" if isinstance(wrapper, CLIENT_SIDE) else "server",
        "noise_multiplier": float(wrapper.noise_multiplier),
        "clipping_norm": float(wrapper.clipping_norm),
        "num_sampled_clients": int(wrapper.num_sampled_clients),
    }


def _own_noise(wrapper: Any) -> str:
    """Return the name of code that makes the noise and is not Flower's; "" if there is none."""
    method = wrapper._add_noise_to_aggregated_arrays
    inside = [getattr(method, "__globals__", {}).get(name) for name in OUTSIDE]
    makers: Sequence[Any] = [method, *(each for each in inside if each)]
    return next((str(each.__qualname__) for each in makers if not _of_flower(each)), "")


def _of_flower(code: Any) -> bool:
    return str(code.__module__).startswith("flwr.")
