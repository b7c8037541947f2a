"""The proxy passes the Fleet API unchanged, and nothing by any spelling of another path."""

import asyncio
import ssl
from datetime import timedelta
from types import SimpleNamespace
from urllib.parse import unquote

import httpx
import pytest
from cryptography.hazmat.primitives.serialization import load_ssh_private_key
from flwr.proto.fleet_pb2 import PushMessagesRequest
from flwr.proto.message_pb2 import Message, Metadata
from flwr.proto.node_pb2 import Node
from flwr.supernode import node_auth_http_interceptor
from flwr.supernode.node_auth_http_interceptor import NodeAuthHttpInterceptor
from starlette.applications import Starlette
from starlette.responses import Response
from starlette.routing import Route

from fedsim.deployment import certificates, kit, proxy


@pytest.fixture
def seen():
    """The paths that reached the SuperLink."""
    return []


@pytest.fixture
def keys(tmp_path):
    """The folder of the nodes' public keys."""
    (tmp_path / "keys").mkdir()
    return tmp_path / "keys"


@pytest.fixture
def signed(keys):
    """The headers of a node whose key the server has."""
    pair = certificates.node_key()
    (keys / "client-0.pub").write_bytes(pair.public)
    return _signed_by(pair)


def _signed_by(pair):
    """The headers that Flower's SuperNode gives to a request."""
    key = load_ssh_private_key(pair.private, password=None)
    request = httpx.Request("POST", "https://superlink")
    context = SimpleNamespace(request=request)
    NodeAuthHttpInterceptor(key, key.public_key()).intercept(context, lambda _: httpx.Response(200))
    return {name: value for name, value in request.headers.items() if name.startswith("flwr-")}


@pytest.fixture
def ask(monkeypatch, seen, keys):
    """Return a function that sends bytes to the proxy as they would come off the wire.

    Behind the proxy is a SuperLink that answers every path with the body backwards.
    """

    async def superlink(request):
        seen.append(request.url.path)
        if "x-unplugged" in request.headers:
            raise httpx.ConnectError("refused")
        body = await request.body()
        return Response(body[::-1], 418, {"x-answer": request.headers.get("x-question", "")})

    behind = Starlette(routes=[Route("/{path:path}", superlink, methods=["GET", "POST", "PUT"])])
    real = httpx.AsyncClient

    def connected(**options):
        transport = httpx.ASGITransport(app=behind)
        return real(base_url=options["base_url"], transport=transport)

    monkeypatch.setattr(proxy.httpx, "AsyncClient", connected)
    app = proxy.application("https://superlink", ssl.create_default_context(), keys)

    async def send(target, method, body, headers):
        path, _, query = target.partition("?")
        scope = {
            "type": "http",
            "method": method,
            "path": unquote(path),
            "raw_path": path.encode(),
            "query_string": query.encode(),
            "headers": [(name.encode(), value.encode()) for name, value in headers.items()],
            "server": ("proxy", 443),
            "scheme": "https",
            "app": app,
        }
        sent = []
        received = iter([{"type": "http.request", "body": body}, {"type": "http.disconnect"}])

        async def receive():
            return next(received)

        async def reply(message):
            sent.append(message)

        async with app.router.lifespan_context(app):
            await app(scope, receive, reply)
        found = {name.decode(): value.decode() for name, value in sent[0]["headers"]}
        return sent[0]["status"], found, b"".join(part.get("body", b"") for part in sent[1:])

    def ask(target, method="POST", body=b"", **headers):
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return asyncio.run(send(target, method, body, named))

    return ask


def test_a_request_and_its_answer_pass_unchanged(ask, seen):
    body = bytes(range(256)) * 1000
    status, headers, answer = ask("/v1/fleet/pull-messages", body=body, x_question="why")
    assert (status, headers["x-answer"], answer) == (418, "why", body[::-1])
    assert seen == ["/v1/fleet/pull-messages"]


@pytest.mark.parametrize(
    "target",
    [
        "/v1/control/list-runs",
        "/v1/runtime/push-messages",
        "/",
        "/v1/fleet/",
        "/v1/fleet/../control/list-runs",
        "/v1/fleet/%2e%2e/control/list-runs",
        "/v1/fleet/..%2fcontrol%2flist-runs",
        "/v1//fleet/pull-messages",
        "//v1/control/list-runs",
        "/v1/fleet/pull-messages/../../control/list-runs",
        "/v1/fleet/pull-messages?next=/v1/control/list-runs",
        "/V1/FLEET/pull-messages",
        "/v1/fleet/pull-messages%0a",
    ],
)
def test_no_other_path_passes(ask, seen, target):
    assert ask(target)[0] == 403
    assert seen == []


