"""Reads the privacy configuration off Flower's objects, and writes replies of scripted runs."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, Message, RecordDict
from flwr.clientapp.mod import LocalDpMod
from flwr.serverapp.strategy import (
    DifferentialPrivacyClientSideAdaptiveClipping,
    DifferentialPrivacyClientSideFixedClipping,
    DifferentialPrivacyServerSideAdaptiveClipping,
    DifferentialPrivacyServerSideFixedClipping,
    FedAvg,
    Strategy,
)

from adversaries.arrays import Floats
from fedsim.audits.app.process import CentralNoise, Configuration, LocalNoise, Script, direction
from fedsim.audits.app.rules import findings
from fedsim.audits.child_process.channel import AppFailedError
from fedsim.audits.judgement.claim import Claim, Finding
from fedsim.privacy.mechanism import Neighbouring

CLIENT_SIDE = (
    DifferentialPrivacyClientSideFixedClipping,
    DifferentialPrivacyClientSideAdaptiveClipping,
)
ADAPTIVE = (
    DifferentialPrivacyServerSideAdaptiveClipping,
    DifferentialPrivacyClientSideAdaptiveClipping,
)
CENTRAL = (DifferentialPrivacyServerSideFixedClipping, *CLIENT_SIDE, *ADAPTIVE)


def chain(strategy: Strategy) -> list[Strategy]:
    strategies = [strategy]
    while isinstance(inner := getattr(strategies[-1], "strategy", None), Strategy):
        if any(inner is each for each in strategies):
            break
        strategies.append(inner)
    return strategies


def central_wrapper(strategy: Strategy) -> Any | None:
    return next((each for each in chain(strategy) if isinstance(each, CENTRAL)), None)


def own_code(strategies: Iterable[Strategy]) -> bool:
    """Return whether a strategy aggregates by code that is not Flower's."""
    return not all(_of_flower(type(each).aggregate_train) for each in strategies)


def averages(strategy: Strategy) -> bool:
    """Return whether a strategy without an inner one releases FedAvg's weighted mean of replies."""
    return isinstance(strategy, FedAvg) and type(strategy).aggregate_train is FedAvg.aggregate_train


def weighting_key(strategy: Strategy) -> str:
    return str(getattr(chain(strategy)[-1], "weighted_by_key", ""))


def configuration_of(
    strategy: Strategy,
    mods: Iterable[object] = (),
    rounds: int = 1,
    mechanisms: Sequence[Mapping[str, Any]] = (),
) -> Configuration:
    """Return the privacy of a strategy, and of its rounds where their mechanisms were recorded."""
    strategies, mods, central = chain(strategy), list(mods), _central_noise(strategy)
    return Configuration(
        rounds=rounds,
        strategies=tuple(type(each).__name__ for each in strategies),
        mods=tuple(getattr(mod, "__name__", type(mod).__name__) for mod in mods),
        known=all(map(_of_flower, map(type, strategies))),
        central=_of_rounds(central, mechanisms) if central and mechanisms else central,
        local=next((local_noise(mod) for mod in mods if isinstance(mod, LocalDpMod)), None),
    )


def configuration_findings(
    strategy: Strategy,
    mods: Iterable[object] = (),
    rounds: int = 1,
    claim: Claim | None = None,
    neighbouring: Neighbouring = Neighbouring.ADD_REMOVE,
) -> tuple[Finding, ...]:
    return findings(configuration_of(strategy, mods, rounds), neighbouring, claim)


def local_noise(mod: LocalDpMod) -> LocalNoise:
    values = (mod.clipping_norm, mod.sensitivity, mod.epsilon, mod.delta)
    return LocalNoise(*(float(value) for value in values))


def _of_flower(code: Any) -> bool:
    return str(code.__module__).startswith("flwr.")


def _central_noise(strategy: Strategy) -> CentralNoise | None:
    """Return the noise of Flower's wrapper; None where the app's code may release without it."""
    wrapper = central_wrapper(strategy)
    if wrapper is None:
        return None
    outwards = chain(strategy)[: chain(strategy).index(wrapper) + 1]
    if own_code(outwards):
        return None
    adaptive, norm = isinstance(wrapper, ADAPTIVE), (float(wrapper.clipping_norm),)
    method = wrapper._add_noise_to_aggregated_arrays
    called = ("add_gaussian_noise_inplace", "compute_stdv")
    inner = (getattr(method, "__globals__", {}).get(name) for name in called)
    return CentralNoise(
        strategy=type(wrapper).__name__,
        noise_multiplier=float(wrapper.noise_multiplier),
        clipping_norms=norm,
        noise_norms=norm,
        sampled_clients=int(wrapper.num_sampled_clients),
        client_clips=isinstance(wrapper, CLIENT_SIDE),
        adaptive=adaptive,
        count_std=float(wrapper.clipped_count_stddev) if adaptive else 0.0,
        plain_mean=averages(wrapper.strategy),
        weighted_by=str(getattr(wrapper.strategy, "weighted_by_key", "")),
        equal_weights_enforced=getattr(wrapper, "accountant", None) is not None,
        own_noise=not all(map(_of_flower, [method, *(each for each in inner if each)])),
    )


def _of_rounds(central: CentralNoise, mechanisms: Sequence[Mapping[str, Any]]) -> CentralNoise:
    """Return the noise with the norms of every round, and otherwise that of the least noise."""

    def values(name: str) -> tuple[Any, ...]:
        return tuple(each.get(name, math.nan) for each in mechanisms)

    multipliers, clients = values("noise_multiplier"), values("num_sampled_clients")
    return replace(
        central,
        noise_multiplier=min(multipliers),
        sampled_clients=max(clients),
        clipping_norms=values("clipping_norm"),
        noise_norms=values("noise_clipping_norm"),
        noise_per_norm=tuple(z / n for z, n in zip(multipliers, clients, strict=True)),
    )


def scripted(template: RecordDict, message: Message, script: Script, partition: int) -> RecordDict:
    """Return an honest reply with the model, and the target's weight, that the script says."""
    model = model_of(message.content)
    size = sum(math.prod(array.shape) for array in model.values() if floating(array))
    targeted = partition == script.target
    update = script.length * direction(script.seed, size) if targeted else np.zeros(size)
    if not targeted:
        update[0] = script.idle
    for name in template.array_records:
        template[name] = _moved(model, update)
    if targeted and script.weight is not None:
        for metrics in template.metric_records.values():
            if script.weighted_by in metrics:
                whole = isinstance(metrics[script.weighted_by], int)
                metrics[script.weighted_by] = int(script.weight) if whole else script.weight
    return template


def _moved(model: ArrayRecord, update: Floats) -> ArrayRecord:
    moved, start = {}, 0
    for name, array in model.items():
        moved[name] = array
        if floating(array):
            change = update[start : start + math.prod(array.shape)]
            start += change.size
            if change.any():
                values = array.numpy()
                moved[name] = Array((values + change.reshape(array.shape)).astype(values.dtype))
    return ArrayRecord(moved)


def model_of(content: RecordDict) -> ArrayRecord:
    """Return a message's one model. Raises AppFailedError if it holds more, or none."""
    records = list(content.array_records.values())
    if len(records) != 1:
        raise AppFailedError(
            f"a message holds {len(records)} models; this audit needs exactly one in each message"
        )
    return records[0]


def floating(array: Array) -> bool:
    return np.issubdtype(np.dtype(array.dtype), np.floating)
