"""Checks of a server: its certificate, the keys of its nodes, its services, the registrations."""

import ipaddress
import ssl
import stat
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import psutil

from adversaries.errors import InputError
from fedsim.deployment import certificates, kit, run, supervision
from fedsim.deployment.checks import connection
from fedsim.deployment.checks.connection import EXPIRED, NOTE, OK, WRONG, Line
from fedsim.deployment.kit import Kit
from fedsim.federation.runtimes import ports
from fedsim.federation.runtimes.flower_command import FlowerError

RENEW = "fedsim deploy renew KIT, then copy server.key and server.crt here"
"""The remedy for a certificate. KIT is the folder of the whole kit."""


def server(place: Path, laid_out: Kit) -> Iterator[Line]:
    """Check the server: its certificate, the keys of the nodes, its ports, the registrations."""
    yield _certificate(place, laid_out)
    yield from _node_keys(place, laid_out)
    found = []
    for line in services(place, laid_out):
        found.append(line)
        yield line
    if not any(what == "superlink" and state == WRONG for what, state, _ in found):
        yield from _registrations(place, laid_out)
    if not any(what == "proxy" and state == WRONG for what, state, _ in found):
        port = kit.port(place, "PORT")
        yield from connection.reached(place, _host(place), port, laid_out.address)


def services(place: Path, laid_out: Kit) -> Iterator[Line]:
    """Check the SuperLink, the program that starts its runs, and the proxy."""
    port = kit.port(place, "SUPERLINK_PORT")
    superlink = _service(place, "superlink", "127.0.0.1", port, "superlink-ca.crt", "127.0.0.1")
    # Where its processes are hidden, its port has to do.
    missing = [name for name in supervision.missing(place, "superlink") if name != "superlink"]
    if superlink[1] == OK and (others := _reachable(port)):
        why = "where anyone can submit code; start it with start.sh, which uses 127.0.0.1 only"
        yield "superlink", WRONG, f"also listens on {others[0]}, {why}"
    elif superlink[1] == OK and missing:
        why = f"so no run can begin; it starts again, see {place / 'logs' / 'superlink.log'}"
        yield "superlink", WRONG, f"{missing[0]} has ended, {why}"
    else:
        yield superlink
    port = kit.port(place, "PORT")
    yield _service(place, "proxy", _host(place), port, "ca.crt", laid_out.address)


def _host(place: Path) -> str:
    """Return the address where this machine reaches the proxy."""
    listen = kit.settings(place).get("LISTEN", "")
    return "127.0.0.1" if listen in ("", "0.0.0.0", "::") else listen


def _reachable(port: int) -> list[str]:
    """Return the addresses of a port beside loopback; none where the system hides them."""
    try:
        sockets = psutil.net_connections("tcp")
    except psutil.AccessDenied:
        return []
    listening = [one.laddr for one in sockets if one.status == psutil.CONN_LISTEN and one.laddr]
    addresses = {address.ip for address in listening if address.port == port}
    return sorted(each for each in addresses if not ipaddress.ip_address(each).is_loopback)


def authority(place: Path) -> Iterator[Line]:
    """Check the kit's own authority: access to its key, and its validity."""
    key, certificate = place / "ca.key", place / "ca.crt"
    try:
        for path, wanted in ((place, "700"), (key, "600")):
            if (mode := stat.S_IMODE(path.stat().st_mode)) & 0o077:
                remedy = f"chmod {wanted} {path}"
                yield "permissions", WRONG, f"others may read {path} ({mode:o}); {remedy}"
        fits = certificates.fits(key.read_bytes(), certificate.read_bytes())
        end = certificates.end(certificate)
    except (OSError, ValueError) as error:
        yield "authority", WRONG, f"cannot be read ({error}); make a new kit"
        return
    if fits:
        yield _expiry("authority", end, "make a new kit")
    else:
        yield "authority", WRONG, "ca.key does not match ca.crt; make a new kit"


