"""The private parts of Flower's services, at a node and at a server, that fedsim uses.

The processes of a run do not load this module: `protocol.flower_private` has their parts.
"""

# ruff: noqa: F401  (other modules import names of Flower from here)

from base64 import b64decode
from collections.abc import Mapping
from datetime import datetime
from typing import Self

import httpx
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePublicKey
from flwr.app import Context, Message
from flwr.common.constant import (
    SYSTEM_TIME_TOLERANCE,
    TIMESTAMP_HEADER,
    TIMESTAMP_TOLERANCE,
    SubStatus,
)
from flwr.proto.fleet_pb2 import ActivateNodeRequest, ActivateNodeResponse, PushMessagesRequest
from flwr.proto.heartbeat_pb2 import SendNodeHeartbeatRequest, SendNodeHeartbeatResponse
from flwr.proto.runtime_pb2 import AcquireTaskRequest, SendTaskHeartbeatRequest
from flwr.supercore.constant import (
    FLEET_HTTP_PUBLIC_KEY_HEADER,
    FLEET_HTTP_SIGNATURE_HEADER,
    TASK_TOKEN_HEADER,
    TaskType,
)
from flwr.supercore.date import now  # the clock of signatures
from flwr.supercore.error import ApiErrorCode, FlowerError  # why a request was refused
from flwr.supercore.interceptors import RuntimeVersionHttpInterceptor, SuperExecAuthHttpInterceptor
from flwr.supercore.primitives.asymmetric import bytes_to_public_key, verify_signature
from flwr.supercore.protobuf.client import ProtobufCall, ProtobufRequestContext
from flwr.supercore.run import Run, RunNotRunningException
from flwr.supercore.runtime import RuntimeHttpClient  # requests of a task's process to its node
from flwr.supernode import fleet_http_connection, start_client_internal  # the SuperNode's loop
from flwr.supernode.cli import flower_supernode
from flwr.supernode.fleet_http_client import FleetHttpClient  # a SuperNode's requests
from flwr.supernode.runtime.run_clientapp import pull_task_input, push_message, push_task_output
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]

EARLIEST, LATEST = -SYSTEM_TIME_TOLERANCE, TIMESTAMP_TOLERANCE + SYSTEM_TIME_TOLERANCE
"""Seconds of a signature's age between which a SuperLink accepts it."""

LEASE = 60.0
"""Seconds for which a server counts a node as connected after its last heartbeat: 2 x 30."""


class RuntimeApi:
    """The Runtime API of a SuperNode, for the program that starts the processes of its tasks.

    All requests go through one client, which sets up TLS once.
    """

    def __init__(self, address: str, trusted: bytes, secret: bytes) -> None:
        self._token = _TaskToken()
        self._client = RuntimeHttpClient.from_server_address(
            address,
            insecure=False,
            root_certificates=trusted,
            interceptors=[
                RuntimeVersionHttpInterceptor(component_name="SuperExec"),
                SuperExecAuthHttpInterceptor(
                    master_secret=secret,
                    protected_methods=frozenset({"/flwr.proto.Runtime/AcquireTask"}),
                ),
                self._token,
            ],
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._client.close()

    def task(self) -> str:
        """Claim a task.

        Returns: Its token; "": there is no task.
        Raises httpx.HTTPError if the SuperNode does not answer, or refuses.
        """
        self._token.value = ""
        request = AcquireTaskRequest(supported_task_types=[TaskType.CLIENT_APP])
        return str(self._client.AcquireTask(request).token)

    def message(self, token: str) -> tuple[Message, Context, Run]:
        """Fetch the message of a claimed task, once. The SuperNode then forgets its content.

        Raises httpx.HTTPError, RuntimeError or ValueError if it is not there.
        """
        self._token.value = token
        message, context, run, _ = pull_task_input(self._client)
        return message, context, run

    def answer(self, token: str, reply: Message, context: Context) -> None:
        """Answer the message of a task, and end the task.

        context: its state replaces the state that the SuperNode has.
        Raises httpx.HTTPError if the SuperNode does not take the answer.
        """
        self._token.value = token
        push_message(self._client, reply, context)
        state = SubStatus.FAILED if reply.has_error() else SubStatus.COMPLETED
        push_task_output(self._client, context, state, "")

    def keep(self, token: str) -> bool:
        """Keep the claim of a task for one more minute; return whether the claim still holds.

        Raises httpx.TransportError if the SuperNode does not answer.
        """
        self._token.value = token
        try:
            return bool(self._client.SendTaskHeartbeat(SendTaskHeartbeatRequest()).success)
        except httpx.HTTPStatusError as error:
            return error.response.is_server_error  # an error that is not about the task


class _TaskToken:
    """Adds the token of a task to a request, unless it is empty."""

    def __init__(self) -> None:
        self.value = ""

    def intercept(self, context: ProtobufRequestContext, call: ProtobufCall) -> httpx.Response:
        if self.value:
            context.request.headers[TASK_TOKEN_HEADER] = self.value
        return call(context)


def refuses_activation(error: httpx.HTTPStatusError) -> bool:
    """Return whether a server refuses to activate a node: it is connected, or its key unknown."""
    answer = FlowerError.from_json(error.response.text)
    return answer is not None and answer.code == ApiErrorCode.FLEET_NODE_ACTIVATION_FAILED


def replies_are_own(body: bytes) -> bool:
    """Return whether all replies in a request state the node that brings them as their sender."""
    try:
        request = PushMessagesRequest.FromString(body)
    except DecodeError:
        return False
    return all(
        message.metadata.src_node_id == request.node.node_id for message in request.messages_list
    )


def signer(headers: Mapping[str, str]) -> EllipticCurvePublicKey | None:
    """Return the key that signed a node's request recently; None: no valid signature.

    It checks the headers as Flower's `superlink.routers.fleet.node_auth` does, but before the
    request is read.
    """
    try:
        key = bytes_to_public_key(b64decode(headers[FLEET_HTTP_PUBLIC_KEY_HEADER], validate=True))
        signature = b64decode(headers[FLEET_HTTP_SIGNATURE_HEADER], validate=True)
        signed = headers[TIMESTAMP_HEADER]
        age = (now() - datetime.fromisoformat(signed)).total_seconds()
    except (KeyError, ValueError, TypeError, UnsupportedAlgorithm):
        return None
    recent = EARLIEST < age < LATEST and signed.isascii()
    if not recent or not isinstance(key, EllipticCurvePublicKey):
        return None
    return key if verify_signature(key, signed.encode("ascii"), signature) else None
