"""Reads Flower's messages, strategies and mods for a recorder, and checks declarations."""

import math
from dataclasses import asdict, dataclass

import numpy as np
from flwr.app import ArrayRecord, Context, Message
from flwr.clientapp.mod import LocalDpMod
from flwr.serverapp.strategy import Strategy

from adversaries.errors import InputError
from fedsim.audits.app.introspection import (
    averages,
    chain,
    configuration_of,
    local_noise,
    own_code,
    weighting_key,
)
from fedsim.audits.recorded import recorded_noise
from fedsim.federation.transcripts.records import UNITS, ObservedRound, Reply, Scalar, Value


@dataclass(frozen=True)
class Declared:
    """The user's statements about a strategy that cannot be read off it; None if unstated.

    They state that it releases the mean of n updates, each clipped to C as a whole, plus
    N(0, (z C / n)^2) on every parameter.

    Attributes:
        clipping_norm: C, above 0.
        noise_multiplier: z, at least 0; needs C.
        unit: protected unit of the claim: a "client" with its whole update, or a "record" of a
            client's data.

    Raises:
        InputError: a value is out of range, or z is given without C.
    """

    clipping_norm: float | None = None
    noise_multiplier: float | None = None
    unit: str | None = None

    def __post_init__(self) -> None:
        norm, multiplier = self.clipping_norm, self.noise_multiplier
        if norm is not None and not 0 < norm < math.inf:
            raise InputError(f"clipping_norm is {norm}; it must be above 0")
        if multiplier is not None and not 0 <= multiplier < math.inf:
            raise InputError(f"noise_multiplier is {multiplier}; it must be at least 0")
        if multiplier is not None and norm is None:
            raise InputError("noise_multiplier is in units of clipping_norm: give that too")
        if self.unit is not None and self.unit not in UNITS:
            raise InputError(f"unit is '{self.unit}'; it must be one of {', '.join(UNITS)}")

    def check(self, strategy: Strategy) -> None:
        if self.clipping_norm is not None and configuration_of(strategy).central is not None:
            raise InputError(
                f"{type(strategy).__name__} is Flower's own, and states its clipping and noise "
                "itself; declare neither clipping_norm nor noise_multiplier"
            )


def mechanism(
    strategy: Strategy, declared: Declared, replies: int | None = None
) -> dict[str, Scalar]:
    """Return the noise configuration of a strategy at this moment, with the user's declarations."""
    configuration = configuration_of(strategy)
    central = configuration.central
    mean = averages(chain(strategy)[-1]) if central is None else central.plain_mean
    keys: dict[str, Scalar] = {
        "strategy": configuration.strategies[0],
        "inner_strategy": configuration.strategies[-1],
        # The aggregate of the innermost strategy decides whether the whole is a mean.
        "aggregation": "mean" if mean and own_code(chain(strategy)) is None else "other",
    }
    if key := weighting_key(strategy):
        keys["weighted_by"] = key
    if central is not None:
        keys |= {
            "clipping": "client" if central.client_clips else "server",
            "noise_multiplier": central.noise_multiplier,
            "clipping_norm": central.clipping_norms[0],
            "num_sampled_clients": central.sampled_clients,
            "adaptive": central.adaptive,
        }
        if central.adaptive:
            keys["clipped_count_std"] = central.count_std
    if declared.unit is not None:
        keys["unit"] = declared.unit
    if declared.clipping_norm is not None:
        keys |= {
            "aggregation": "declared",
            "clipping": "server",
            "clipping_norm": declared.clipping_norm,
        }
        if declared.noise_multiplier is not None:
            keys["noise_multiplier"] = declared.noise_multiplier
            if replies:
                keys["num_sampled_clients"] = replies
    return keys


def client_mechanism(
    message: Message, reply: Message, local_dp: LocalDpMod | None
) -> dict[str, Scalar]:
    """Return what a client knows of the noise: the server's norm, its own noise and epsilon."""
    keys: dict[str, Scalar] = {}
    for config in message.content.config_records.values():
        norm = config.get("clipping_norm")
        if isinstance(norm, float):
            keys |= {"clipping": "client", "clipping_norm": norm}
    if local_dp is not None:
        keys |= {f"local_{name}": value for name, value in asdict(local_noise(local_dp)).items()}
    if reply.has_error():
        return keys
    epsilon = recorded_noise.reported_epsilon(_metrics(reply))
    if epsilon is not None:
        keys |= {"client_epsilon": epsilon.value, "client_epsilon_metric": epsilon.metric}
    return keys


def evaluated(message: Message) -> ObservedRound:
    return ObservedRound(round_number(message), aggregate=arrays(message))


def arrays(message: Message) -> dict[str, np.ndarray]:
    records = message.content.array_records
    if len(records) == 1:
        return of_record(next(iter(records.values())))
    return {
        f"{name}/{key}": array
        for name, record in records.items()
        for key, array in of_record(record).items()
    }


def of_record(record: ArrayRecord) -> dict[str, np.ndarray]:
    return {key: np.array(array.numpy()) for key, array in record.items()}


def reply_of(message: Message, weighting_key: str) -> Reply:
    metrics = _metrics(message)
    weight = metrics.get(weighting_key)
    weight = float(weight) if isinstance(weight, int | float) else None
    return Reply(arrays(message), weight, metrics)


def _metrics(message: Message) -> dict[str, Value]:
    return {
        key: list(value) if isinstance(value, list) else value
        for record in message.content.metric_records.values()
        for key, value in record.items()
    }


def round_number(message: Message) -> int:
    for config in message.content.config_records.values():
        number = config.get("server-round")
        if isinstance(number, int):
            return number
    raise ValueError("the message has no server-round")


def is_training(message: Message) -> bool:
    return message.metadata.message_type.startswith("train")


def node_of(context: Context) -> int:
    """Return the partition of a client; its node id if it has none."""
    partition = context.node_config.get("partition-id")
    return partition if isinstance(partition, int) else context.node_id
