"""The eight checks of `fedsim deploy check`, with one line for each finding and its remedy.

Every machine: program, permissions and connection. A server: certificate and nodes. A node:
node.toml, data and budget. Ports are checked from this machine: check a folder on its own machine.
"""

import ipaddress
import os
import shutil
import ssl
import stat
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import httpx
import psutil
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.serialization import load_ssh_public_key

import fedsim
from adversaries import registry
from adversaries.errors import InputError
from fedsim.common import installation, reading
from fedsim.deployment import certificates, kit, run
from fedsim.deployment.kit import Kit
from fedsim.federation.client import client_ledger
from fedsim.federation.protocol import consent, signed_keys
from fedsim.federation.protocol.consent import EPSILON_LIMIT, RefusedError
from fedsim.federation.runtimes.flower_command import FlowerError, listening
from fedsim.federation.runtimes.flower_services import (
    AcquireTaskRequest,
    RuntimeHttpClient,
    RuntimeVersionHttpInterceptor,
)
from fedsim.learning.data import own_records
from fedsim.learning.data import schema as schemas
from fedsim.privacy.trust import FEWEST_SUMMED

OK, NOTE, WRONG = "ok", "note", "wrong"

Lines = Iterator[tuple[str, str]]
"""States, OK, NOTE or WRONG, each with a message; unless the state is OK, it has the remedy."""

TIMEOUT = 5.0

FLEET, CONTROL = "/v1/fleet/pull-messages", "/v1/control/list-runs"
"""A path of the nodes' API, and one of the API that submits code, which the proxy must not pass."""

RENEW = "fedsim deploy renew KIT, then copy server.key and server.crt here"
"""The remedy for a certificate. KIT is the folder of the whole kit."""


@dataclass(frozen=True)
class CheckResult:
    """One line of `fedsim deploy check`: machine, what was checked, state, and the finding.

    The machine of the kit's authority is "ca".
    """

    machine: str
    what: str
    state: str
    message: str


@dataclass(frozen=True)
class Checked:
    """A machine's folder, and the kit that it belongs to."""

    machine: str
    place: Path
    kit: Kit


def check_machines(directory: Path, machine: str | None = None) -> list[CheckResult]:
    """Return the findings about one machine, or about all of a directory, and the kit's authority.

    Raises InputError if the directory is no deployment or has no such machine.
    """
    laid_out = kit.read_kit(directory)
    own = [laid_out.machine] if laid_out.machine else laid_out.machines
    findings = []
    for name in own if machine is None else [machine]:
        checked = Checked(name, kit.folder(directory, name), laid_out)
        kind = "client" if name.startswith("client-") else name
        checks = CHECKS[kind] if checked.place.is_dir() else {"folder": _missing}
        for what, check in checks.items():
            findings += [CheckResult(name, what, *line) for line in _lines(check, checked)]
    if not laid_out.machine and (place := directory.absolute() / "ca").is_dir():
        lines = _lines(_permissions, Checked("ca", place, laid_out))
        findings += [CheckResult("ca", "permissions", *line) for line in lines]
    return findings


def _lines(check: Callable[[Checked], Lines], checked: Checked) -> Lines:
    """Yield the lines of a check. An error that ends it becomes the last line."""
    try:
        yield from check(checked)
    except (InputError, FlowerError, RefusedError) as error:
        yield WRONG, str(error)
    except (OSError, ValueError, TypeError, UnsupportedAlgorithm, httpx.HTTPError) as error:
        yield (
            WRONG,
            f"cannot be checked ({reading.reason(error)}); copy this machine's folder again",
        )


def _missing(checked: Checked) -> Lines:
    why = "copy it again, or, if it was handed out, check it on its machine"
    yield WRONG, f"'{checked.place}' is missing; {why}"


def _program(checked: Checked) -> Lines:
    """Check that the program of the kit, and no other, is what this machine starts."""
    if complaint := installation.complaint():
        yield WRONG, complaint
    for package, written, here in (
        ("fedsim", checked.kit.fedsim, fedsim.__version__),
        ("flwr", checked.kit.flwr, version("flwr")),
    ):
        if written != here:
            why = f"the kit was written with {written}; install the same version on every machine"
            yield NOTE, f"{package} {here} is installed, but {why}"
    own = kit.settings(checked.place).get("BIN") or None
    if shutil.which("fedsim", path=own) is None:
        settings = checked.place / "settings.env"
        why = f"set BIN in {settings} to the bin folder of its Python environment"
        yield WRONG, f"fedsim is not on the PATH; {why}"
    else:
        yield OK, f"fedsim {fedsim.__version__}, flwr {version('flwr')}"


