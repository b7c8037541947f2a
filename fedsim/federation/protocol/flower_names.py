"""The private parts of Flower that fedsim imports, in one table, each loaded at its first use.

Flower may move them in any release. `tests/test_flower_names.py` then names the row, whose last
column says what it is for and so what to look for. `flower_names.pyi` has the types.
"""

from importlib import import_module
from typing import Any

ROWS = (
    ("flwr.supercore.run", "Run RunNotRunningException", "a run's description without a SuperLink"),
    ("flwr.supercore.task_identity", "TaskIdentity", "the task that a ClientApp believes to be"),
    ("flwr.supercore.inflatable.inflatable_object", "InflatableObject", "the size of a record"),
    ("flwr.compat.common", "recorddict_compat", "the reply that secaggplus_mod reads"),
    ("flwr.common", "Code FitRes Status bytes_to_ndarray ndarrays_to_parameters", "the same"),
    ("flwr.client.mod", "secaggplus_mod", "the client's part of secure aggregation"),
    ("flwr.common.secure_aggregation.crypto.shamir", "combine_shares", "secure aggregation"),
    (
        "flwr.common.secure_aggregation.secaggplus_constants",
        "Key RECORD_KEY_CONFIGS Stage",
        "secure aggregation: names in its messages",
    ),
    (
        "flwr.common.secure_aggregation.secaggplus_utils",
        "pseudo_rand_gen",
        "secure aggregation: the mask of a seed",
    ),
    (
        "flwr.supercore.primitives.asymmetric",
        "bytes_to_public_key verify_signature",
        "keys and signatures, as Flower writes them",
    ),
    (
        "flwr.common.constant",
        "ErrorCode SYSTEM_TIME_TOLERANCE SubStatus TIMESTAMP_HEADER TIMESTAMP_TOLERANCE",
        "error codes of nodes; the signed time of a request",
    ),
    (
        "flwr.supercore.constant",
        "FLEET_HTTP_PUBLIC_KEY_HEADER FLEET_HTTP_SIGNATURE_HEADER TASK_TOKEN_HEADER TaskType",
        "headers of a node's requests, and of a task's",
    ),
    ("flwr.supercore.date", "now", "the clock of signatures"),
    ("flwr.supercore.error", "ApiErrorCode FlowerError", "why a request was refused"),
    (
        "flwr.supercore.interceptors",
        "RuntimeVersionHttpInterceptor SuperExecAuthHttpInterceptor",
        "requests of a task's process to its SuperNode",
    ),
    (
        "flwr.supercore.protobuf.client",
        "ProtobufCall ProtobufRequestContext",
        "the same, as messages",
    ),
    ("flwr.supercore.runtime", "RuntimeHttpClient", "the same, as a client"),
    (
        "flwr.proto.fleet_pb2",
        "ActivateNodeRequest ActivateNodeResponse PushMessagesRequest",
        "requests of a node that the proxy reads",
    ),
    (
        "flwr.proto.heartbeat_pb2",
        "SendNodeHeartbeatRequest SendNodeHeartbeatResponse",
        "a node's heartbeat",
    ),
    ("flwr.proto.runtime_pb2", "AcquireTaskRequest SendTaskHeartbeatRequest", "a task's requests"),
    ("flwr.simulation", "run_simulation", "the simulation runtime; public, but deprecated"),
    ("flwr.supernode", "fleet_http_connection start_client_internal", "the SuperNode's loop"),
    ("flwr.supernode.cli", "flower_supernode", "the SuperNode's command"),
    ("flwr.supernode.fleet_http_client", "FleetHttpClient", "a SuperNode's requests"),
    (
        "flwr.supernode.runtime.run_clientapp",
        "pull_task_input push_message push_task_output",
        "what a ClientApp's process gets and returns",
    ),
    ("flwr.server.compat", "LegacyContext app", "apps of the older flwr.server"),
)
"""Module, its names, and what they are for."""

MODULES = {name: module for module, names, _ in ROWS for name in names.split()}


def __getattr__(name: str) -> Any:
    if name in MODULES:
        module = import_module(MODULES[name])
        # A name may be a module of the package.
        found = hasattr(module, name)
        return getattr(module, name) if found else import_module(f"{MODULES[name]}.{name}")
    raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
