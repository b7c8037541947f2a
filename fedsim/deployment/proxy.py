"""A TLS proxy that passes Flower's Fleet API to a SuperLink, and nothing else.

Flower's SuperLink serves owners (Fleet), operators (Control) and its own processes (Runtime) on one
port, and Control asks nobody who they are: whoever reaches the port can register nodes and submit
code. So the SuperLink listens on loopback, and owners reach it through this proxy.

The SuperLink knows a node by its key, but takes the node's word for whose reply it brings. So a
reply passes only if it is of the node that brings it. Whether that node's key was used is for the
SuperLink to find out; but as it reads a request whole before it asks, a long one passes only if one
of the server's keys signed it, which is looked at before its body is.
"""

import re
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import uvicorn
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.serialization import load_ssh_public_key
from starlette.applications import Starlette
from starlette.background import BackgroundTask
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route

from fedsim.runtimes.flower_private import replies_are_own, signer

FLEET = re.compile(r"/v1/fleet/[a-z-]+")
"""The paths that are passed on, as they are on the wire: nothing to normalise, nothing encoded."""

REPLIES = "/v1/fleet/push-messages"

LARGEST = 1 << 30
"""Bytes that one request may have: arrays travel in pieces of 5 MiB, and a masked sum in one."""

LARGEST_REPLY = 1 << 26
"""Bytes of a request that announces a reply: what is in it is sent afterwards."""

LARGEST_UNSIGNED = 1 << 16
"""Bytes of a request that may be anybody's, for the SuperLink to refuse."""

CONNECTIONS = 1024
"""Connections at once, each with up to a request: a node has a few. Flower asks again on a 503."""

HOP_BY_HOP = {
    "connection",
    "keep-alive",
    "proxy-authenticate",
    "proxy-authorization",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "host",
}
"""Headers that concern one connection alone (RFC 9110, section 7.6.1), and the host's name."""


def application(superlink: str, trusted: ssl.SSLContext, keys: Path) -> Starlette:
    """Return the proxy of the SuperLink at an https:// address, whose authority is trusted.

    keys: the folder of the public keys (*.pub, OpenSSH) of the nodes that may send much.
    """

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        # A round may take hours, but it is polled for: no single request does.
        # The SuperLink is on this machine: a proxy of the environment is none of its business.
        async with httpx.AsyncClient(
            base_url=superlink, verify=trusted, timeout=300, trust_env=False
        ) as client:
            app.state.client = client
            yield

    async def forward(request: Request) -> Response:
        path = request.scope.get("raw_path", b"").decode("latin-1")
        if refusal := _refusal(request, path, keys):
            return refusal
        content: AsyncIterator[bytes] | bytes = request.stream()
        if path == REPLIES:
            content = await request.body()
            if not replies_are_own(content):
                return PlainTextResponse("a node replies in its own name\n", status_code=403)
        client: httpx.AsyncClient = request.app.state.client
        passed = [pair for pair in request.headers.raw if _passes(pair[0])]
        outgoing = client.build_request("POST", path, headers=passed, content=content)
        try:
            answer = await client.send(outgoing, stream=True)
        except httpx.HTTPError:
            return PlainTextResponse("the SuperLink does not answer\n", status_code=502)
        response = StreamingResponse(
            answer.aiter_raw(), answer.status_code, background=BackgroundTask(answer.aclose)
        )
        response.raw_headers = [
            (name.lower(), value) for name, value in answer.headers.raw if _passes(name)
        ]
        return response

    methods = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"]
    return Starlette(routes=[Route("/{path:path}", forward, methods=methods)], lifespan=lifespan)


def serve(host: str, port: int, superlink_port: int, server: Path) -> None:
    """Serve the machine folder of a server until the process is ended."""
    trusted = ssl.create_default_context(cafile=str(server / "superlink-ca.crt"))
    uvicorn.run(
        application(f"https://127.0.0.1:{superlink_port}", trusted, server / "keys"),
        host=host,
        port=port,
        ssl_certfile=str(server / "server.crt"),
        ssl_keyfile=str(server / "server.key"),
        limit_concurrency=CONNECTIONS,
        log_level="warning",
        server_header=False,
    )


def _refusal(request: Request, path: str, keys: Path) -> Response | None:
    """Return the answer to a request that is refused before its body is read, None for others."""
    if request.method != "POST" or not FLEET.fullmatch(path) or request.url.query:
        return PlainTextResponse("only the Fleet API passes here\n", status_code=403)
    if (length := _length(request)) is None or length > LARGEST:
        return PlainTextResponse(f"a request has a length, up to {LARGEST}\n", status_code=413)
    if length > LARGEST_UNSIGNED and not _signed(request, keys):
        return PlainTextResponse("none of the server's keys signed it\n", status_code=401)
    if path == REPLIES and length > LARGEST_REPLY:
        return PlainTextResponse("that is no reply\n", status_code=413)
    return None


def _signed(request: Request, keys: Path) -> bool:
    """Whether a key of the folder, as it is now, signed a request."""
    key = signer(request.headers)
    return key is not None and any(key == _public_key(path) for path in keys.glob("*.pub"))


def _public_key(path: Path) -> object:
    try:
        return load_ssh_public_key(path.read_bytes())
    except (OSError, ValueError, UnsupportedAlgorithm):
        return None


def _length(request: Request) -> int | None:
    """Return how many bytes a request says that it has, None where it does not say it."""
    if "transfer-encoding" in request.headers:
        return None
    text = request.headers.get("content-length", "0")
    return int(text) if text.isascii() and text.isdecimal() else None


def _passes(header: bytes) -> bool:
    return header.decode("latin-1").lower() not in HOP_BY_HOP
