"""Checks of a node: its key, config, data and budget, and its connection to the server."""

import os
import ssl
import stat
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from itertools import groupby
from pathlib import Path
from typing import Any

import httpx
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
from cryptography.hazmat.primitives.serialization import load_ssh_private_key, load_ssh_public_key

from adversaries import registry
from adversaries.errors import InputError
from fedsim.common import reading
from fedsim.deployment import kit, logs, run, supervision
from fedsim.deployment.checks import connection
from fedsim.deployment.checks.connection import NOTE, OK, WRONG, Line
from fedsim.deployment.kit import Kit
from fedsim.federation.client import client_ledger, seen_models
from fedsim.federation.client.client_ledger import AnsweredMessage
from fedsim.federation.protocol import consent, node_machine, signed_keys
from fedsim.federation.protocol.consent import EPSILON_LIMIT, EXPERIMENT, STATE, Terms
from fedsim.federation.runtimes import ports
from fedsim.federation.runtimes.flower_services import (
    EARLIEST,
    LATEST,
    LEASE,
    gives_tasks_to_anybody,
    server_knows,
)
from fedsim.learning.data import own_records
from fedsim.learning.data import schema as schemas
from fedsim.learning.data.columns import shortened


def node(place: Path, laid_out: Kit, machine: str) -> Iterator[Line]:
    """Check a client's or the auditor's node: key, config, data, and the server from here."""
    yield _node_key(place)
    yield from _node_config(place, laid_out, machine)
    host, _, text = kit.settings(place).get("SUPERLINK", "").rpartition(":")
    if host and text.isdecimal():
        yield from connection.reached(place, host, int(text), host)
        yield from admitted(place, host, int(text))
    else:
        message = (
            f"SUPERLINK in {place / 'settings.env'} is not HOST:PORT; set it to "
            f"{laid_out.address}:{laid_out.port}"
        )
        yield "server", WRONG, message
    kit.deadline(place)
    yield from running(place, kit.port(place, "NODE_PORT"))


def _node_key(place: Path) -> Line:
    try:
        private = load_ssh_private_key((place / "node.key").read_bytes(), password=None)
        public = load_ssh_public_key((place / "node.key.pub").read_bytes())
    except (OSError, ValueError, TypeError, UnsupportedAlgorithm) as error:
        return "node key", WRONG, f"cannot be read ({error}); copy this machine's folder again"
    if private.public_key() != public:
        message = "node.key does not match node.key.pub; copy both from the same kit"
        return "node key", WRONG, message
    return "node key", OK, "matches its public half"


def _node_config(place: Path, laid_out: Kit, machine: str) -> Iterator[Line]:
    path = place / "node.toml"
    try:
        values: dict[str, Any] = reading.toml(path)
    except (OSError, ValueError) as error:
        yield "node.toml", WRONG, f"cannot be read: {error}; correct {path}"
        return
    if machine == "auditor":
        yield from _auditor_config(place, values)
        return
    partition = int(machine.removeprefix("client-"))
    expected = {"partition-id": partition, "num-partitions": laid_out.clients}
    if wrong := [key for key, value in expected.items() if values.get(key) != value]:
        (key, *_) = wrong
        yield (
            "node.toml",
            WRONG,
            f"{key} is {values.get(key)!r}, but {machine} of {laid_out.clients} clients needs "
            f"{expected[key]}",
        )
    yield from _data(place, values)
    yield _peers(place, laid_out.clients, values)
    try:
        agreed = consent.terms(values)
    except consent.RefusedError as error:
        yield "consent", WRONG, f"{error}; correct {path}"
        return
    if agreed is None:
        yield "consent", WRONG, f'is missing; add consent = "" to {path}'
        return
    yield "consent", OK, agreed.consent or "to plain training only"
    state = (place / "work" / agreed.state).resolve()
    yield from budget(agreed, state)
    yield from _deadline(place, state)


def _peers(place: Path, clients: int, values: Mapping[str, Any]) -> Line:
    """Check the public keys of all clients, by which secure aggregation holds against a server."""
    try:
        if not signed_keys.knows_peers(values):
            message = (
                f"{signed_keys.PEERS} is not set, so under distributed trust each message counts "
                "as if the server could read it alone"
            )
            return "peers", NOTE, message
        folder = (place / "work" / str(values[signed_keys.PEERS])).resolve()
        keys = {
            (folder / f"client-{client}.pub").read_text().split()[1] for client in range(clients)
        }
        own = (place / "node.key.pub").read_text().split()[1]
    except (consent.RefusedError, OSError, ValueError, IndexError) as error:
        message = f"{error}; copy each client's node.key.pub to peers/client-NUMBER.pub"
        return "peers", WRONG, message
    if own not in keys or len(keys) < clients:
        message = (
            f"{folder} lacks the key of a client, or of this one; copy each node.key.pub again"
        )
        return "peers", WRONG, message
    return "peers", OK, f"public keys of {clients} clients"


