"""What is wrong with a node that runs, or would: whether the server takes it, and who its work."""

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
from fedsim.deployment.checks.findings import NOTE, OK, WRONG, Line
from fedsim.federation.runtimes import ports
from fedsim.federation.runtimes.flower_services import (
    EARLIEST,
    LATEST,
    gives_tasks_to_anybody,
    server_knows,
)

CLOCKS_DIFFER = 2.0
"""Seconds between two clocks that are spoken of, though a server does not refuse the node yet."""


def admitted(place: Path, host: str, port: int) -> Iterator[Line]:
    """Look at whether the server takes this node's signature: its clock, and its key.

    Yields:
        What was looked at, how it is, and what to do about it.
    """
    url = f"https://{host}:{port}"
    try:
        trusted = ssl.create_default_context(cafile=str(place / "ca.crt"))
        ahead = connection.clock_ahead(url, trusted)
        private = load_ssh_private_key((place / "node.key").read_bytes(), password=None)
        if ahead is None or not isinstance(private, EllipticCurvePrivateKey):
            return
        known = server_knows(url, trusted, private)
    except httpx.HTTPStatusError as error:
        yield "registered", WRONG, f"the server answers {error.response.status_code}: see its log"
        return
    except InputError as error:
        yield "flwr", WRONG, str(error)
        return
    except (OSError, ValueError, TypeError, UnsupportedAlgorithm, httpx.HTTPError):
        return  # which other lines say
    yield clock(ahead)
    if known is None:
        yield "registered", WRONG, "the server takes no signature of this node: see the clock"
    elif known:
        yield "registered", OK, "the server knows the key"
    else:
        yield (
            "registered",
            WRONG,
            f"the server does not know the key {run.fingerprint_of(place / 'node.key.pub')}: send "
            "it node.key.pub, for its folder keys/, and have it give fedsim deploy register",
        )


def clock(ahead: float) -> Line:
    """Return the line about how far this clock is ahead of the server's.

    Args:
        ahead: seconds, known to half a second; negative where it is behind.
    """
    way = f"{abs(ahead):.0f} s {'ahead of' if ahead > 0 else 'behind'} the server's"
    if not EARLIEST + 1 < -ahead < LATEST - 1:
        remedy = "so that the server refuses this node: set the clock of both by NTP"
        return "clock", WRONG, f"is {way}, {remedy}"
    if abs(ahead) > CLOCKS_DIFFER:
        return "clock", NOTE, f"is {way}: set the clock of both by NTP"
    return "clock", OK, "is the server's"


def running(place: Path, port: int) -> Iterator[Line]:
    """Look at whether the SuperNode runs, and who could take its work.

    Yields:
        What was looked at, how it is, and what to do about it.
    """
    process = connection.process(place, "supernode")
    listening = ports.listening("127.0.0.1", port)
    if process is None and (place / "supernode.pid").exists():
        said = logs.complaint(place / "logs" / "supernode.log")
        yield (
            "supernode",
            WRONG,
            f"has ended by itself ({said or 'its log does not say why'}): mend that, then sh "
            f"{place / 'start.sh'}",
        )
    elif process is None and not listening:
        yield "supernode", NOTE, f"is not running: sh {place / 'start.sh'}"
    elif process is not None and not listening:
        said = logs.complaint(place / "logs" / "supernode.log")
        yield "supernode", WRONG, f"runs (process {process}), but is not ready ({said}): see logs/"
    elif process is None and gives_tasks_to_anybody(f"https://127.0.0.1:{port}") is None:
        yield (
            "supernode",
            WRONG,
            f"port {port} is taken by another program: set another NODE_PORT in "
            f"{place / 'settings.env'}",
        )
    else:
        yield "supernode", OK, f"runs (process {process})" if process else "runs"
        yield _apps(place)
        yield _runtime(port, process)
        if _edited_since_start(place):
            yield (
                "node.toml",
                WRONG,
                "was edited after the node started, which goes by what it said before: "
                f"{_restart(place)}",
            )


def _apps(place: Path) -> Line:
    """Look at whether the process is there without which the SuperNode answers nothing."""
    if supernode.starts_apps(place):
        return "apps", OK, "are started for its tasks"
    said = logs.complaint(place / "logs" / "supernode.log")
    return (
        "apps",
        WRONG,
        f"nobody starts them ({said or 'its log does not say why'}), so that the node never "
        f"answers: {_restart(place)}",
    )


def _runtime(port: int, process: int | None) -> Line:
    """Look at whether the Runtime API, at which tasks are had, is this node's alone."""
    what = "Runtime API"
    found = connection.addresses(port, process)
    if reachable := [address for address in found or [] if not address.is_loopback]:
        return what, WRONG, f"listens on {reachable[0]}: start the node with start.sh"
    schemes = ("https", "http")
    if any(gives_tasks_to_anybody(f"{scheme}://127.0.0.1:{port}") for scheme in schemes):
        return (
            what,
            WRONG,
            "gives every account of this machine the run's model and the right to answer for this "
            "node: start the node with start.sh",
        )
    if found is None:
        return what, NOTE, f"asks for a secret; look at which address port {port} is open on"
    return what, OK, "asks for a secret, on loopback"


def _edited_since_start(place: Path) -> bool:
    """Whether node.toml was written after the secret that each start draws just before it reads."""
    try:
        started = (place / "state" / "runtime" / "secret").stat().st_mtime
        return (place / "node.toml").stat().st_mtime > started
    except OSError:
        return False


def _restart(place: Path) -> str:
    by_hand = f"sh {place / 'stop.sh'}, then sh {place / 'start.sh'}"
    return f"{by_hand}; or restart its unit or container"
