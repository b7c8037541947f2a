"""A TLS proxy that passes Flower's Fleet API to a SuperLink, and no other API.

Flower's SuperLink serves clients (Fleet), operators (Control) and its own processes (Runtime) on
one port. Control does not authenticate: every program that reaches the port can register nodes and
start runs. So the SuperLink listens on loopback, and clients reach it through this proxy.

The SuperLink knows a node by its key, but does not check the sender of a reply. So the proxy passes
a reply only if its sender is the node that brings it. The SuperLink checks that node's signature,
but only after it has read the whole request. So the proxy passes a long request only if one of the
server's keys signed it, which it checks before it reads the body.
"""

import logging
import re
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
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

from fedsim.deployment import supervision
from fedsim.federation.runtimes.flower_services import replies_are_own, signer

log = logging.getLogger(__name__)

FLEET = re.compile(r"/v1/fleet/[a-z-]+")
"""Paths that the proxy passes, as sent on the wire, without normalisation or encoding."""

REPLIES = "/v1/fleet/push-messages"

LARGEST = 1 << 30
"""Largest request in bytes. Arrays travel in pieces of 5 MiB, and a masked sum in one piece."""

LARGEST_REPLY = 1 << 26
"""Largest request in bytes that announces a reply, whose content follows later."""

LARGEST_UNSIGNED = 1 << 16
"""Largest request in bytes without a known signature. The SuperLink refuses it."""

CONNECTIONS = 1024
"""Connections at once, each with up to one request. A node has a few. Flower retries a 503."""

HOP_BY_HOP = {
    *("connection", "keep-alive", "proxy-authenticate", "proxy-authorization", "te", "trailer"),
    *("transfer-encoding", "upgrade", "host"),
}
"""Headers of a single connection (RFC 9110, section 7.6.1), and the host's name."""


def application(superlink: str, trusted: ssl.SSLContext, keys: Path) -> Starlette:
    """Return the proxy of a SuperLink; only nodes of the *.pub in `keys` may send long requests."""

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        # A round may take hours, but clients poll, so no single request takes long.
        # The SuperLink is on this machine, so ignore a proxy of the environment.
        async with httpx.AsyncClient(
            base_url=superlink, verify=trusted, timeout=300, trust_env=False
        ) as client:
            app.state.client = client
            yield

    async def answer(request: Request) -> Response:
        path = request.scope.get("raw_path", b"").decode("latin-1")
        response = await forward(request, path)
        if response.status_code >= 400:
            log.warning(
                "%s: %s %s of %s: %s",
                request.client.host if request.client else "?",
                request.method,
                ascii(path[:80]),
                ", ".join(_named(signer(request.headers), keys)) or "an unknown sender",
                getattr(response, "body", b"").decode().strip() or "the SuperLink refuses it",
            )
        return response

    async def forward(request: Request, path: str) -> Response:
        if refusal := _refusal(request, path, keys):
            return refusal
        content: AsyncIterator[bytes] | bytes = request.stream()
        if path == REPLIES:
            content = await request.body()
            if not replies_are_own(content):
                return PlainTextResponse("a node must reply in its own name\n", status_code=403)
        client: httpx.AsyncClient = request.app.state.client
        passed = [pair for pair in request.headers.raw if _passes(pair[0])]
        outgoing = client.build_request("POST", path, headers=passed, content=content)
        try:
            reply = await client.send(outgoing, stream=True)
        except httpx.HTTPError:
            return PlainTextResponse("the SuperLink does not answer\n", status_code=502)
        response = StreamingResponse(
            reply.aiter_raw(), reply.status_code, background=BackgroundTask(reply.aclose)
        )
        response.raw_headers = [
            (name.lower(), value) for name, value in reply.headers.raw if _passes(name)
        ]
        return response

    methods = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"]
    return Starlette(routes=[Route("/{path:path}", answer, methods=methods)], lifespan=lifespan)


def serve(host: str, port: int, superlink_port: int, server: Path) -> None:
    """Serve the folder of a server until the process ends."""
    supervision.log_as("server")
    uvicorn.Server(configuration(host, port, superlink_port, server)).run()


def configuration(host: str, port: int, superlink_port: int, server: Path) -> uvicorn.Config:
    """Return the web server's settings for the proxy of a server's folder."""
    trusted = ssl.create_default_context(cafile=str(server / "superlink-ca.crt"))
    return uvicorn.Config(
        application(f"https://127.0.0.1:{superlink_port}", trusted, server / "keys"),
        host=host,
        port=port,
        ssl_certfile=str(server / "server.crt"),
        ssl_keyfile=str(server / "server.key"),
        limit_concurrency=CONNECTIONS,
        log_config=None,
        log_level="info",
        access_log=False,
        server_header=False,
        ws="none",
    )


def _refusal(request: Request, path: str, keys: Path) -> Response | None:
    """Return the refusal of a request before its body is read; None: it passes."""
    if request.method != "POST" or not FLEET.fullmatch(path) or request.url.query:
        return PlainTextResponse("only the Fleet API passes here\n", status_code=403)
    if (length := _length(request)) is None or length > LARGEST:
        return PlainTextResponse(
            f"a request must state its length, up to {LARGEST}\n", status_code=413
        )
    if length > LARGEST_UNSIGNED and not _named(signer(request.headers), keys):
        return PlainTextResponse("no key of the server's keys/ signed it\n", status_code=401)
    if path == REPLIES and length > LARGEST_REPLY:
        return PlainTextResponse("it is too long for a reply\n", status_code=413)
    return None


def _named(key: object, keys: Path) -> list[str]:
    """Return the machines whose file in a folder has a key; none for None."""
    names = []
    for path in keys.glob("*.pub"):
        with suppress(OSError, ValueError, UnsupportedAlgorithm):
            if load_ssh_public_key(path.read_bytes()) == key:
                names.append(path.stem)
    return names


def _length(request: Request) -> int | None:
    """Return the length that a request states in bytes; None: it states none."""
    if "transfer-encoding" in request.headers:
        return None
    text = request.headers.get("content-length", "0")
    return int(text) if text.isascii() and text.isdecimal() else None


def _passes(header: bytes) -> bool:
    return header.decode("latin-1").lower() not in HOP_BY_HOP
