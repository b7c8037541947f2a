"""The private parts of Flower's services, at a node and at a server, that fedsim uses.

They have moved between releases; tests watch them. The processes of a run do not load this module:
`protocol.flower_private` has the parts that they use.
"""

import json
import ssl
from base64 import b64decode
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Self

import httpx
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ec import (
    EllipticCurvePrivateKey,
    EllipticCurvePublicKey,
)
from flwr.app import Context, Message
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]

from adversaries.errors import InputError
from fedsim.federation.protocol.flower_names import (
    FLEET_HTTP_PUBLIC_KEY_HEADER,
    FLEET_HTTP_SIGNATURE_HEADER,
    SYSTEM_TIME_TOLERANCE,
    TASK_TOKEN_HEADER,
    TIMESTAMP_HEADER,
    TIMESTAMP_TOLERANCE,
    AcquireTaskRequest,
    ActivateNodeRequest,
    ApiErrorCode,
    FleetHttpClient,
    FlowerError,
    NodeAuthHttpInterceptor,
    ProtobufCall,
    ProtobufRequestContext,
    PushMessagesRequest,
    Run,
    RuntimeHttpClient,
    RuntimeVersionHttpInterceptor,
    RuntimeVersionMetadata,
    SendTaskHeartbeatRequest,
    SubStatus,
    SuperExecAuthHttpInterceptor,
    TaskType,
    bytes_to_public_key,
    now,
    public_key_to_bytes,
    pull_task_input,
    push_message,
    push_task_output,
    verify_signature,
)

EARLIEST, LATEST = -SYSTEM_TIME_TOLERANCE, TIMESTAMP_TOLERANCE + SYSTEM_TIME_TOLERANCE
"""Seconds of a signature's age between which a SuperLink accepts it."""

LEASE = 60.0
"""Seconds for which a server counts a node as connected after its last heartbeat: 2 x 30."""

ACTIVATION: dict[int, bool] = {
    ApiErrorCode.FLEET_INVALID_HEARTBEAT_INTERVAL: True,
    ApiErrorCode.FLEET_NODE_ACTIVATION_FAILED: False,
}
"""Whether a server knows a node's key, by the code of its refusal to activate the node."""


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


def gives_tasks_to_anybody(url: str) -> bool | None:
    """Return whether a Runtime API requires no secret. It claims no task.

    Returns: None where there is no Runtime API.
    """
    version = RuntimeVersionHttpInterceptor(component_name="SuperExec")
    client = RuntimeHttpClient(url, interceptors=[version], verify=False, timeout=5)
    try:
        client.AcquireTask(AcquireTaskRequest(supported_task_types=[]))
    except httpx.HTTPStatusError:
        return False
    except (httpx.HTTPError, ValueError):
        return None
    finally:
        client.close()
    return True


class _Version:
    """Sends the version of this Flower. Flower's own class would end the process on a refusal."""

    def intercept(self, context: ProtobufRequestContext, call: ProtobufCall) -> httpx.Response:
        metadata = RuntimeVersionMetadata.from_local_component("SuperNode").as_metadata()
        context.request.headers.update(dict(metadata))
        return call(context)


def server_knows(url: str, trusted: ssl.SSLContext, key: EllipticCurvePrivateKey) -> bool | None:
    """Return whether a node's key is registered.

    It requests an activation with an interval that no server grants. A server checks the interval
    after the key.

    Returns: None if the server does not accept the node's signature.
    Raises httpx.HTTPError if the server answers otherwise.
    Raises InputError if the server has another minor version of Flower.
    """
    public = key.public_key()
    interceptors = (_Version(), NodeAuthHttpInterceptor(key, public))
    client = FleetHttpClient(url, interceptors=interceptors, verify=trusted, timeout=5)
    try:
        return _knows(client, public_key_to_bytes(public))
    finally:
        client.close()


