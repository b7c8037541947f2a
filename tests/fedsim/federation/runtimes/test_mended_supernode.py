"""A SuperNode forgets what has ended, waits for what will end, and ends when it is not heard."""

import socket
import ssl
import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, HTTPServer

import httpx
import pytest
from flwr.app import Context, Message, RecordDict
from flwr.proto.fleet_pb2 import ActivateNodeRequest, ActivateNodeResponse
from flwr.proto.heartbeat_pb2 import SendNodeHeartbeatRequest, SendNodeHeartbeatResponse
from flwr.supercore.constant import TaskType
from flwr.supercore.error import ApiErrorCode, FlowerError
from flwr.supercore.inflatable.inflatable_object import get_object_tree
from flwr.supercore.object_store import ObjectStoreFactory
from flwr.supercore.run import Run, RunNotRunningException
from flwr.supernode import fleet_http_connection, start_client_internal
from flwr.supernode.fleet_http_client import FleetHttpClient
from flwr.supernode.nodestate import NodeStateFactory

from fedsim.deployment import kit
from fedsim.deployment.supernode import SUPERNODE, _supernode
from fedsim.federation.protocol.flower_private import assign_message_id, become_task
from fedsim.federation.runtimes import flower_command, mended_supernode
from fedsim.federation.runtimes.mended_supernode import FleetClient, mend

RUN, NODE = 3, 7
ENDED = ("while it is pulled", "before it is confirmed")


@pytest.fixture
def mended(monkeypatch):
    original = start_client_internal._pull_and_store_message
    monkeypatch.setattr(start_client_internal, "_pull_and_store_message", original)
    client = fleet_http_connection.FleetHttpClient
    monkeypatch.setattr(fleet_http_connection, "FleetHttpClient", client)
    mend()
    yield


def _after(ended):
    """Return what Flower says of a message whose run has ended, and what the node keeps of it."""
    factory = NodeStateFactory(objectstore_factory=ObjectStoreFactory())
    state = factory.state()
    state.set_node_id(NODE)
    run = Run.create_empty(run_id=RUN)
    run.primary_task_type = TaskType.SERVER_APP
    state.store_run(run)
    state.set_run_series_context(run.series_id, Context(RUN, NODE, {}, RecordDict(), {}))
    become_task(RUN, 1)
    message = Message(RecordDict(), NODE, "train")
    assign_message_id(message)
    content = {message.object_id: message.deflate()}

    def refuse(*_):
        raise RunNotRunningException

    def pull(_, object_id):
        return content.get(object_id, RecordDict().deflate())

    confirm = refuse
    answer = start_client_internal._pull_and_store_message(
        state=state,
        object_store=factory.objectstore_factory.store(),
        node_config={},
        receive=lambda: (message, get_object_tree(message)),
        get_run=refuse,
        get_fab=refuse,
        pull_object=refuse if ended == ENDED[0] else pull,
        confirm_message_received=confirm,
        trusted_entities=None,
    )
    return answer, state


@pytest.mark.parametrize("ended", ENDED)
def test_flower_alone_keeps_the_task_of_a_message_that_it_forgot(ended):
    """The fault that is mended: the mending goes once Flower mends it."""
    answer, state = _after(ended)
    assert answer is None
    assert [task.status.status for task in state.get_tasks()] == ["pending"]


@pytest.mark.parametrize("ended", ENDED)
@pytest.mark.usefixtures("mended")
def test_a_message_whose_run_has_ended_leaves_no_task(ended):
    answer, state = _after(ended)
    assert answer is None
    assert [task.status.status for task in state.get_tasks()] == ["finished"]
    assert list(state.get_messages_legacy(is_reply=False)) == []