def _permissions(checked: Checked) -> Lines:
    place = checked.place
    if checked.machine != "ca" and (place / "ca.key").exists():
        yield WRONG, f"the authority's key must not be here; remove {place / 'ca.key'}"
    names = ("*.key", "state", "flower", "transcripts")
    for path in [place, *(path for name in names for path in place.glob(name))]:
        if (mode := stat.S_IMODE(path.stat().st_mode)) & 0o077:
            remedy = f"chmod {'700' if path.is_dir() else '600'} {path}"
            yield WRONG, f"others may read {path.name} ({mode:o}); {remedy}"
            return
    yield OK, "only the owner can read the secrets"


def _certificate(checked: Checked) -> Lines:
    """Perform a handshake with the server's own files, as a node would."""
    place, address = checked.place, checked.kit.address
    try:
        certificates.verify(place / "server.crt", place / "server.key", place / "ca.crt", address)
    except (OSError, ValueError) as error:
        reason = getattr(error, "verify_message", "") or getattr(error, "reason", "") or error
        yield WRONG, f"nodes refuse server.crt with server.key for {address} ({reason}); {RENEW}"
        return
    end = certificates.end(place / "server.crt")
    soon = end - datetime.now(UTC) < certificates.SOON
    yield (NOTE, f"ends on {end:%F}; {RENEW}") if soon else (OK, f"until {end:%F}")


def _nodes(checked: Checked) -> Lines:
    """Check that each machine's key, and no other, is registered, and who is connected."""
    place, remedy = checked.place, f"run fedsim deploy register {checked.place}"
    files = run.key_files(place)
    for name in checked.kit.nodes:
        if name not in files:
            yield WRONG, f"keys/{name}.pub is missing; copy that machine's node.key.pub to it"
    known, nodes = run.statuses(place), run.registered(place)
    own = {node.node for name, node in nodes.items() if name in checked.kit.nodes}
    for unknown in sorted(known.keys() - own):
        if known[unknown] != run.UNREGISTERED:
            why = "which belongs to no machine of this federation"
            yield WRONG, f"the SuperLink lets in node {unknown}, {why}; {remedy}"
    for name in checked.kit.nodes:
        node = nodes.get(name)
        status = known.get(node.node, run.UNREGISTERED) if node else run.UNREGISTERED
        if node is None or status == run.UNREGISTERED:
            yield WRONG, f"the key of {name} is not registered; {remedy}"
        elif name in files and run.fingerprint_of(files[name]) != node.key:
            yield WRONG, f"keys/{name}.pub is not the registered key; {remedy}"
        elif status == "online":
            yield OK, f"{name} is connected"
        else:
            yield NOTE, f"{name} is not connected ({status}); start it there"


def server_connection(checked: Checked) -> Lines:
    """Check that the SuperLink answers, and that its proxy passes the Fleet API alone."""
    place, address = checked.place, checked.kit.address
    start = f"sh {place / 'start.sh'}"
    port = kit.port(place, "SUPERLINK_PORT")
    if not listening("127.0.0.1", port):
        yield WRONG, f"the SuperLink does not answer on port {port}; {start}"
    elif others := _reachable(port):
        why = "where anyone can submit code; start it with start.sh, which uses 127.0.0.1 only"
        yield WRONG, f"the SuperLink also listens on {others[0]}, {why}"
    port, listen = kit.port(place, "PORT"), kit.settings(place).get("LISTEN", "")
    host = "127.0.0.1" if listen in ("", "0.0.0.0", "::") else listen
    if listening(host, port):
        yield from _reached(place, host, port, address)
    else:
        yield WRONG, f"the proxy does not answer on port {port}; {start}"


def _reachable(port: int) -> list[str]:
    """Return the addresses of a port beside loopback; none where the system hides them."""
    try:
        sockets = psutil.net_connections("tcp")
    except psutil.AccessDenied:
        return []
    listening = [one.laddr for one in sockets if one.status == psutil.CONN_LISTEN and one.laddr]
    addresses = {address.ip for address in listening if address.port == port}
    return sorted(each for each in addresses if not ipaddress.ip_address(each).is_loopback)