def _deadline(place: Path, state: Path) -> Iterator[Line]:
    """Check that the server of the latest training waited as long as this node computes."""
    files = (state / seen_models.FOLDER).glob(f"*/{seen_models.CONFIG}")
    if latest := max(files, key=lambda file: file.stat().st_mtime, default=None):
        with suppress(InputError):  # a configuration of another fedsim
            config = seen_models.of(latest.parent).config
            deadline, timeout = kit.deadline(place), config.federation.timeout
            if complaint := node_machine.deadline_complaint(deadline, timeout):
                yield "deadline", NOTE, f"in the latest training, {config.run.name}, {complaint}"


def _data(place: Path, values: Mapping[str, Any]) -> Iterator[Line]:
    """Check that a client's data exist at their path, and fit its copy of the schema."""
    data, schema = (str(values.get(key, "")) for key in (consent.DATA, consent.SCHEMA))
    # Flower's processes start in work/.
    where = (place / "work" / data).resolve()
    if registry.is_code(data):
        yield "data", OK, f"come from the function {data}, which this check does not call"
    elif not data or not where.exists():
        message = (
            f"there is no folder or file '{data}'; set data-path in {place / 'node.toml'} to "
            "the path of this client's data"
        )
        yield "data", WRONG, message
    elif not os.access(where, os.R_OK | os.X_OK if where.is_dir() else os.R_OK):
        yield "data", WRONG, f"'{data}' cannot be read; give this user access to it"
    elif not schema:
        yield "data", OK, f"{where}; a training on them needs {consent.SCHEMA} in node.toml"
    else:
        try:
            agreed = schemas.load(str((place / "work" / schema).resolve()))
            weights = (place / "work" / str(values.get(consent.WEIGHTS, ""))).resolve()
            inspection = own_records.inspect(str(where), agreed, directory=str(weights))
        except InputError as error:
            yield "data", WRONG, str(error)
            return
        yield from _records(where, inspection)


def _records(where: Path, inspection: own_records.Inspection) -> Iterator[Line]:
    for problem in inspection.refused:
        yield (
            "data",
            WRONG,
            f"{where}, {problem}; correct the records, or the schema that all share",
        )
    for problem in inspection.problems:
        if problem.drop:
            yield "data", NOTE, f"{where}, {problem}; left out, as {consent.SCHEMA} says"
        elif problem.changed:
            yield "data", NOTE, f"{where}, {problem}, as {consent.SCHEMA} says"
    if inspection.ignored:
        named = shortened(inspection.ignored)
        yield "data", NOTE, f"{where} has columns that {consent.SCHEMA} does not use: {named}"
    kept = len(inspection.records.labels)
    if not kept:
        yield "data", WRONG, f"{where} has no records that {consent.SCHEMA} keeps; give some"
    elif not inspection.refused:
        share = f"all {kept}" if kept == inspection.total else f"{kept} of {inspection.total}"
        yield "data", OK, f"{where}: {consent.SCHEMA} keeps {share} records"


def _auditor_config(place: Path, values: Mapping[str, Any]) -> Iterator[Line]:
    """Check that the node joins as an auditor, and that its transcripts stay private."""
    path = place / "node.toml"
    if values.get("role") != "auditor":
        yield "node.toml", WRONG, f'role is {values.get("role")!r}; set role = "auditor" in {path}'
    configured = values.get("transcript-path", "")
    # Flower's processes start in work/.
    folder = (place / "work" / str(configured)).resolve()
    if not configured or not folder.is_dir():
        message = (
            f"there is no folder '{configured}'; set transcript-path in {path} to the folder of "
            "the transcripts"
        )
        yield "transcripts", WRONG, message
    elif not os.access(folder, os.R_OK | os.W_OK | os.X_OK):
        yield "transcripts", WRONG, f"'{configured}' cannot be written; give this user access to it"
    elif (mode := stat.S_IMODE(folder.stat().st_mode)) & 0o077:
        yield "transcripts", WRONG, f"others may read {configured} ({mode:o}); chmod 700 {folder}"
    else:
        yield "transcripts", OK, str(folder)