class Server:
    """A server that counts an earlier start of a node as connected for some requests."""

    def __init__(self, connected):
        self.connected = connected

    def __call__(self, request):
        code = ApiErrorCode.FLEET_NODE_ACTIVATION_FAILED
        if not self.connected:
            return httpx.Response(
                200, content=ActivateNodeResponse(node_id=NODE).SerializeToString()
            )
        self.connected -= 1
        return httpx.Response(400, json=FlowerError(code, "no", "no").to_json("refused"))


@pytest.fixture
def connecting(monkeypatch):
    """Return a function that connects a SuperNode to a server; it returns the node's number."""

    def connect(server):
        client = FleetClient("http://server", interceptors=())
        client._client = httpx.Client(
            base_url="http://server", transport=httpx.MockTransport(server)
        )
        with client._client:
            return client.ActivateNode(ActivateNodeRequest(heartbeat_interval=30)).node_id

    monkeypatch.setattr(mended_supernode, "RETRY_INTERVAL", 0.01)
    monkeypatch.setattr(mended_supernode, "SILENCE", 1e9)
    return connect


def test_a_supernode_waits_until_its_earlier_start_counts_as_gone(connecting, caplog):
    assert connecting(Server(connected=3)) == NODE
    assert caplog.text.count("still counts an earlier start as connected") == 3


def test_a_supernode_whose_key_is_unknown_ends_after_a_minute(connecting, monkeypatch):
    monkeypatch.setattr(mended_supernode, "LEASE", 0.03)
    with pytest.raises(httpx.HTTPStatusError):
        connecting(Server(connected=99))


def test_a_supernode_ends_once_the_server_has_not_heard_it(monkeypatch):
    answers = iter([True] * 3)

    def beat(*_):
        return SendNodeHeartbeatResponse(success=next(answers, False))

    monkeypatch.setattr(FleetHttpClient, "SendNodeHeartbeat", beat)
    client, ended = FleetClient("http://server", interceptors=()), list[str]()
    quiet = []

    def sleep(_):
        client.SendNodeHeartbeat(SendNodeHeartbeatRequest())
        quiet.append(client.quiet)

    monkeypatch.setattr(time, "sleep", sleep)
    client.watch(2, ended.append)
    assert quiet == [0, 0, 0, 1]  # each look counts one second
    assert ended == ["the server has answered no heartbeat of this node for 2 s"]


class Failing(BaseHTTPRequestHandler):
    """A server that lets a node connect, and then has a full disk."""

    def do_POST(self):
        self.rfile.read(int(self.headers["content-length"]))
        accepts = self.path.endswith("/activate-node")
        content = ActivateNodeResponse(node_id=NODE).SerializeToString() if accepts else b""
        self.send_response(200 if accepts else 500)
        self.send_header("content-type", "application/protobuf")
        self.send_header("content-length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_):
        pass


@pytest.mark.slow
def test_a_supernode_whose_server_fails_ends(tmp_path):
    """Flower's own would live on without a connection, so that nothing starts another."""
    kit.write_kit(tmp_path / "kit", "127.0.0.1", 8443, 2)
    place, server = tmp_path / "kit" / "clients" / "client-0", tmp_path / "kit" / "server"
    with HTTPServer(("127.0.0.1", 0), Failing) as failing:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(server / "server.crt", server / "server.key")
        failing.socket = context.wrap_socket(failing.socket, server_side=True)
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            free = probe.getsockname()[1]
        settings = f"SUPERLINK=127.0.0.1:{failing.server_port}\nNODE_PORT={free}\n"
        (place / "settings.env").write_text(settings)
        threading.Thread(target=failing.serve_forever, daemon=True).start()
        command, own = _supernode(place), flower_command.environment(tmp_path / "flower")
        said = subprocess.run(
            command,
            env=own,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
            timeout=120,
        )
        failing.shutdown()
    assert (said.returncode, "SuperNode ID: 7" in said.stdout) == (1, True), said.stdout
    assert "Server error '500 Internal Server Error'" in said.stdout


def test_a_nodes_program_is_flowers():
    command = [sys.executable, "-m", SUPERNODE, "--help"]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert "--superlink" in said
