"""Checks of a node's connection and process: the server's acceptance, and access to its tasks."""

import ssl
from collections.abc import Iterator
from pathlib import Path

import httpx
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
from cryptography.hazmat.primitives.serialization import load_ssh_private_key

from adversaries.errors import InputError
from fedsim.deployment import logs, run, supernode
from fedsim.deployment.checks import connection
from fedsim.deployment.checks.connection import NOTE, OK, WRONG, Line
from fedsim.federation.runtimes import ports
from fedsim.federation.runtimes.flower_services import (
    EARLIEST,
    LATEST,
    gives_tasks_to_anybody,
    server_knows,
)

CLOCKS_DIFFER = 2.0
"""Seconds between two clocks that are reported, although a server still accepts the node."""


def admitted(place: Path, host: str, port: int) -> Iterator[Line]:
    """Check that the server accepts this node's signature: its clock, and its key."""
    url = f"https://{host}:{port}"
    try:
        trusted = ssl.create_default_context(cafile=str(place / "ca.crt"))
        ahead = connection.clock_ahead(url, trusted)
        private = load_ssh_private_key((place / "node.key").read_bytes(), password=None)
        if ahead is None or not isinstance(private, EllipticCurvePrivateKey):
            return
        known = server_knows(url, trusted, private)
    except httpx.HTTPStatusError as error:
        yield "registered", WRONG, f"the server answers {error.response.status_code}; see its log"
        return
    except InputError as error:
        yield "flwr", WRONG, str(error)
        return
    except (OSError, ValueError, TypeError, UnsupportedAlgorithm, httpx.HTTPError):
        return  # other checks report it
    yield clock(ahead)
    if known is None:
        yield "registered", WRONG, "the server accepts no signature of this node; see the clock"
    elif known:
        yield "registered", OK, "the server knows the key"
    else:
        message = (
            f"the server does not know the key {run.fingerprint_of(place / 'node.key.pub')}; send "
            "the server node.key.pub for its folder keys/, and have it run fedsim deploy register"
        )
        yield "registered", WRONG, message


def clock(ahead: float) -> Line:
    """Return the check of this clock, which is some seconds ahead of the server's, or behind."""
    way = f"{abs(ahead):.0f} s {'ahead of' if ahead > 0 else 'behind'} the server's"
    if not EARLIEST + 1 < -ahead < LATEST - 1:
        problem = "so the server refuses this node; set both clocks by NTP"
        return "clock", WRONG, f"is {way}, {problem}"
    if abs(ahead) > CLOCKS_DIFFER:
        return "clock", NOTE, f"is {way}; set both clocks by NTP"
    return "clock", OK, "is the server's"


def running(place: Path, port: int) -> Iterator[Line]:
    """Check that the SuperNode runs, and that only its own processes get its tasks."""
    process = connection.process(place, "supernode")
    listening = ports.listening("127.0.0.1", port)
    if process is None and (place / "supernode.pid").exists():
        reason = logs.complaint(place / "logs" / "supernode.log") or "its log does not say why"
        restart = f"sh {place / 'start.sh'}"
        yield "supernode", WRONG, f"has ended by itself ({reason}); mend that, then {restart}"
    elif process is None and not listening:
        yield "supernode", NOTE, f"is not running; sh {place / 'start.sh'}"
    elif process is not None and not listening:
        reason = logs.complaint(place / "logs" / "supernode.log")
        message = f"runs (process {process}), but is not ready ({reason}); see logs/"
        yield "supernode", WRONG, message
    elif process is None and gives_tasks_to_anybody(f"https://127.0.0.1:{port}") is None:
        message = (
            f"port {port} is taken by another program; set another NODE_PORT in "
            f"{place / 'settings.env'}"
        )
        yield "supernode", WRONG, message
    else:
        yield "supernode", OK, f"runs (process {process})" if process else "runs"
        yield _apps(place)
        yield _runtime(port, process)
        if _edited_since_start(place):
            yield (
                "node.toml",
                WRONG,
                "was edited after the node started, so the node uses the old version; "
                f"{_restart(place)}",
            )


def _apps(place: Path) -> Line:
    """Check the process without which the SuperNode answers nothing."""
    if supernode.starts_apps(place):
        return "apps", OK, "are started for its tasks"
    reason = logs.complaint(place / "logs" / "supernode.log") or "its log does not say why"
    message = f"are not started ({reason}), so the node never answers; {_restart(place)}"
    return "apps", WRONG, message


def _runtime(port: int, process: int | None) -> Line:
    """Check that only this node's processes can use the Runtime API, which hands out tasks."""
    what = "Runtime API"
    addresses = connection.addresses(port, process)
    if reachable := [address for address in addresses or [] if not address.is_loopback]:
        return what, WRONG, f"listens on {reachable[0]}; start the node with start.sh"
    schemes = ("https", "http")
    if any(gives_tasks_to_anybody(f"{scheme}://127.0.0.1:{port}") for scheme in schemes):
        message = (
            "gives every account of this machine the run's model and the right to answer for this "
            "node; start the node with start.sh"
        )
        return what, WRONG, message
    if addresses is None:
        return what, NOTE, f"requires a secret; look up the address where port {port} is open"
    return what, OK, "requires a secret, on loopback"


def _edited_since_start(place: Path) -> bool:
    """Return whether node.toml is newer than the secret, which each start writes before it."""
    try:
        started = (place / "state" / "runtime" / "secret").stat().st_mtime
        return (place / "node.toml").stat().st_mtime > started
    except OSError:
        return False


def _restart(place: Path) -> str:
    by_hand = f"sh {place / 'stop.sh'}, then sh {place / 'start.sh'}"
    return f"{by_hand}; or restart its unit or container"
