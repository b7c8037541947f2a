from flwr.client.mod import secaggplus_mod as secaggplus_mod
from flwr.common import Code as Code
from flwr.common import FitRes as FitRes
from flwr.common import Status as Status
from flwr.common import bytes_to_ndarray as bytes_to_ndarray
from flwr.common import ndarrays_to_parameters as ndarrays_to_parameters
from flwr.common.constant import SYSTEM_TIME_TOLERANCE as SYSTEM_TIME_TOLERANCE
from flwr.common.constant import TIMESTAMP_HEADER as TIMESTAMP_HEADER
from flwr.common.constant import TIMESTAMP_TOLERANCE as TIMESTAMP_TOLERANCE
from flwr.common.constant import ErrorCode as ErrorCode
from flwr.common.constant import SubStatus as SubStatus
from flwr.common.secure_aggregation.crypto.shamir import combine_shares as combine_shares
from flwr.common.secure_aggregation.secaggplus_constants import (
    RECORD_KEY_CONFIGS as RECORD_KEY_CONFIGS,
)
from flwr.common.secure_aggregation.secaggplus_constants import Key as Key
from flwr.common.secure_aggregation.secaggplus_constants import Stage as Stage
from flwr.common.secure_aggregation.secaggplus_utils import pseudo_rand_gen as pseudo_rand_gen
from flwr.compat.common import recorddict_compat as recorddict_compat
from flwr.proto.fleet_pb2 import ActivateNodeRequest as ActivateNodeRequest
from flwr.proto.fleet_pb2 import ActivateNodeResponse as ActivateNodeResponse
from flwr.proto.fleet_pb2 import PushMessagesRequest as PushMessagesRequest
from flwr.proto.heartbeat_pb2 import SendNodeHeartbeatRequest as SendNodeHeartbeatRequest
from flwr.proto.heartbeat_pb2 import SendNodeHeartbeatResponse as SendNodeHeartbeatResponse
from flwr.proto.runtime_pb2 import AcquireTaskRequest as AcquireTaskRequest
from flwr.proto.runtime_pb2 import SendTaskHeartbeatRequest as SendTaskHeartbeatRequest
from flwr.server.compat import LegacyContext as LegacyContext
from flwr.server.compat import app as app
from flwr.simulation import run_simulation as run_simulation
from flwr.supercore.constant import FLEET_HTTP_PUBLIC_KEY_HEADER as FLEET_HTTP_PUBLIC_KEY_HEADER
from flwr.supercore.constant import FLEET_HTTP_SIGNATURE_HEADER as FLEET_HTTP_SIGNATURE_HEADER
from flwr.supercore.constant import TASK_TOKEN_HEADER as TASK_TOKEN_HEADER
from flwr.supercore.constant import TaskType as TaskType
from flwr.supercore.date import now as now
from flwr.supercore.error import ApiErrorCode as ApiErrorCode
from flwr.supercore.error import FlowerError as FlowerError
from flwr.supercore.inflatable.inflatable_object import InflatableObject as InflatableObject
from flwr.supercore.interceptors import (
    RuntimeVersionHttpInterceptor as RuntimeVersionHttpInterceptor,
)
from flwr.supercore.interceptors import SuperExecAuthHttpInterceptor as SuperExecAuthHttpInterceptor
from flwr.supercore.primitives.asymmetric import bytes_to_public_key as bytes_to_public_key
from flwr.supercore.primitives.asymmetric import verify_signature as verify_signature
from flwr.supercore.protobuf.client import ProtobufCall as ProtobufCall
from flwr.supercore.protobuf.client import ProtobufRequestContext as ProtobufRequestContext
from flwr.supercore.run import Run as Run
from flwr.supercore.run import RunNotRunningException as RunNotRunningException
from flwr.supercore.runtime import RuntimeHttpClient as RuntimeHttpClient
from flwr.supercore.task_identity import TaskIdentity as TaskIdentity
from flwr.supernode import fleet_http_connection as fleet_http_connection
from flwr.supernode import start_client_internal as start_client_internal
from flwr.supernode.cli import flower_supernode as flower_supernode
from flwr.supernode.fleet_http_client import FleetHttpClient as FleetHttpClient
from flwr.supernode.runtime.run_clientapp import pull_task_input as pull_task_input
from flwr.supernode.runtime.run_clientapp import push_message as push_message
from flwr.supernode.runtime.run_clientapp import push_task_output as push_task_output

ROWS: tuple[tuple[str, str, str], ...]
MODULES: dict[str, str]