@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE", "OPTIONS"])
def test_no_other_method_passes(ask, seen, method):
    assert ask("/v1/fleet/pull-messages", method)[0] == 403
    assert seen == []


def test_a_superlink_that_is_away_is_said_so(ask):
    status, _, answer = ask("/v1/fleet/pull-messages", x_unplugged="yes")
    assert (status, answer) == (502, b"the SuperLink does not answer\n")


def _reply(node, *claimed):
    replies = [Message(metadata=Metadata(src_node_id=each)) for each in claimed]
    request = PushMessagesRequest(node=Node(node_id=node), messages_list=replies)
    return bytes(request.SerializeToString())


def test_a_node_replies_in_its_own_name_only(ask, seen):
    own = _reply(7, 7)
    assert ask("/v1/fleet/push-messages", body=own)[::2] == (418, own[::-1])
    for forged in (_reply(7, 8), _reply(7, 7, 8), _reply(7, 0), b"\xff\xff"):
        status, _, answer = ask("/v1/fleet/push-messages", body=forged)
        assert (status, answer) == (403, b"a node must reply in its own name\n")
    assert seen == ["/v1/fleet/push-messages"]


@pytest.mark.parametrize(
    ("path", "headers"),
    [
        ("push-object", {"content_length": str((1 << 30) + 1)}),
        ("push-object", {"content_length": "much"}),
        ("push-object", {"transfer_encoding": "chunked"}),
        ("push-messages", {"content_length": str((1 << 26) + 1)}),
    ],
)
def test_what_is_too_long_is_refused_before_it_is_read(ask, seen, signed, path, headers):
    assert ask(f"/v1/fleet/{path}", **signed, **headers)[0] == 413
    assert seen == []


LONG = {"content_length": str((1 << 16) + 1)}


@pytest.mark.parametrize("path", ["push-object", "push-messages", "pull-messages"])
def test_what_is_long_passes_for_a_node_whose_key_the_server_has_and_for_nobody_else(
    ask, seen, signed, path
):
    stranger = _signed_by(certificates.node_key())
    named = signed | {"flwr-signature": stranger["flwr-signature"]}
    undated = signed | {"flwr-timestamp": "now"}
    garbled = signed | {"flwr-public-key": "%"}
    for headers in ({}, stranger, named, undated, garbled):
        status, _, answer = ask(f"/v1/fleet/{path}", **LONG, **headers)
        assert (status, answer) == (401, b"no key of the server's keys/ signed it\n")
    assert seen == []
    assert ask(f"/v1/fleet/{path}", body=_reply(7), **LONG, **signed)[0] == 418


def test_a_signature_grows_old(ask, keys, monkeypatch):
    pair = certificates.node_key()
    (keys / "client-0.pub").write_bytes(pair.public)
    real = node_auth_http_interceptor.now
    monkeypatch.setattr(node_auth_http_interceptor, "now", lambda: real() - timedelta(minutes=10))
    assert ask("/v1/fleet/push-object", **LONG, **_signed_by(pair))[0] == 401


def test_a_key_may_come_and_go_while_the_proxy_runs(ask, keys, signed):
    (keys / "notes.pub").write_text("not a key")
    assert ask("/v1/fleet/push-object", **LONG, **signed)[0] == 418
    (keys / "client-0.pub").unlink()
    assert ask("/v1/fleet/push-object", **LONG, **signed)[0] == 401


def test_what_is_short_is_for_the_superlink_to_refuse(ask, seen):
    assert ask("/v1/fleet/pull-messages", body=b"x" * 100, content_length="100")[0] == 418
    assert seen == ["/v1/fleet/pull-messages"]


def test_connections_are_limited(tmp_path):
    kit.write_kit(tmp_path / "kit", "127.0.0.1", 8443, 2)
    config = proxy.configuration("127.0.0.1", 8443, 8000, tmp_path / "kit" / "server")
    assert config.limit_concurrency == proxy.CONNECTIONS


def test_what_is_refused_is_logged_with_whose_it_is(ask, keys, caplog):
    ask("/v1/control/\x1b[31mlist-runs")
    assert caplog.messages == [
        r"?: POST '/v1/control/\x1b[31mlist-runs' of an unknown sender: only the Fleet API"
        " passes here"
    ]
    caplog.clear()
    pair = certificates.node_key()
    ask("/v1/fleet/pull-messages", **_signed_by(pair))
    assert "of an unknown sender: the SuperLink refuses it" in caplog.text
    (keys / "client-0.pub").write_bytes(pair.public)
    ask("/v1/fleet/pull-messages", **_signed_by(pair))
    assert "of client-0: the SuperLink refuses it" in caplog.text