def _certificate(place: Path, laid_out: Kit) -> Line:
    """Perform a handshake with the server's own files, as a node would."""
    certificate = place / "server.crt"
    try:
        certificates.verify(certificate, place / "server.key", place / "ca.crt", laid_out.address)
    except ssl.SSLCertVerificationError as error:
        if error.verify_code != EXPIRED:
            why = f"would be refused by the nodes for {laid_out.address} ({error.verify_message})"
            return "certificate", WRONG, f"{why}; {RENEW}"
    except (OSError, ValueError) as error:
        reason = getattr(error, "reason", None) or error
        return "certificate", WRONG, f"server.crt and server.key cannot be used ({reason}); {RENEW}"
    return _expiry("certificate", certificates.end(certificate), RENEW)


def _expiry(what: str, end: datetime, remedy: str) -> Line:
    left = end - datetime.now(UTC)
    if left < timedelta(0):
        return what, WRONG, f"expired on {end:%Y-%m-%d}; {remedy}"
    if left < certificates.SOON:
        return what, NOTE, f"expires in {left.days} days, on {end:%Y-%m-%d}; {remedy}"
    return what, OK, f"until {end:%Y-%m-%d}"


def _node_keys(place: Path, laid_out: Kit) -> Iterator[Line]:
    what, keys = "node keys", run.key_files(place)
    lacking = [name for name in laid_out.nodes if name not in keys]
    strange = [name for name in keys if name not in laid_out.nodes]
    if (place / "ca.key").exists():
        yield what, WRONG, f"the authority's key must not be here; remove {place / 'ca.key'}"
    for name in lacking:
        yield what, WRONG, f"keys/{name}.pub is missing; copy that machine's node.key.pub to it"
    for name in strange:
        why = f"delete it, then run fedsim deploy register {place}"
        yield what, WRONG, f"keys/{name}.pub belongs to no machine of this federation; {why}"
    if not lacking and not strange:
        yield what, OK, f"one for each of {len(keys)} nodes"


def _service(place: Path, name: str, at: str, port: int, trusted: str, host: str) -> Line:
    if not ports.listening(at, port):
        return name, WRONG, f"does not answer on port {port}; sh {place / 'start.sh'}"
    if not _speaks_tls(place / trusted, at, port, host):
        why = f"stop it, or set another port in {place / 'settings.env'}"
        return name, WRONG, f"port {port} is taken by another program; {why}"
    return name, OK, f"answers on port {port}"


def _speaks_tls(authority: Path, at: str, port: int, host: str) -> bool:
    """Return whether a port shows a certificate of an authority for a host, even an expired one."""
    try:
        connection.handshake(ssl.create_default_context(cafile=authority), at, port, host)
    except ssl.SSLCertVerificationError as error:
        return error.verify_code == EXPIRED
    except OSError:
        return False
    return True


def _registrations(place: Path, laid_out: Kit) -> Iterator[Line]:
    what, remedy = "registered", f"run fedsim deploy register {place}"
    try:
        known, nodes = run.statuses(place), run.registered(place)
        files = run.key_files(place)
        keys = {name: run.fingerprint_of(files[name]) for name in laid_out.nodes if name in files}
    except (FlowerError, InputError) as error:
        yield what, WRONG, f"{error}"
        return
    own = {nodes[machine].node for machine in laid_out.nodes if machine in nodes}
    for unknown in sorted(known.keys() - own):
        if known[unknown] != run.UNREGISTERED:
            why = f"which belongs to no machine of this federation; {remedy}"
            yield what, WRONG, f"the SuperLink lets in node {unknown}, {why}"
    for machine in laid_out.nodes:
        node = nodes.get(machine)
        status = known.get(node.node, run.UNREGISTERED) if node else run.UNREGISTERED
        if node is None or status == run.UNREGISTERED:
            yield what, WRONG, f"the key of {machine} is not registered; {remedy}"
        elif keys.get(machine, node.key) != node.key:
            yield what, WRONG, f"keys/{machine}.pub is not the registered key; {remedy}"
        elif status == "online":
            yield what, OK, f"{machine} is connected"
        else:
            yield what, NOTE, f"{machine} is not connected ({status}); start it there"
