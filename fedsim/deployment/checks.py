"""What is wrong with a deployment, and how to mend it: one line for each finding.

What lies in a machine's folder is looked at anywhere; what listens and answers, from here: run it
on the machine whose folder it is.
"""

import os
import shutil
import socket
import ssl
import stat
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from importlib.metadata import version
from pathlib import Path
from typing import Any

import httpx
import psutil
from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.serialization import (
    load_ssh_private_key,
    load_ssh_public_key,
)

import fedsim
from fedsim import consent
from fedsim.deployment import certificates, kit
from fedsim.deployment.kit import Kit
from fedsim.errors import InputError
from fedsim.runtimes.flower_command import FlowerError

OK, NOTE, WRONG = "ok", "note", "wrong"

SOON = timedelta(days=30)
"""How long before its end a certificate is spoken of."""

TIMEOUT = 5.0
"""Seconds for a connection."""

CONTROL = "/v1/control/list-runs"
"""A path of the API by which code is submitted; the proxy must not pass it."""


@dataclass(frozen=True)
class Finding:
    """One line: the machine, what was looked at, how it is, and what to do about it."""

    machine: str
    what: str
    state: str
    message: str


Line = tuple[str, str, str]
"""What was looked at, how it is, and what to do about it."""


def check(directory: Path, machine: str | None = None) -> list[Finding]:
    """Return the findings about one machine, or about all that the directory holds.

    Raises InputError if the directory is no deployment or has no such machine.
    """
    laid_out = kit.read(directory)
    if machine is not None:
        machines = [machine]
    else:
        machines = [laid_out.machine] if laid_out.machine else laid_out.machines
    findings: list[Finding] = []
    for name in machines:
        place = kit.folder(directory, name)
        if not place.is_dir():
            message = (
                f"'{place}' is missing: copy it anew, or, where the folder has been handed out, "
                "check it on its machine"
            )
            findings.append(Finding(name, "folder", WRONG, message))
            continue
        own = server(place, laid_out) if name == "server" else node(place, laid_out, name)
        for look in (_versions(laid_out), _commands(place), _permissions(place), own):
            found = [Finding(name, *line) for line in _said(look)]
            findings += [one for one in found if one not in findings]
    return findings


def _said(look: Iterator[Line]) -> Iterator[Line]:
    """Pass lines on; what keeps a look from going on becomes its last line."""
    try:
        yield from look
    except InputError as error:
        yield "settings", WRONG, str(error)


def _versions(laid_out: Kit) -> Iterator[Line]:
    for package, written, here in (
        ("fedsim", laid_out.fedsim, fedsim.__version__),
        ("flwr", laid_out.flwr, version("flwr")),
    ):
        if written == here:
            yield package, OK, here
        else:
            yield (
                package,
                WRONG,
                f"{here} here, but the kit is for {written}: pip install {package}=={written}",
            )


def _commands(place: Path) -> Iterator[Line]:
    path = kit.settings(place).get("BIN") or None
    missing = [
        command
        for command in ("fedsim", "flower-superlink", "flower-supernode")
        if shutil.which(command, path=path) is None
    ]
    if missing:
        yield (
            "commands",
            WRONG,
            f"{missing[0]} is not on the PATH: set BIN in {place / 'settings.env'} to the bin "
            "folder of the Python environment with fedsim",
        )
    else:
        yield "commands", OK, shutil.which("fedsim", path=path) or ""


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
        yield from _reached(place, "127.0.0.1", port)


def node(place: Path, laid_out: Kit, machine: str) -> Iterator[Line]:
    """Look at an owner's or the auditor's node: key, config, data, the server from here."""
    yield _node_key(place)
    yield from _node_config(place, laid_out, machine)
    host, _, text = kit.settings(place).get("SUPERLINK", "").rpartition(":")
    if host and text.isdecimal():
        yield from _reached(place, host, int(text))
    else:
        yield (
            "server",
            WRONG,
            f"SUPERLINK in {place / 'settings.env'} is not HOST:PORT: set it to "
            f"{laid_out.address}:{laid_out.port}",
        )
    port = kit.port(place, "NODE_PORT")
    process = _process(place, "supernode")
    if process is not None:
        yield "supernode", OK, f"runs (process {process})"
    elif _listening("127.0.0.1", port):
        yield (
            "supernode",
            WRONG,
            f"port {port} is taken by another program: set another NODE_PORT in "
            f"{place / 'settings.env'}",
        )
    else:
        yield "supernode", NOTE, f"is not running: sh {place / 'start.sh'}"


def _permissions(place: Path) -> Iterator[Line]:
    secrets = [place, *place.glob("*.key"), *place.glob("state"), *place.glob("flower")]
    for path in secrets:
        mode = stat.S_IMODE(path.stat().st_mode)
        if mode & 0o077:
            wanted = "700" if path.is_dir() else "600"
            yield (
                "permissions",
                WRONG,
                f"others may read {path.name} ({mode:o}): chmod {wanted} {path}",
            )
            return
    yield "permissions", OK, "secrets are their owner's alone"


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
    process = _process(place, name)
    if not _listening("127.0.0.1", port):
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


def _node_key(place: Path) -> Line:
    try:
        private = load_ssh_private_key((place / "node.key").read_bytes(), password=None)
        public = load_ssh_public_key((place / "node.key.pub").read_bytes())
    except (OSError, ValueError, TypeError, UnsupportedAlgorithm) as error:
        return "node key", WRONG, f"cannot be read ({error}): copy this machine's folder anew"
    if private.public_key() != public:
        return (
            "node key",
            WRONG,
            "node.key does not fit node.key.pub: copy both from the same kit",
        )
    return "node key", OK, "fits its public half"