def _node_connection(checked: Checked) -> Lines:
    """Check that this node runs, has its key, and reaches the server."""
    place = checked.place
    kit.deadline(place)
    port = kit.port(place, "NODE_PORT")
    if not listening("127.0.0.1", port):
        yield NOTE, f"this node is not running; sh {place / 'start.sh'}, and see logs/"
    elif any(
        gives_tasks_to_anybody(f"{scheme}://127.0.0.1:{port}") for scheme in ("https", "http")
    ):
        why = "the run's model and the right to answer for this node; start it with start.sh"
        yield WRONG, f"port {port} gives every account of this machine {why}"
    host, _, text = kit.settings(place).get("SUPERLINK", "").rpartition(":")
    if not host or not text.isdecimal():
        why = f"set it to {checked.kit.address}:{checked.kit.port}"
        yield WRONG, f"SUPERLINK in {place / 'settings.env'} is not HOST:PORT; {why}"
        return
    yield from _reached(place, host, int(text), host)
    private = certificates.private_node_key(place / "node.key").public_key()
    if load_ssh_public_key((place / "node.key.pub").read_bytes()) != private:
        yield WRONG, "node.key does not match node.key.pub; copy both from the same kit"


def gives_tasks_to_anybody(url: str) -> bool:
    """Return whether a Runtime API requires no secret. It claims no task."""
    version = RuntimeVersionHttpInterceptor(component_name="SuperExec")
    client = RuntimeHttpClient(url, interceptors=[version], verify=False, timeout=TIMEOUT)
    try:
        client.AcquireTask(AcquireTaskRequest(supported_task_types=[]))
    except (httpx.HTTPError, ValueError):
        return False
    finally:
        client.close()
    return True


def _reached(place: Path, host: str, port: int, name: str) -> Lines:
    """Connect as a node does: by TLS to a name in the certificate, then to each API."""
    at = f"{host}:{port}"
    try:
        trusted = ssl.create_default_context(cafile=str(place / "ca.crt"))
        with httpx.Client(verify=trusted, timeout=TIMEOUT, trust_env=False) as client:
            fleet, control = (
                client.post(f"https://{at}{path}", extensions={"sni_hostname": name}).status_code
                for path in (FLEET, CONTROL)
            )
    except (OSError, httpx.HTTPError) as error:
        why = "start the server and its proxy, open the port to here, or renew the certificate"
        yield WRONG, f"{at} does not answer as a server of this kit ({error}); {why}"
        return
    if fleet in (403, 502):
        yield WRONG, f"the proxy of {at} answers {fleet}; start the SuperLink of this kit"
    elif control != 403:
        why = "so anyone can submit code; let clients reach only the proxy of start.sh"
        yield WRONG, f"the Control API answers {control} at {at}, {why}"
    else:
        yield OK, f"{at} is the server; only the Fleet API passes"


def _values(checked: Checked) -> dict[str, Any]:
    """Return a node's settings. Raises InputError if they cannot be read."""
    try:
        return reading.toml(checked.place / "node.toml")
    except FileNotFoundError:
        raise InputError("node.toml is missing; copy this machine's folder again") from None


def _path(checked: Checked, named: object) -> Path:
    """Return a path of node.toml, which begins where Flower's processes start."""
    return (checked.place / "work" / str(named)).resolve()


def _client_settings(checked: Checked) -> Lines:
    """Check a client's numbers, its consent, and the public keys of all clients."""
    values, clients = _values(checked), checked.kit.clients
    own = int(checked.machine.removeprefix("client-"))
    for key, expected in (("partition-id", own), ("num-partitions", clients)):
        if values.get(key) != expected:
            yield WRONG, f"{key} is {values.get(key)!r}, but this client needs {expected}"
    if (agreed := consent.terms(values)) is None:
        yield WRONG, 'consent is missing; add consent = ""'
        return
    yield OK, f"the client consents to {agreed.consent or 'plain training only'}"
    counts = "so under distributed trust each message counts as if the server could read it"
    if clients < FEWEST_SUMMED:
        yield NOTE, f"there are fewer than {FEWEST_SUMMED} clients, {counts}"
    if not signed_keys.knows_peers(values):
        yield NOTE, f"{signed_keys.PEERS} is not set, {counts}"
        return
    folder = _path(checked, values[signed_keys.PEERS])
    files = [folder / f"client-{client}.pub" for client in range(clients)]
    keys = {run.fingerprint_of(path) for path in files if path.is_file()}
    if len(keys) < clients or run.fingerprint_of(checked.place / "node.key.pub") not in keys:
        why = "copy each client's node.key.pub to client-NUMBER.pub"
        yield WRONG, f"{folder} lacks the key of a client, or of this one; {why}"


