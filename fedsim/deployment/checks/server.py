"""Checks of a server: its certificate, the keys of its nodes, its ports, the registrations."""

import ssl
import stat
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

from adversaries.errors import InputError
from fedsim.deployment import certificates, kit, run, supervision
from fedsim.deployment.checks import connection
from fedsim.deployment.checks.connection import NOTE, OK, WRONG, Line
from fedsim.deployment.kit import Kit
from fedsim.federation.runtimes import ports
from fedsim.federation.runtimes.flower_command import FlowerError

RENEW = "fedsim deploy renew KIT, then copy server.key and server.crt here"
"""The remedy for a certificate. KIT is the folder of the whole kit."""

HOST_MISMATCH, EXPIRED = 62, connection.EXPIRED
"""OpenSSL's codes of two reasons to refuse a certificate (X509_V_ERR_)."""


def server(place: Path, laid_out: Kit) -> Iterator[Line]:
    """Check the server: its certificate, the keys of the nodes, its ports, the registrations."""
    yield _certificate(place, laid_out)
    if (place / "ca.key").exists():
        yield "authority", WRONG, f"its key must not be here; remove {place / 'ca.key'}"
    yield from _node_keys(place, laid_out)
    wrong = set()
    for line in services(place, laid_out):
        wrong |= {line[0]} if line[1] == WRONG else set()
        yield line
    if "superlink" not in wrong:
        yield _superlink_addresses(place, kit.port(place, "SUPERLINK_PORT"))
        yield from _registrations(place, laid_out)
    if "proxy" not in wrong:
        port = kit.port(place, "PORT")
        yield from connection.reached(place, _host(place), port, laid_out.address)


def services(place: Path, laid_out: Kit) -> Iterator[Line]:
    """Check the processes of the SuperLink's service and of the proxy, and their ports."""
    port = kit.port(place, "SUPERLINK_PORT")
    superlink = _service(place, "superlink", "127.0.0.1", port, "superlink-ca.crt", "127.0.0.1")
    yield superlink
    if superlink[1] == OK:
        for name in supervision.missing(place, "superlink"):
            if name != "superlink":  # where its processes are hidden, its port has to do
                message = (
                    f"has ended, so no run can begin; it starts again within "
                    f"{supervision.PAUSE:g} s, see {place / 'logs' / 'superlink.log'}"
                )
                yield name, WRONG, message
    port = kit.port(place, "PORT")
    yield _service(place, "proxy", _host(place), port, "ca.crt", laid_out.address)


def _host(place: Path) -> str:
    """Return the address where this machine reaches the proxy."""
    listen = kit.settings(place).get("LISTEN", "")
    return "127.0.0.1" if listen in ("", "0.0.0.0", "::") else listen


def authority(place: Path) -> Iterator[Line]:
    """Check the kit's own authority: access to its key, and its validity."""
    key, certificate = place / "ca.key", place / "ca.crt"
    try:
        for path, wanted in ((place, "700"), (key, "600")):
            if (mode := stat.S_IMODE(path.stat().st_mode)) & 0o077:
                remedy = f"chmod {wanted} {path}"
                yield "permissions", WRONG, f"others may read {path} ({mode:o}); {remedy}"
        fits = certificates.fits(key.read_bytes(), certificate.read_bytes())
    except (OSError, ValueError) as error:
        yield "authority", WRONG, f"cannot be read ({error}); make a new kit"
        return
    if not fits:
        yield "authority", WRONG, "ca.key does not match ca.crt; make a new kit"
        return
    yield _expiry("authority", certificates.end(certificate), "make a new kit")


def _certificate(place: Path, laid_out: Kit) -> Line:
    """Perform a handshake with the server's own files, as a node would."""
    certificate = place / "server.crt"
    try:
        certificates.verify(certificate, place / "server.key", place / "ca.crt", laid_out.address)
        end = certificates.end(certificate)
    except ssl.SSLCertVerificationError as error:
        if error.verify_code == EXPIRED:
            return _expiry("certificate", certificates.end(certificate), RENEW)
        if error.verify_code == HOST_MISMATCH:
            problem = f"is not for {laid_out.address}, where clients connect"
        else:
            problem = f"does not match ca.crt, which the nodes trust ({error.verify_message})"
        return "certificate", WRONG, f"{problem}; {RENEW}"
    except ssl.SSLError as error:
        if error.reason == "KEY_VALUES_MISMATCH":
            return "certificate", WRONG, "server.key does not match server.crt; copy both again"
        return "certificate", WRONG, f"cannot be used ({error.reason or error}); {RENEW}"
    except (OSError, ValueError) as error:
        return "certificate", WRONG, f"cannot be read ({error}); copy the server's folder again"
    return _expiry("certificate", end, RENEW)


