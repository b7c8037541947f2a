"""The private parts of Flower in the processes of a run; `flower_services` has the others.

Flower may move them in any release. `tests/test_flower_names.py` then names the import, behind
which stands what to look for. No other file imports private parts of Flower.
"""

# ruff: noqa: F401  (other modules import names of Flower from here)

import uuid
from collections.abc import Mapping
from typing import Any

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ec import SECP384R1, EllipticCurvePublicKey
from flwr.app import Message, RecordDict

# Secure aggregation: the client's part, the reply that it reads, and what a server computes with.
from flwr.client.mod import secaggplus_mod
from flwr.common import Code, FitRes, Status, bytes_to_ndarray, ndarrays_to_parameters
from flwr.common.constant import ErrorCode  # error codes of nodes
from flwr.common.secure_aggregation.crypto.shamir import combine_shares
from flwr.common.secure_aggregation.secaggplus_constants import RECORD_KEY_CONFIGS as SECAGG_CONFIGS
from flwr.common.secure_aggregation.secaggplus_constants import Key, Stage
from flwr.common.secure_aggregation.secaggplus_utils import pseudo_rand_gen  # a seed's mask
from flwr.compat.common import recorddict_compat
from flwr.server.compat import LegacyContext  # apps of the older flwr.server
from flwr.server.compat import app as older
from flwr.supercore.primitives.asymmetric import bytes_to_public_key  # as Flower writes keys
from flwr.supercore.run import Run  # a run's description without a SuperLink
from flwr.supercore.task_identity import TaskIdentity  # the task that a ClientApp believes to be

from adversaries.arrays import Floats, Ints

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
