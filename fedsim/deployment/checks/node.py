"""Checks of a node: its key, config, data and budget, its connection, and its SuperNode."""

import os
import ssl
import stat
import time
from collections.abc import Iterator, Mapping
from email.utils import parsedate_to_datetime
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
from fedsim.federation.client import client_ledger
from fedsim.federation.protocol import consent, signed_keys
from fedsim.federation.protocol.consent import EPSILON_LIMIT, EXPERIMENT, STATE, Terms
from fedsim.federation.runtimes import ports
from fedsim.federation.runtimes.flower_services import (
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
    path = place / "node.toml"
    try:
        values: dict[str, Any] = reading.toml(path)
    except (OSError, ValueError) as error:
        yield "node.toml", WRONG, f"cannot be read: {error}; correct {path}"
    else:
        if machine == "auditor":
            yield _auditor(place, values)
        else:
            yield from _client(place, laid_out, int(machine.removeprefix("client-")), values)
    host, _, text = kit.settings(place).get("SUPERLINK", "").rpartition(":")
    if host and text.isdecimal():
        yield from connection.reached(place, host, int(text), host)
        yield from _admitted(place, f"https://{host}:{text}")
    else:
        why = f"is not HOST:PORT; set it to {laid_out.address}:{laid_out.port}"
        yield "connection", WRONG, f"SUPERLINK in {place / 'settings.env'} {why}"
    kit.deadline(place)
    yield from _running(place, kit.port(place, "NODE_PORT"))


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


def _client(place: Path, laid_out: Kit, client: int, values: Mapping[str, Any]) -> Iterator[Line]:
    """Check a client's numbers, the keys of the other clients, its data, consent and budget."""
    what, path = "node.toml", place / "node.toml"
    for key, expected in (("partition-id", client), ("num-partitions", laid_out.clients)):
        if values.get(key) != expected:
            yield what, WRONG, f"{key} is {values.get(key)!r}, but this client needs {expected}"
    yield from _peers(place, laid_out.clients, values)
    yield from _data(place, values)
    try:
        agreed = consent.terms(values)
    except consent.RefusedError as error:
        yield what, WRONG, f"{error}; correct {path}"
        return
    if agreed is None:
        yield what, WRONG, f'consent is missing; add consent = "" to {path}'
        return
    yield what, OK, f"the client consents to {agreed.consent or 'plain training only'}"
    yield from _budget(agreed, (place / "work" / agreed.state).resolve())


def _peers(place: Path, clients: int, values: Mapping[str, Any]) -> Iterator[Line]:
    """Check the public keys of all clients, by which secure aggregation holds against a server."""
    what = "node.toml"
    try:
        if not signed_keys.knows_peers(values):
            why = "so under distributed trust each message counts as if the server could read it"
            yield what, NOTE, f"{signed_keys.PEERS} is not set, {why}"
            return
        folder = (place / "work" / str(values[signed_keys.PEERS])).resolve()
        keys = {
            (folder / f"client-{client}.pub").read_text().split()[1] for client in range(clients)
        }
        own = (place / "node.key.pub").read_text().split()[1]
    except (consent.RefusedError, OSError, ValueError, IndexError) as error:
        yield what, WRONG, f"{error}; copy each client's node.key.pub to peers/client-NUMBER.pub"
        return
    if own not in keys or len(keys) < clients:
        why = "lacks the key of a client, or of this one; copy each node.key.pub again"
        yield what, WRONG, f"{folder} {why}"


def _data(place: Path, values: Mapping[str, Any]) -> Iterator[Line]:
    """Check that a client's data exist at their path, and fit its copy of the schema."""
    what, work = "data", place / "work"  # where Flower's processes start
    data, schema = (str(values.get(key, "")) for key in (consent.DATA, consent.SCHEMA))
    where = (work / data).resolve()
    if registry.is_code(data):
        yield what, OK, f"come from the function {data}, which this check does not call"
    elif not data or not os.access(where, os.R_OK | os.X_OK if where.is_dir() else os.R_OK):
        why = f"set data-path in {place / 'node.toml'} to the path of this client's data"
        yield what, WRONG, f"there is no folder or file '{data}' that this user can read; {why}"
    elif not schema:
        yield what, OK, f"{where}; a training on them needs {consent.SCHEMA} in node.toml"
    else:
        weights = (work / str(values.get(consent.WEIGHTS, ""))).resolve()
        try:
            agreed = schemas.load(str((work / schema).resolve()))
            inspection = own_records.inspect(str(where), agreed, directory=str(weights))
        except InputError as error:
            yield what, WRONG, str(error)
        else:
            yield from _records(where, inspection)


def _records(where: Path, inspection: own_records.Inspection) -> Iterator[Line]:
    for problem in inspection.refused:
        why = "correct the records, or the schema that all share"
        yield "data", WRONG, f"{where}, {problem}; {why}"
    for problem in inspection.problems:
        if problem.drop or problem.changed:
            done = "left out" if problem.drop else "changed"
            yield "data", NOTE, f"{where}, {problem}; {done}, as {consent.SCHEMA} says"
    if inspection.ignored:
        named = shortened(inspection.ignored)
        yield "data", NOTE, f"{where} has columns that {consent.SCHEMA} does not use: {named}"
    kept = len(inspection.records.labels)
    if not kept:
        yield "data", WRONG, f"{where} has no records that {consent.SCHEMA} keeps; give some"
    elif not inspection.refused:
        yield "data", OK, f"{where}: {consent.SCHEMA} keeps {kept} of {inspection.total} records"


def _auditor(place: Path, values: Mapping[str, Any]) -> Line:
    """Check that the node joins as an auditor, and that its transcripts stay private."""
    path, named = place / "node.toml", str(values.get("transcript-path", ""))
    folder = (place / "work" / named).resolve()  # Flower's processes start in work/
    if values.get("role") != "auditor":
        message = f'role is {values.get("role")!r}; set role = "auditor" in {path}'
    elif not named or not folder.is_dir() or not os.access(folder, os.R_OK | os.W_OK | os.X_OK):
        why = f"set transcript-path in {path} to the folder of the transcripts"
        message = f"there is no folder '{named}' that this user can write; {why}"
    elif (mode := stat.S_IMODE(folder.stat().st_mode)) & 0o077:
        message = f"others may read {named} ({mode:o}); chmod 700 {folder}"
    else:
        return "node.toml", OK, f"an auditor, whose transcripts are in {folder}"
    return "node.toml", WRONG, message


def _budget(terms: Terms, state: Path) -> Iterator[Line]:
    """Check what is spent and reserved over all runs. `fedsim deploy report` lists each run."""
    what = "budget"
    try:
        answers = client_ledger.read_answers(state)
        plans = client_ledger.reserved(state, answers)
    except InputError as error:
        yield what, WRONG, str(error)
        return
    spent, limit = client_ledger.epsilon(answers, terms.delta_limit), terms.epsilon_limit
    at = f"at delta {terms.delta_limit:g}, in {len({answer.run for answer in answers})} runs"
    if (together := client_ledger.epsilon_of_client(answers, terms.delta_limit)) is not None:
        at += f", for any one record ({together:.4g} for all records together)"
    if plans:
        with_plans = client_ledger.epsilon([*answers, *plans], terms.delta_limit)
        names = ", ".join(f"{plan.name} (run {plan.run})" for plan in plans)
        yield what, NOTE, f"{names} has not ended; epsilon {with_plans:.4g} with what it reserved"
    if EXPERIMENT in terms.kinds:
        yield what, NOTE, f"nothing is charged, since consent has '{EXPERIMENT}'"
    elif spent < limit:
        left = f"epsilon {spent:.4g} of {limit:g} is spent {at}; {limit - spent:.4g} is left"
        yield what, OK, left
    else:
        why = (
            f"so the client answers nothing more; to agree to more, raise {EPSILON_LIMIT}; if the "
            f"records are now other people's, set another {STATE}"
        )
        yield what, NOTE, f"epsilon {spent:.4g} of {limit:g} is spent {at}, {why}"


def _admitted(place: Path, url: str) -> Iterator[Line]:
    """Check that the server accepts this node's signature: its clock, and its key."""
    what = "registered"
    try:
        trusted = ssl.create_default_context(cafile=str(place / "ca.crt"))
        private = load_ssh_private_key((place / "node.key").read_bytes(), password=None)
        if not isinstance(private, EllipticCurvePrivateKey):
            return
        known = server_knows(url, trusted, private)
        ahead = 0.0 if known is not None else _clock_ahead(url, trusted)
    except httpx.HTTPStatusError as error:
        yield what, WRONG, f"the server answers {error.response.status_code}; see its log"
    except InputError as error:
        yield "program", WRONG, str(error)
    except (OSError, ValueError, TypeError, UnsupportedAlgorithm, httpx.HTTPError):
        return  # other checks report it
    else:
        if known is None:
            why = "this machine's clock is {:.0f} s ahead of the server's; set both clocks by NTP"
            yield what, WRONG, f"the server refuses this node's signature; {why.format(ahead)}"
        elif known:
            yield what, OK, "the server knows the key"
        else:
            key = run.fingerprint_of(place / "node.key.pub")
            why = (
                "send it node.key.pub for its folder keys/, and have it run fedsim deploy register"
            )
            yield what, WRONG, f"the server does not know the key {key}; {why}"


def _clock_ahead(url: str, trusted: ssl.SSLContext) -> float:
    """Return the seconds by which this clock is ahead of a server's, which answers whole ones."""
    with httpx.Client(verify=trusted, timeout=connection.TIMEOUT, trust_env=False) as client:
        date = client.post(f"{url}{connection.FLEET}").headers.get("date", "")
    return time.time() - parsedate_to_datetime(date).timestamp()


def _running(place: Path, port: int) -> Iterator[Line]:
    """Check that the node runs, is heard by the server, and alone gets its tasks."""
    what, process = "supernode", supervision.number(place, "supernode")
    start, reason = f"sh {place / 'start.sh'}", logs.complaint(place / "logs" / "supernode.log")
    reason = reason or "its log does not say why"
    if not ports.listening("127.0.0.1", port):
        if process is not None:
            why = f"({reason}) and tries again; see logs/"
            yield what, WRONG, f"runs (process {process}), but is not ready {why}"
        elif (place / "supernode.pid").exists():
            yield what, WRONG, f"has ended by itself ({reason}); fix the cause, then {start}"
        else:
            yield what, NOTE, f"is not running; {start}"
        return
    open_to_all = [
        gives_tasks_to_anybody(f"{scheme}://127.0.0.1:{port}") for scheme in ("https", "http")
    ]
    if any(open_to_all):
        why = "the run's model and the right to answer for this node"
        yield what, WRONG, f"gives every account of this machine {why}; start it with start.sh"
    elif process is None and open_to_all[0] is None:
        why = f"set another NODE_PORT in {place / 'settings.env'}"
        yield what, WRONG, f"port {port} is taken by another program; {why}"
    else:
        yield _heard(place, reason)
        if _edited_since_start(place):
            why = "so the node uses the old version; stop it and start it again"
            yield "node.toml", WRONG, f"was edited after the node started, {why}"


def _heard(place: Path, reason: str) -> Line:
    """Check that the server answers the heartbeats of this node, which come every 20 seconds."""
    try:
        quiet = time.time() - (place / "state" / "runtime" / "heard").stat().st_mtime
    except OSError:
        return "supernode", WRONG, f"the server has not accepted this node yet ({reason})"
    if quiet > LEASE:
        why = f"so it counts this node as away ({reason}); the node tries again"
        return "supernode", WRONG, f"the server has answered no heartbeat for {quiet:.0f} s, {why}"
    return "supernode", OK, f"runs; the server answered a heartbeat {quiet:.0f} s ago"


def _edited_since_start(place: Path) -> bool:
    """Return whether node.toml is newer than the secret, which each start writes before it."""
    try:
        started = (place / "state" / "runtime" / "secret").stat().st_mtime
        return (place / "node.toml").stat().st_mtime > started
    except OSError:
        return False