def _expiry(what: str, end: datetime, remedy: str) -> Line:
    left = end - datetime.now(UTC)
    if left < timedelta(0):
        return what, WRONG, f"expired on {end:%Y-%m-%d}; {remedy}"
    if left < certificates.SOON:
        return what, NOTE, f"expires in {left.days} days, on {end:%Y-%m-%d}; {remedy}"
    return what, OK, f"until {end:%Y-%m-%d}"


def _node_keys(place: Path, laid_out: Kit) -> Iterator[Line]:
    keys = run.key_files(place)
    lacking = [name for name in laid_out.nodes if name not in keys]
    strange = [name for name in keys if name not in laid_out.nodes]
    for name in lacking:
        message = f"keys/{name}.pub is missing; copy that machine's node.key.pub to it"
        yield "node keys", WRONG, message
    for name in strange:
        message = (
            f"keys/{name}.pub belongs to no machine of this federation; delete it, then run "
            f"fedsim deploy register {place}"
        )
        yield "node keys", WRONG, message
    if not lacking and not strange:
        auditor = " and an auditor" if laid_out.auditor else ""
        yield "node keys", OK, f"{len(keys)} for {laid_out.clients} clients{auditor}"


def _superlink_addresses(place: Path, port: int) -> Line:
    """Check the addresses where the SuperLink listens, even if it was started by other means."""
    what = "superlink's addresses"
    addresses = connection.addresses(port, supervision.number(place, "superlink"))
    if addresses is None:
        message = f"are hidden from this user; check that port {port} listens on loopback only"
        return what, NOTE, message
    if reachable := [address for address in addresses if not address.is_loopback]:
        message = (
            f"include {reachable[0]}, where anyone can submit code; start the SuperLink with "
            "start.sh, which uses 127.0.0.1 only"
        )
        return what, WRONG, message
    return what, OK, ", ".join(sorted({str(address) for address in addresses})) or "none"


def _service(place: Path, name: str, at: str, port: int, trusted: str, host: str) -> Line:
    process = supervision.number(place, name)
    if not ports.listening(at, port):
        return name, WRONG, f"does not answer on port {port}; sh {place / 'start.sh'}"
    if not _speaks_tls(place / trusted, at, port, host):
        message = (
            f"port {port} is taken by another program; stop it, or set another port in "
            f"{place / 'settings.env'}"
        )
        return name, WRONG, message
    number = "" if process is None else f" (process {process})"  # hidden in a container
    return name, OK, f"answers on port {port}{number}"


def _speaks_tls(authority: Path, at: str, port: int, host: str) -> bool:
    """Return whether a port shows a certificate of an authority for a host, even an expired one."""
    try:
        connection.handshake(ssl.create_default_context(cafile=authority), at, port, host)
    except ssl.SSLCertVerificationError as error:
        return error.verify_code == EXPIRED
    except (OSError, ssl.SSLError):
        return False
    return True


def _registrations(place: Path, laid_out: Kit) -> Iterator[Line]:
    try:
        known = run.statuses(place)
        nodes = run.registered(place)
    except (FlowerError, InputError) as error:
        yield "registered", WRONG, f"{error}"
        return
    files = run.key_files(place)
    own = {nodes[machine].node for machine in laid_out.nodes if machine in nodes}
    for unknown in sorted(known.keys() - own):
        if known[unknown] != run.UNREGISTERED:
            message = (
                f"the SuperLink lets in node {unknown}, which belongs to no machine of this "
                f"federation; run fedsim deploy register {place}"
            )
            yield "registered", WRONG, message
    for machine in laid_out.nodes:
        node = nodes.get(machine)
        status = known.get(node.node, run.UNREGISTERED) if node else None
        if node is None or status == run.UNREGISTERED:
            message = f"the key of {machine} is not registered; run fedsim deploy register {place}"
            yield "registered", WRONG, message
        elif machine in files and (problem := _key_problem(files[machine], node, place)):
            yield "registered", WRONG, problem
        elif status == "online":
            yield "registered", OK, f"{machine} is connected"
        else:
            yield "registered", NOTE, f"{machine} is not connected ({status}); start it there"


def _key_problem(path: Path, node: run.Registration, place: Path) -> str:
    """Return why a key file is not the key of a node, with the remedy; "": it is."""
    try:
        if run.fingerprint_of(path) == node.key:
            return ""
    except InputError as error:
        return str(error)
    return f"keys/{path.name} is not the registered key; run fedsim deploy register {place}"
