"""The results of checks, and checks of ports from this machine: the server and its services."""

import ipaddress
import socket
import ssl
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from pathlib import Path

import httpx
import psutil

OK, NOTE, WRONG = "ok", "note", "wrong"


@dataclass(frozen=True)
class CheckResult:
    """One line of `fedsim deploy check`.

    Attributes:
        machine: name in the kit; "ca" for the kit's authority.
        what: subject of the check, in a word or two.
        state: "ok", "note" or "wrong".
        message: the finding; unless the state is "ok", also the remedy.
    """

    machine: str
    what: str
    state: str
    message: str


Line = tuple[str, str, str]
"""Subject, state and message of a check."""


Address = ipaddress.IPv4Address | ipaddress.IPv6Address
TIMEOUT = 5.0

EXPIRED = 10
"""OpenSSL's code of an expired certificate (X509_V_ERR_CERT_HAS_EXPIRED)."""

FLEET = "/v1/fleet/pull-messages"
"""A path of the nodes' API."""

CONTROL = "/v1/control/list-runs"
"""A path of the API that submits code. The proxy must not pass it."""


def reached(place: Path, host: str, port: int, name: str) -> Iterator[Line]:
    """Connect as a node does: by TLS to a name in the certificate, then to each API."""
    try:
        trusted = ssl.create_default_context(cafile=str(place / "ca.crt"))
    except (OSError, ssl.SSLError) as error:
        yield "TLS", WRONG, f"ca.crt cannot be read ({error}); copy this machine's folder again"
        return
    if failed := _failed(trusted, host, port, name):
        yield failed
        return
    yield "TLS", OK, f"{host}:{port} is the server"
    try:
        with httpx.Client(verify=trusted, timeout=TIMEOUT, trust_env=False) as client:
            sni = {"sni_hostname": name}
            fleet = client.post(f"https://{host}:{port}{FLEET}", extensions=sni).status_code
            control = client.post(f"https://{host}:{port}{CONTROL}", extensions=sni).status_code
    except httpx.HTTPError as error:
        yield "Fleet API", WRONG, f"does not answer ({error!r}); start the server's proxy"
        return
    yield from _apis(fleet, control)


def _failed(trusted: ssl.SSLContext, host: str, port: int, name: str) -> Line | None:
    try:
        handshake(trusted, host, port, name)
    except ssl.SSLCertVerificationError as error:
        remedy = "give all machines the folders of one kit"
        if error.verify_code == EXPIRED:
            remedy = "the server's operator runs fedsim deploy renew; this node needs no change"
        message = (
            f"{host}:{port} shows a certificate that is not valid here ({error.verify_message}); "
            f"{remedy}"
        )
        return "TLS", WRONG, message
    except ssl.SSLError as error:
        message = f"{host}:{port} does not speak TLS ({error.reason}); start the proxy"
        return "TLS", WRONG, message
    except OSError as error:
        message = (
            f"{host}:{port} is unreachable ({error}); start the server, or open the port to here"
        )
        return "server", WRONG, message
    return None


def handshake(trusted: ssl.SSLContext, host: str, port: int, name: str) -> None:
    """Connect by TLS to a name in the certificate, and disconnect. Raises OSError."""
    with (
        socket.create_connection((host, port), timeout=TIMEOUT) as plain,
        trusted.wrap_socket(plain, server_hostname=name),
    ):
        pass


def _apis(fleet: int, control: int) -> Iterator[Line]:
    """Check that the Fleet API passes and the Control API does not, by their status codes."""
    if fleet in (403, 502):
        message = f"the proxy answers {fleet}; start the SuperLink, and the proxy of this kit"
        yield "Fleet API", WRONG, message
    else:
        yield "Fleet API", OK, "passes"
    if control == 403:
        yield "Control API", OK, "is closed"
    else:
        message = (
            f"answers {control} here, so anyone can submit code; let clients reach only the proxy "
            "of start.sh"
        )
        yield "Control API", WRONG, message


def clock_ahead(url: str, trusted: ssl.SSLContext) -> float | None:
    """Return the seconds by which this clock is ahead of a server's; None if it shows none."""
    before = time.time()
    with httpx.Client(verify=trusted, timeout=TIMEOUT, trust_env=False) as client:
        dates = client.post(f"{url}{FLEET}").headers.get_list("date")
    if not dates:
        return None
    # The server answered whole seconds, at a time between the request and the answer.
    return (before + time.time()) / 2 - (parsedate_to_datetime(dates[0]).timestamp() + 0.5)


def addresses(port: int, process: int | None) -> list[Address] | None:
    """Return the addresses where a port, or a process with its children, listens.

    Returns: None if the system hides them.
    """
    own = {process}
    with suppress(psutil.Error):
        own |= {child.pid for child in psutil.Process(process).children(recursive=True)}
    try:
        sockets = psutil.net_connections("tcp")
    except psutil.AccessDenied:
        return None
    return [
        ipaddress.ip_address(one.laddr.ip)
        for one in sockets
        if one.status == psutil.CONN_LISTEN
        and one.laddr
        and (one.laddr.port == port or (one.pid is not None and one.pid in own))
    ]
