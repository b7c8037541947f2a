"""The parts of Flower's services, at a node and at a server, that fedsim touches.

They are not public and have moved between releases; tests watch them. The processes of a run load
nothing of this module: `protocol.flower_private` has what they touch.
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
from flwr.app import Error, Message
from flwr.common.constant import (
    SYSTEM_TIME_TOLERANCE,
    TIMESTAMP_HEADER,
    TIMESTAMP_TOLERANCE,
    ErrorCode,
    SubStatus,
)
from flwr.proto.fleet_pb2 import ActivateNodeRequest, PushMessagesRequest
from flwr.proto.runtime_pb2 import AcquireTaskRequest, SendTaskHeartbeatRequest
from flwr.supercore.constant import (
    FLEET_HTTP_PUBLIC_KEY_HEADER,
    FLEET_HTTP_SIGNATURE_HEADER,
    TASK_TOKEN_HEADER,
    TaskType,
)
from flwr.supercore.date import now
from flwr.supercore.error import ApiErrorCode, FlowerError
from flwr.supercore.interceptors import RuntimeVersionHttpInterceptor, SuperExecAuthHttpInterceptor
from flwr.supercore.primitives.asymmetric import (
    bytes_to_public_key,
    public_key_to_bytes,
    verify_signature,
)
from flwr.supercore.protobuf.client import ProtobufCall, ProtobufRequestContext
from flwr.supercore.runtime import RuntimeHttpClient
from flwr.supercore.runtime_version_compatibility import RuntimeVersionMetadata
from flwr.supernode.fleet_http_client import FleetHttpClient
from flwr.supernode.node_auth_http_interceptor import NodeAuthHttpInterceptor
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]
from starlette.types import ASGIApp

from adversaries.errors import InputError

EARLIEST, LATEST = -SYSTEM_TIME_TOLERANCE, TIMESTAMP_TOLERANCE + SYSTEM_TIME_TOLERANCE
"""Between these numbers of seconds a signature is old, or a SuperLink refuses the node."""

ACTIVATION: dict[int, bool] = {
    ApiErrorCode.FLEET_INVALID_HEARTBEAT_INTERVAL: True,
    ApiErrorCode.FLEET_NODE_ACTIVATION_FAILED: False,
}
"""Whether a server that refuses to activate a node so knows its key."""


class Runtime:
    """The Runtime API of a SuperNode, for the program that starts the processes of its tasks.

    All requests go through one client, so that TLS is set up once.
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

        Returns:
            Its token, "" where there is none.

        Raises:
            httpx.HTTPError: the SuperNode does not answer, or refuses.
        """
        self._token.value = ""
        request = AcquireTaskRequest(supported_task_types=[TaskType.CLIENT_APP])
        return str(self._client.AcquireTask(request).token)

    def keep(self, token: str) -> bool:
        """Keep the claim of a task for a minute more; return whether the claim still holds.

        A task whose claim ends is handed out again, or answered with an error if its process has
        begun with the message.

        Raises:
            httpx.TransportError: the SuperNode does not answer.
        """
        self._token.value = token
        try:
            return bool(self._client.SendTaskHeartbeat(SendTaskHeartbeatRequest()).success)
        except httpx.HTTPStatusError as error:
            return error.response.is_server_error  # which says nothing about the task

    def fail(self, token: str, reason: str) -> None:
        """Answer a task's message with an error, in place of a process that never read it.

        Args:
            reason: what the server is to learn.

        Raises:
            httpx.HTTPError: the SuperNode does not answer; or a process has read the message, so
                that Flower answers with an error once the claim ends.
        """
        # No other process needs what it brings.
        from flwr.supernode.runtime.run_clientapp import (  # noqa: PLC0415
            pull_task_input,
            push_message,
            push_task_output,
        )

        self._token.value = token
        message, context, _, _ = pull_task_input(self._client)
        error = Error(ErrorCode.CLIENT_APP_CRASHED, reason)
        push_message(self._client, Message(error, reply_to=message), context)
        push_task_output(self._client, context, SubStatus.FAILED, reason)


class _TaskToken:
    """Adds the token of a task to a request; none while it is empty."""

    def __init__(self) -> None:
        self.value = ""

    def intercept(self, context: ProtobufRequestContext, call: ProtobufCall) -> httpx.Response:
        if self.value:
            context.request.headers[TASK_TOKEN_HEADER] = self.value
        return call(context)


def gives_tasks_to_anybody(url: str) -> bool | None:
    """Return whether a Runtime API wants no secret. Claims no task.

    url: https:// or http://.
    Returns: none where there is no Runtime API.
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
    """Tells the server this Flower's version; Flower's own ends the process where it is refused."""

    def intercept(self, context: ProtobufRequestContext, call: ProtobufCall) -> httpx.Response:
        told = RuntimeVersionMetadata.from_local_component("SuperNode").as_metadata()
        context.request.headers.update(dict(told))
        return call(context)


