"""The private parts of Flower that a run needs, besides those of `flower_services`."""

import uuid
from collections.abc import Mapping
from typing import Any

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ec import SECP384R1, EllipticCurvePublicKey
from flwr.app import Message, RecordDict

from adversaries.arrays import Floats, Ints
from fedsim.federation.protocol.flower_names import (
    RECORD_KEY_CONFIGS as SECAGG_CONFIGS,
)
from fedsim.federation.protocol.flower_names import (
    Code,
    ErrorCode,
    FitRes,
    Key,
    Run,
    Stage,
    Status,
    TaskIdentity,
    bytes_to_ndarray,
    bytes_to_public_key,
    combine_shares,
    ndarrays_to_parameters,
    pseudo_rand_gen,
    recorddict_compat,
    secaggplus_mod,
)

__all__ = ["SECAGG_CONFIGS", "Key", "Run", "Stage", "combine_shares", "secaggplus_mod"]
"""Names of Flower that other modules import from here."""

NODE_UNAVAILABLE = ErrorCode.NODE_UNAVAILABLE
GONE = (NODE_UNAVAILABLE, ErrorCode.MESSAGE_UNAVAILABLE, ErrorCode.CLIENT_APP_CRASHED)
"""Error codes of a node that is offline, or whose process has died."""

DEPLOYMENT = "Flower deployment"
RUNTIMES = {
    "InProcessGrid": "in process",
    "InMemoryGrid": "Flower simulation",
    "HttpGrid": DEPLOYMENT,
    "PollingGrid": DEPLOYMENT,
}
"""Name of the runtime in reports, by the class name of Flower's grid."""


def empty_run(run_id: int) -> Run:
    """Return the description of a run without a SuperLink."""
    return Run.create_empty(run_id=run_id)


def become_task(run_id: int, node_id: int) -> None:
    TaskIdentity.run_id, TaskIdentity.node_id, TaskIdentity.task_id = run_id, node_id, 1


def assign_message_id(message: Message) -> None:
    """Give a message an identity, as a SuperLink would. Replies refer to it."""
    message.metadata.__dict__["_message_id"] = uuid.uuid4().hex


def record_of(kind: type[Any], entries: Mapping[str, Any]) -> Any:
    """Return a record of entries that come from such a record, without checking each type again.

    kind: ArrayRecord, ConfigRecord, MetricRecord or RecordDict.
    """
    record = kind()
    record.__dict__["_data"].update(entries)
    return record


def secagg_input(arrays: list[Floats]) -> RecordDict:
    """Return the train reply that `secaggplus_mod` reads: arrays with a weight of 1."""
    parameters = ndarrays_to_parameters(list(arrays))
    result = FitRes(Status(Code.OK, ""), parameters, 1, {})
    return recorddict_compat.fitres_to_recorddict(result, keep_input=False)


def secagg_mask(seed: bytes, modulus: int, shape: tuple[int, ...]) -> Ints:
    """Return the mask of a client's integers, without the mask of Flower's weight."""
    if not seed or len(seed) % 4:
        raise ValueError(
            f"a mask's seed of {len(seed)} bytes is not a positive multiple of 4 bytes"
        )
    _, mask = pseudo_rand_gen(seed, modulus, [(1,), shape])
    return mask


def check_secagg_key(public_key: bytes) -> None:
    """Raise ValueError unless a public key is on the protocol's curve."""
    try:
        key = bytes_to_public_key(public_key)
    except UnsupportedAlgorithm as error:
        raise ValueError(str(error)) from None
    if not isinstance(key, EllipticCurvePublicKey) or not isinstance(key.curve, SECP384R1):
        raise ValueError("its public key is of another kind")


def array_from_bytes(data: bytes) -> Ints:
    """Return an array that Flower wrote, without pickle."""
    return bytes_to_ndarray(data)
