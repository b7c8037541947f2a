"""The lines of a check, and a server as its nodes reach it, with TLS."""

import socket
import ssl
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx

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

TIMEOUT = 5.0

EXPIRED = 10
"""OpenSSL's code of an expired certificate (X509_V_ERR_CERT_HAS_EXPIRED)."""

FLEET = "/v1/fleet/pull-messages"
"""A path of the nodes' API."""

CONTROL = "/v1/control/list-runs"
"""A path of the API that submits code. The proxy must not pass it."""


def reached(place: Path, host: str, port: int, name: str) -> Iterator[Line]:
    """Connect as a node does: by TLS to a name in the certificate, then to each API."""
    what, at = "connection", f"{host}:{port}"
    try:
        trusted = ssl.create_default_context(cafile=str(place / "ca.crt"))
        handshake(trusted, host, port, name)
        with httpx.Client(verify=trusted, timeout=TIMEOUT, trust_env=False) as client:
            fleet, control = (
                client.post(f"https://{at}{path}", extensions={"sni_hostname": name}).status_code
                for path in (FLEET, CONTROL)
            )
    except ssl.SSLCertVerificationError as error:
        remedy = "give all machines the folders of one kit"
        if error.verify_code == EXPIRED:
            remedy = "the server's operator runs fedsim deploy renew; this node needs no change"
        why = f"shows a certificate that is not valid here ({error.verify_message}); {remedy}"
        yield what, WRONG, f"{at} {why}"
    except (OSError, httpx.HTTPError) as error:
        why = "start the server and its proxy, or open the port to here"
        yield what, WRONG, f"{at} does not answer as a server of this kit ({error}); {why}"
    else:
        if fleet in (403, 502):
            yield what, WRONG, f"the proxy of {at} answers {fleet}; start the SuperLink of this kit"
        elif control != 403:
            why = "so anyone can submit code; let clients reach only the proxy of start.sh"
            yield what, WRONG, f"the Control API answers {control} at {at}, {why}"
        else:
            yield what, OK, f"{at} is the server; only the Fleet API passes"


def handshake(trusted: ssl.SSLContext, host: str, port: int, name: str) -> None:
    """Connect by TLS to a name in the certificate, and disconnect. Raises OSError."""
    with (
        socket.create_connection((host, port), timeout=TIMEOUT) as plain,
        trusted.wrap_socket(plain, server_hostname=name),
    ):
        pass