def _auditor_settings(checked: Checked) -> Lines:
    values = _values(checked)
    named = str(values.get("transcript-path", ""))
    folder = _path(checked, named)
    if values.get("role") != "auditor":
        yield WRONG, f'role is {values.get("role")!r}; set role = "auditor"'
    elif not named or not os.access(folder, os.R_OK | os.W_OK | os.X_OK):
        yield WRONG, f"there is no folder '{named}' that this user can write; set transcript-path"
    else:
        yield OK, f"an auditor, whose transcripts are in {folder}"


def _data(checked: Checked) -> Lines:
    """Check that a client's data exist at their path, and fit its copy of the schema."""
    values = _values(checked)
    data, schema = (str(values.get(key, "")) for key in (consent.DATA, consent.SCHEMA))
    where = _path(checked, data)
    if registry.is_code(data):
        yield OK, f"come from the function {data}, which this check does not call"
    elif not data or not os.access(where, os.R_OK | os.X_OK if where.is_dir() else os.R_OK):
        why = f"set data-path in {checked.place / 'node.toml'} to the path of this client's data"
        yield WRONG, f"there is no folder or file '{data}' that this user can read; {why}"
    elif not schema:
        yield OK, f"{where}; a training on them needs {consent.SCHEMA} in node.toml"
    else:
        agreed = schemas.load(str(_path(checked, schema)))
        weights = str(_path(checked, values.get(consent.WEIGHTS, "")))
        yield from _records(where, own_records.inspect(str(where), agreed, directory=weights))


def _records(where: Path, inspection: own_records.Inspection) -> Lines:
    for problem in inspection.refused:
        yield WRONG, f"{where}, {problem}; correct the records, or the schema that all share"
    for problem in inspection.problems:
        if problem.drop or problem.changed:
            done = "left out" if problem.drop else "changed"
            yield NOTE, f"{where}, {problem}; {done}, as {consent.SCHEMA} says"
    kept = len(inspection.records.labels)
    if not kept:
        yield WRONG, f"{where} has no records that {consent.SCHEMA} keeps; give some"
    elif not inspection.refused:
        yield OK, f"{where}: {consent.SCHEMA} keeps {kept} of {len(inspection.kept)} records"


def _budget(checked: Checked) -> Lines:
    """Check what is spent over all runs. `fedsim deploy report` lists each run."""
    values = _values(checked)
    if (terms := consent.terms(values)) is None:
        return
    answers = client_ledger.read_answers(_path(checked, terms.state))
    spent, limit = client_ledger.epsilon(answers, terms.delta_limit), terms.epsilon_limit
    at = f"at delta {terms.delta_limit:g}, in {len({answer.run for answer in answers})} runs"
    if consent.EXPERIMENT in terms.kinds:
        yield NOTE, f"nothing is charged, since consent has '{consent.EXPERIMENT}'"
    elif spent < limit:
        yield OK, f"epsilon {spent:.4g} of {limit:g} is spent {at}; {limit - spent:.4g} is left"
    else:
        why = f"so the client answers nothing more; to agree to more, raise {EPSILON_LIMIT}"
        yield NOTE, f"epsilon {spent:.4g} of {limit:g} is spent {at}, {why}"


EVERYWHERE = {"program": _program, "permissions": _permissions}

CHECKS: dict[str, dict[str, Callable[[Checked], Lines]]] = {
    "server": {
        **EVERYWHERE,
        "certificate": _certificate,
        "connection": server_connection,
        "nodes": _nodes,
    },
    "client": {
        **EVERYWHERE,
        "node.toml": _client_settings,
        "data": _data,
        "budget": _budget,
        "connection": _node_connection,
    },
    "auditor": {**EVERYWHERE, "node.toml": _auditor_settings, "connection": _node_connection},
}
"""The checks of each kind of machine, in order."""
