"""What an app's runs show: facts of an honest run, and rounds of scripted ones.

The audit requests one run after another and gets measurements back. It computes the verdict itself.
"""

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from flwr.app import Array, ArrayRecord, Message, RecordDict

from adversaries.arrays import Floats
from fedsim.audits.child_process.channel import AppFailedError
from fedsim.audits.judgement.claim import Finding
from fedsim.audits.steps.observation import ObservedRun
from fedsim.audits.steps.watch import Statement
from fedsim.common.randomness import StreamRole, generator

UNBOUNDED_WEIGHT = 1e9
"""Number of examples that a client claims to outweigh all others."""


@dataclass(frozen=True, kw_only=True)
class AppFacts:
    """What an honest run of an app says about its privacy, and what was measured in it.

    Attributes:
        strategies: class names from the outermost wrapper inwards.
        multipliers: noise of every round, as configured, over the largest change of the average by
            one client; () where theory does not know it.
        clipping_norm: of the first round; 0 without one.
        client_clips: whether clipping is left to the clients.
        weighted_by: the metric, sent by clients, that weights the average; "" if all weigh alike.
        seeded: whether the server set the seed or the state of NumPy's global generator, from which
            Flower draws its noise.
        normal: whether Flower's own code makes the noise, as configured in every round.
        bare: whether the releases are plain averages without noise.
        findings: of the recorded rounds, as of a server's transcript.
        unknown: why theory does not know the noise; "" where it does.
        doubts: why an epsilon within a claim does not support it.
        detects: share of the noise below which the honest run would have raised an alarm.
    """

    rounds: int
    strategies: str
    multipliers: tuple[float, ...]
    clipping_norm: float
    client_clips: bool
    weighted_by: str
    seeded: bool
    normal: bool
    bare: bool
    statement: Statement | None
    findings: tuple[Finding, ...]
    unknown: str
    doubts: tuple[str, ...]
    detects: tuple[float, ...]


@dataclass(frozen=True)
class Script:
    """Messages of the clients in a scripted run.

    Attributes:
        target: partition whose update differs between the worlds.
        length: L2 length of its update along `direction`; negative for the opposite way.
        weight: weight that the target states; None for that of the honest run.
        idle: number that every other client adds to the model's first coordinate. It must not be 0:
            Flower's clipping divides by the norm.
    """

    target: int
    length: float
    weight: float | None
    weighted_by: str
    idle: float
    seed: int


@lru_cache(maxsize=1)
def direction(seed: int, parameters: int) -> Floats:
    """Return the unit vector [P] of the target's update; all runs of an audit share it."""
    drawn = generator(seed, StreamRole.CANARY).standard_normal(parameters)
    return drawn / np.linalg.norm(drawn)


@dataclass(frozen=True)
class AppRound:
    """How far models moved along the script's direction in one round of a scripted run.

    Attributes:
        model_shift: next model, as it is sent or at last returned, less the one that the clients
            were sent.
        message_shift: target's reply less the model that it was sent; nan without a reply.
        message_norm: length of that difference.
    """

    model_shift: float = math.nan
    message_shift: float = math.nan
    message_norm: float = math.nan


@dataclass(frozen=True)
class ClientRun:
    """The training of one client in an honest run."""

    run: ObservedRun
    rounds: int
    bare: int
    echo: float


@dataclass(frozen=True)
class HonestRun:
    """An honest run: its facts, and the training of each client."""

    facts: AppFacts
    clients: dict[int, ClientRun]


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