def _node_config(place: Path, laid_out: Kit, machine: str) -> Iterator[Line]:
    path = place / "node.toml"
    try:
        values: dict[str, Any] = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        yield "node.toml", WRONG, f"cannot be read: {error}; mend {path}"
        return
    if machine == "auditor":
        yield from _auditor_config(place, values)
        return
    partition = int(machine.removeprefix("owner-"))
    expected = {"partition-id": partition, "num-partitions": laid_out.owners}
    if wrong := [key for key, value in expected.items() if values.get(key) != value]:
        (key, *_) = wrong
        yield (
            "node.toml",
            WRONG,
            f"{key} is {values.get(key)!r}: {machine} of {laid_out.owners} has {expected[key]}",
        )
    data = str(values.get("data-path", ""))
    # Flower's processes are started in work/.
    where = (place / "work" / data).resolve()
    if not data or not where.exists():
        yield (
            "data",
            WRONG,
            f"there is no folder '{data}', and no such file: set data-path in {path} to where this "
            "owner's data lie",
        )
    elif not os.access(where, os.R_OK | os.X_OK if where.is_dir() else os.R_OK):
        yield "data", WRONG, f"'{data}' cannot be read: give this user access to it"
    else:
        yield "data", OK, str(where)
    try:
        agreed = consent.given(values)
    except consent.RefusedError as error:
        yield "consent", WRONG, f"{error}; mend {path}"
        return
    if agreed is None:
        yield "consent", WRONG, f'is not asked for: add consent = "" to {path}'
    else:
        yield "consent", OK, ", ".join(sorted(agreed)) or "to nothing but plain training"


def _auditor_config(place: Path, values: Mapping[str, Any]) -> Iterator[Line]:
    """Look at whether the node joins as an auditor, and can keep what it sees to itself."""
    path = place / "node.toml"
    if values.get("role") != "auditor":
        yield "node.toml", WRONG, f'role is {values.get("role")!r}: set role = "auditor" in {path}'
    told = values.get("transcript-path", "")
    # Flower's processes are started in work/.
    folder = (place / "work" / str(told)).resolve()
    if not told or not folder.is_dir():
        yield (
            "transcripts",
            WRONG,
            f"there is no folder '{told}': set transcript-path in {path} to where this node is to "
            "record",
        )
    elif not os.access(folder, os.R_OK | os.W_OK | os.X_OK):
        yield "transcripts", WRONG, f"'{told}' cannot be written: give this user access to it"
    elif (mode := stat.S_IMODE(folder.stat().st_mode)) & 0o077:
        yield "transcripts", WRONG, f"others may read {told} ({mode:o}): chmod 700 {folder}"
    else:
        yield "transcripts", OK, str(folder)


def _reached(place: Path, host: str, port: int) -> Iterator[Line]:
    """Connect as a node does: TLS by the kit's authority, the Fleet API and no other."""
    try:
        trusted = ssl.create_default_context(cafile=str(place / "ca.crt"))
    except (OSError, ssl.SSLError) as error:
        yield "TLS", WRONG, f"ca.crt cannot be read ({error}): copy this machine's folder anew"
        return
    try:
        with (
            socket.create_connection((host, port), timeout=TIMEOUT) as plain,
            trusted.wrap_socket(plain, server_hostname=host),
        ):
            pass
    except ssl.SSLCertVerificationError as error:
        yield (
            "TLS",
            WRONG,
            f"{host}:{port} shows a certificate that fails: {error.verify_message}; give all "
            "machines the folders of one kit",
        )
        return
    except ssl.SSLError as error:
        yield "TLS", WRONG, f"{host}:{port} does not speak TLS ({error.reason}): start the proxy"
        return
    except OSError as error:
        yield (
            "server",
            WRONG,
            f"{host}:{port} is unreachable ({error}): start the server, or open the port to here",
        )
        return
    yield "TLS", OK, f"{host}:{port} is the server"
    try:
        with httpx.Client(verify=trusted, timeout=TIMEOUT, trust_env=False) as client:
            fleet = client.post(f"https://{host}:{port}/v1/fleet/pull-messages").status_code
            control = client.post(f"https://{host}:{port}{CONTROL}").status_code
    except httpx.HTTPError as error:
        yield "Fleet API", WRONG, f"does not answer ({error!r}): start the server's proxy"
        return
    if fleet in (403, 502):
        yield (
            "Fleet API",
            WRONG,
            f"the proxy answers {fleet}: start the SuperLink, and the proxy of this kit",
        )
    else:
        yield "Fleet API", OK, "passes"
    if control == 403:
        yield "Control API", OK, "is closed"
    else:
        yield (
            "Control API",
            WRONG,
            f"answers {control} here, so that anyone can submit code: let owners reach only the "
            "proxy of start.sh, or nginx with nginx.conf",
        )


def _process(place: Path, name: str) -> int | None:
    """Return the process that start.sh began, if it is still there."""
    try:
        pid = int((place / f"{name}.pid").read_text())
        command = " ".join(psutil.Process(pid).cmdline())
    except (OSError, ValueError, psutil.Error):
        return None
    # A number in a file that was left behind may be another program's by now.
    folders = {place.absolute(), place.resolve()}
    return pid if any(f"{folder}/" in f"{command}/" for folder in folders) else None


def _listening(host: str, port: int) -> bool:
    try:
        with socket.create_connection((host, port), timeout=TIMEOUT):
            return True
    except OSError:
        return False