def budget(terms: Terms, state: Path) -> Iterator[Line]:
    """Check every answered run, and the total epsilon."""
    try:
        answers = client_ledger.read_answers(state)
        plans = client_ledger.reserved(state, answers)
    except InputError as error:
        yield "budget", WRONG, str(error)
        return
    promised: list[AnsweredMessage] = []
    for run_id, group in groupby(answers, key=lambda answer: answer.run):
        mine = list(group)
        promised += mine
        charged = any(answer.charged for answer in mine)
        after = client_ledger.epsilon(promised, terms.delta_limit)
        rounds = len({answer.round for answer in mine})
        trials = len({trial for answer in mine for trial in answer.trial_numbers})
        cost = f"epsilon {after:.4g} after it" if charged else "nothing charged"
        message = (
            f"{mine[0].name} (run {run_id}, records {mine[-1].records}): rounds {rounds}, trials "
            f"{trials}; {cost}"
        )
        yield "answered", OK if charged else NOTE, message
    reserved = client_ledger.epsilon([*answers, *plans], terms.delta_limit)
    for plan in plans:
        message = (
            f"{plan.name} (run {plan.run}) has not ended, and what it reserved is kept from other "
            f"runs; epsilon {reserved:.4g} with all that is reserved"
        )
        yield "reserved", NOTE, message
    spent, limit = client_ledger.epsilon(promised, terms.delta_limit), terms.epsilon_limit
    at = f"at delta {terms.delta_limit:g}"
    if (together := client_ledger.epsilon_of_client(promised, terms.delta_limit)) is not None:
        at += f" for any one record ({together:.4g} for all records together)"
    if EXPERIMENT in terms.kinds:
        yield "budget", NOTE, f"nothing is charged, since consent has '{EXPERIMENT}'"
    elif spent < limit:
        left = f"epsilon {spent:.4g} of {limit:g} is spent {at}, {limit - spent:.4g} is left"
        yield "budget", OK, left
    else:
        message = (
            f"epsilon {spent:.4g} of {limit:g} is spent {at}, so the client answers nothing more; "
            f"to agree to more, raise {EPSILON_LIMIT}; if the records are now other people's, set "
            f"another {STATE}"
        )
        yield "budget", NOTE, message


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
        message = "the server does not accept this node's signature; see the check of the clock"
        yield "registered", WRONG, message
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
    """Check that the node runs, is heard by the server, and alone gets its tasks."""
    process = supervision.number(place, "supernode")
    listening = ports.listening("127.0.0.1", port)
    reason = logs.complaint(place / "logs" / "supernode.log") or "its log does not say why"
    if process is None and (place / "supernode.pid").exists():
        restart = f"sh {place / 'start.sh'}"
        yield "supernode", WRONG, f"has ended by itself ({reason}); fix the cause, then {restart}"
    elif process is None and not listening:
        yield "supernode", NOTE, f"is not running; sh {place / 'start.sh'}"
    elif process is not None and not listening:
        message = (
            f"runs (process {process}), but is not ready ({reason}) and tries again; see logs/"
        )
        yield "supernode", WRONG, message
    elif process is None and gives_tasks_to_anybody(f"https://127.0.0.1:{port}") is None:
        message = (
            f"port {port} is taken by another program; set another NODE_PORT in "
            f"{place / 'settings.env'}"
        )
        yield "supernode", WRONG, message
    else:
        yield "supernode", OK, f"runs (process {process})" if process else "runs"
        yield _heard(place, reason)
        yield _runtime(port, process)
        if _edited_since_start(place):
            yield (
                "node.toml",
                WRONG,
                "was edited after the node started, so the node uses the old version; "
                f"{_restart(place)}",
            )


def _heard(place: Path, reason: str) -> Line:
    """Check that the server answers the heartbeats of this node, which come every 20 seconds."""
    try:
        quiet = time.time() - (place / "state" / "runtime" / "heard").stat().st_mtime
    except OSError:
        return "heartbeat", WRONG, f"the server has not accepted this node yet ({reason})"
    if quiet > LEASE:
        message = (
            f"the server has answered none for {quiet:.0f} s, so it counts this node as away "
            f"({reason}); the node tries again"
        )
        return "heartbeat", WRONG, message
    return "heartbeat", OK, f"the server answered {quiet:.0f} s ago"


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
        message = (
            f"requires a secret, but this user cannot see the addresses of port {port}; check that "
            "it listens on loopback only"
        )
        return what, NOTE, message
    return what, OK, "requires a secret, and listens on loopback only"


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
