"""What is wrong with a server: its certificate, the keys of its nodes, what listens."""

import socket
import ssl
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import InvalidSignature

from fedsim.deployment import certificates, connection_checks, kit
from fedsim.deployment.connection_checks import TIMEOUT
from fedsim.deployment.findings import NOTE, OK, WRONG, Line
from fedsim.deployment.kit import Kit
from fedsim.errors import InputError
from fedsim.runtimes.flower_command import FlowerError

SOON = timedelta(days=30)
"""How long before its end a certificate is spoken of."""


def server(place: Path, laid_out: Kit) -> Iterator[Line]:
    """Look at the server: certificate, keys of the nodes, what listens, who is registered."""
    yield from _server_certificate(place, laid_out)
    keys = kit.key_files(place)
    if lacking := [name for name in laid_out.nodes if name not in keys]:
        yield (
            "node keys",
            WRONG,
            f"keys/{lacking[0]}.pub is missing: copy that machine's node.key.pub to it",
        )
    else:
        auditor = " and an auditor" if laid_out.auditor else ""
        yield "node keys", OK, f"{len(keys)} for {laid_out.owners} owners{auditor}"
    superlink = _service(place, "superlink", kit.port(place, "SUPERLINK_PORT"))
    yield superlink
    if superlink[1] == OK:
        yield from _registrations(place, laid_out)
    port = kit.port(place, "PORT")
    proxy = _service(place, "proxy", port)
    yield proxy
    if proxy[1] == OK:
        yield from connection_checks.reached(place, "127.0.0.1", port)


def _server_certificate(place: Path, laid_out: Kit) -> Iterator[Line]:
    try:
        certificate = x509.load_pem_x509_certificate((place / "server.crt").read_bytes())
        authority = x509.load_pem_x509_certificate((place / "ca.crt").read_bytes())
        key = certificates.load_private_key((place / "server.key").read_bytes())
    except (OSError, ValueError) as error:
        yield "certificate", WRONG, f"cannot be read ({error}): copy the server's folder anew"
        return
    if key.public_key() != certificate.public_key():
        yield (
            "certificate",
            WRONG,
            "server.key does not fit server.crt: copy both from the same kit",
        )
        return
    try:
        certificate.verify_directly_issued_by(authority)
    except (InvalidSignature, ValueError, TypeError):
        yield "certificate", WRONG, "ca.crt did not issue server.crt: copy both from the same kit"
        return
    if not certificates.covers(certificate, laid_out.address):
        yield (
            "certificate",
            WRONG,
            f"is not for {laid_out.address}, where owners connect: make a kit for that address",
        )
        return
    yield _expiry(certificate.not_valid_after_utc)


def _expiry(end: datetime) -> Line:
    left = end - datetime.now(UTC)
    if left < timedelta(0):
        return (
            "certificate",
            WRONG,
            f"expired on {end:%Y-%m-%d}: make a new kit with fedsim deploy init",
        )
    if left < SOON:
        return (
            "certificate",
            NOTE,
            f"expires in {left.days} days, on {end:%Y-%m-%d}: make a new kit before that",
        )
    return "certificate", OK, f"until {end:%Y-%m-%d}"


def _service(place: Path, name: str, port: int) -> Line:
    process = connection_checks.process(place, name)
    if not connection_checks.listening("127.0.0.1", port):
        return name, WRONG, f"is unreachable on port {port}: sh {place / 'start.sh'}"
    if process is not None:
        return name, OK, f"answers on port {port} (process {process})"
    if _speaks_tls(place, port):
        return name, OK, f"answers on port {port}"  # under systemd or in a container
    return (
        name,
        WRONG,
        f"port {port} is taken by another program: set another in {place / 'settings.env'}",
    )


def _speaks_tls(place: Path, port: int) -> bool:
    """Whether what listens on a port shows a certificate of the kit's authority."""
    try:
        trusted = ssl.create_default_context(cafile=str(place / "ca.crt"))
        with (
            socket.create_connection(("127.0.0.1", port), timeout=TIMEOUT) as plain,
            trusted.wrap_socket(plain, server_hostname="127.0.0.1"),
        ):
            return True
    except (OSError, ssl.SSLError):
        return False


def _registrations(place: Path, laid_out: Kit) -> Iterator[Line]:
    from fedsim.runtimes import deployment  # noqa: PLC0415  (it knows this package)

    try:
        known = deployment.statuses(place)
        nodes = kit.registered(place)
    except (FlowerError, InputError) as error:
        yield "registered", WRONG, f"{error}"
        return
    files = kit.key_files(place)
    for machine in laid_out.nodes:
        node = nodes.get(machine)
        status = known.get(node.node, deployment.UNREGISTERED) if node else None
        if node is None or status == deployment.UNREGISTERED:
            yield (
                "registered",
                WRONG,
                f"the key of {machine} is not registered: fedsim deploy register {place}",
            )
        elif machine in files and (unlike := _unlike(files[machine], node, place)):
            yield "registered", WRONG, unlike
        elif status == "online":
            yield "registered", OK, f"{machine} is connected"
        else:
            yield "registered", NOTE, f"{machine} is not connected ({status}): start it there"


def _unlike(path: Path, node: kit.Registration, place: Path) -> str:
    """Say why a key file may not be the key of a node, and the remedy; "" if it is."""
    try:
        if kit.key(path) == node.key:
            return ""
    except InputError as error:
        return str(error)
    known = "is not" if node.key else "may not be (an earlier fedsim wrote down no key)"
    return f"keys/{path.name} {known} the registered key: fedsim deploy register {place}"