def _knows(client: FleetHttpClient, key: bytes) -> bool | None:
    request = ActivateNodeRequest(public_key=key, heartbeat_interval=0)
    try:
        FleetHttpClient.ActivateNode(client, request)
    except httpx.HTTPStatusError as error:
        if error.response.status_code == httpx.codes.UNAUTHORIZED:
            return None
        answer = FlowerError.from_json(error.response.text)
        if answer is not None and answer.code == ApiErrorCode.RUNTIME_VERSION_INCOMPATIBLE:
            raise InputError(f"the server refuses this node: {answer.public_details}") from None
        if answer is None or answer.code not in ACTIVATION:
            raise
        return ACTIVATION[answer.code]
    return True


def refuses_second_start(
    error: httpx.HTTPStatusError, client: FleetHttpClient, request: ActivateNodeRequest
) -> bool:
    """Return whether a server refuses to activate a node whose key it knows: it is connected."""
    answer = FlowerError.from_json(error.response.text)
    refused = answer is not None and answer.code == ApiErrorCode.FLEET_NODE_ACTIVATION_FAILED
    return refused and bool(_knows(client, request.public_key))


def refused_version(headers: Mapping[str, str]) -> str | None:
    """Return a SuperLink's refusal of a node with another Flower, which ends the node's SuperNode.

    Flower's own SuperLink accepts every version.

    Returns: Flower's JSON; None for the same major and minor version, or a node that states none.
    """
    own = RuntimeVersionMetadata.from_local_component("SuperLink")
    peer, unreadable = RuntimeVersionMetadata.from_metadata(tuple(headers.items()))
    if unreadable is None and own.check_compatibility(peer) is None:
        return None
    has = f"Flower {peer.package_version}" if peer else "a Flower of an unknown version"
    details = (
        f"it has {has}, but the server has {own.package_version}, a mismatch; run pip install "
        f"flwr=={own.package_version} on the node's machine, and restart it"
    )
    code = ApiErrorCode.RUNTIME_VERSION_INCOMPATIBLE
    return json.dumps(FlowerError(code, details, details).to_json("another version of Flower"))


def replies_are_own(body: bytes) -> bool:
    """Return whether all replies in a request state the node that brings them as their sender."""
    try:
        request = PushMessagesRequest.FromString(body)
    except DecodeError:
        return False
    return all(
        message.metadata.src_node_id == request.node.node_id for message in request.messages_list
    )


@dataclass(frozen=True)
class SignedRequest:
    """The claims in the headers of a node's request.

    Attributes:
        key: the node's public key.
        signature: signature of `signed`.
        signed: time of signing, in ISO 8601.
        age: seconds since then, by this machine's clock.
    """

    key: EllipticCurvePublicKey
    signature: bytes
    signed: str
    age: float


def claim(headers: Mapping[str, str]) -> SignedRequest | None:
    """Return the claims of a request; None if they are missing or unreadable."""
    try:
        key = bytes_to_public_key(b64decode(headers[FLEET_HTTP_PUBLIC_KEY_HEADER], validate=True))
        signature = b64decode(headers[FLEET_HTTP_SIGNATURE_HEADER], validate=True)
        signed = headers[TIMESTAMP_HEADER]
        age = (now() - datetime.fromisoformat(signed)).total_seconds()
    except (KeyError, ValueError, TypeError, UnsupportedAlgorithm):
        return None
    return (
        SignedRequest(key, signature, signed, age)
        if isinstance(key, EllipticCurvePublicKey)
        else None
    )


def signer(headers: Mapping[str, str]) -> EllipticCurvePublicKey | None:
    """Return the key that signed a node's request recently; None: no valid signature.

    It checks the headers as Flower's `superlink.routers.fleet.node_auth` does, but before the
    request is read.
    """
    claimed = claim(headers)
    if claimed is None or not EARLIEST < claimed.age < LATEST or not claimed.signed.isascii():
        return None
    genuine = verify_signature(claimed.key, claimed.signed.encode("ascii"), claimed.signature)
    return claimed.key if genuine else None