def server_knows(url: str, trusted: ssl.SSLContext, key: EllipticCurvePrivateKey) -> bool | None:
    """Return whether a node's key is registered.

    Asks to activate the node for an interval that no server grants, which is looked at after the
    key.

    Args:
        url: of the SuperLink's Fleet API.

    Returns:
        None where the server takes no signature of it.

    Raises:
        httpx.HTTPError: the answer is another.
        InputError: the server has a Flower of another minor version.
    """
    public = key.public_key()
    told = (_Version(), NodeAuthHttpInterceptor(key, public))
    client = FleetHttpClient(url, interceptors=told, verify=trusted, timeout=5)
    request = ActivateNodeRequest(public_key=public_key_to_bytes(public), heartbeat_interval=0)
    try:
        client.ActivateNode(request)
    except httpx.HTTPStatusError as error:
        if error.response.status_code == httpx.codes.UNAUTHORIZED:
            return None
        answer = FlowerError.from_json(error.response.text)
        if answer is not None and answer.code == ApiErrorCode.RUNTIME_VERSION_INCOMPATIBLE:
            raise InputError(f"the server refuses this node: {answer.public_details}") from None
        if answer is None or answer.code not in ACTIVATION:
            raise
        return ACTIVATION[answer.code]
    finally:
        client.close()
    return True


def refused_version(headers: Mapping[str, str]) -> str | None:
    """Return a SuperLink's refusal of a node with another Flower, by which its SuperNode ends.

    Flower's own SuperLink lets every version in.

    headers: of the node's request.
    Returns: flower's JSON; None where major and minor version are the same, or the node tells none.
    """
    own = RuntimeVersionMetadata.from_local_component("SuperLink")
    peer, unreadable = RuntimeVersionMetadata.from_metadata(tuple(headers.items()))
    if unreadable is None and own.check_compatibility(peer) is None:
        return None
    has = f"Flower {peer.package_version}" if peer else "a Flower that does not say which"
    details = (
        f"it has {has}, but the server {own.package_version}, a mismatch: pip install "
        f"flwr=={own.package_version} on the node's machine, and restart it"
    )
    code = ApiErrorCode.RUNTIME_VERSION_INCOMPATIBLE
    return json.dumps(FlowerError(code, details, details).to_json("another version of Flower"))


def replies_are_own(body: bytes) -> bool:
    """Return whether a request that brings replies says that all are of the node that brings them.

    body: of the request; False for one that cannot be read.
    """
    try:
        request = PushMessagesRequest.FromString(body)
    except DecodeError:
        return False
    return all(
        message.metadata.src_node_id == request.node.node_id for message in request.messages_list
    )


@dataclass(frozen=True)
class Signed:
    """What the headers of a node's request say.

    Attributes:
        key: whose it is.
        signature: of `signed`.
        signed: the time of signing, in ISO 8601.
        age: seconds since it was signed, by the clock of here.
    """

    key: EllipticCurvePublicKey
    signature: bytes
    signed: str
    age: float


def claim(headers: Mapping[str, str]) -> Signed | None:
    """Return what a request says of itself; None where it says nothing that can be read."""
    try:
        key = bytes_to_public_key(b64decode(headers[FLEET_HTTP_PUBLIC_KEY_HEADER], validate=True))
        signature = b64decode(headers[FLEET_HTTP_SIGNATURE_HEADER], validate=True)
        signed = headers[TIMESTAMP_HEADER]
        age = (now() - datetime.fromisoformat(signed)).total_seconds()
    except (KeyError, ValueError, TypeError, UnsupportedAlgorithm):
        return None
    return Signed(key, signature, signed, age) if isinstance(key, EllipticCurvePublicKey) else None


def signer(headers: Mapping[str, str]) -> EllipticCurvePublicKey | None:
    """Return the key that signed a node's request now, by its headers alone; None where none did.

    As Flower's `superlink.routers.fleet.node_auth` does, once it has read the request.
    """
    said = claim(headers)
    if said is None or not EARLIEST < said.age < LATEST or not said.signed.isascii():
        return None
    genuine = verify_signature(said.key, said.signed.encode("ascii"), said.signature)
    return said.key if genuine else None


def superlink_app() -> ASGIApp:
    """Return the SuperLink that the arguments of this process ask for, but for its socket.

    As Flower's `flower-superlink` does, before it serves what it has made.
    """
    # No client and no auditor needs what it brings.
    from flwr.superlink.cli.flower_superlink import (  # noqa: PLC0415
        SuperLinkLifespan,
        _parse_superlink_lifespan_config,
    )
    from flwr.superlink.main import create_app  # noqa: PLC0415

    return create_app(_parse_superlink_lifespan_config(), SuperLinkLifespan)
