"""Checks of a node: its key, config, data and budget, and its connection to the server."""

import os
import stat
from collections.abc import Iterator, Mapping
from contextlib import suppress
from itertools import groupby
from pathlib import Path
from typing import Any

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.serialization import load_ssh_private_key, load_ssh_public_key

from adversaries import registry
from adversaries.errors import InputError
from fedsim.common import reading
from fedsim.deployment import kit
from fedsim.deployment.checks import connection, supernode
from fedsim.deployment.checks.connection import NOTE, OK, WRONG, Line
from fedsim.deployment.kit import Kit
from fedsim.federation.client import client_ledger, seen_models
from fedsim.federation.client.client_ledger import Answer
from fedsim.federation.protocol import consent, node_machine
from fedsim.federation.protocol.consent import EPSILON_LIMIT, EXPERIMENT, STATE, Terms
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
        yield from supernode.admitted(place, host, int(text))
    else:
        message = (
            f"SUPERLINK in {place / 'settings.env'} is not HOST:PORT; set it to "
            f"{laid_out.address}:{laid_out.port}"
        )
        yield "server", WRONG, message
    kit.deadline(place)
    yield from supernode.running(place, kit.port(place, "NODE_PORT"))


def _node_key(place: Path) -> Line:
    try:
        private = load_ssh_private_key((place / "node.key").read_bytes(), password=None)
        public = load_ssh_public_key((place / "node.key.pub").read_bytes())
    except (OSError, ValueError, TypeError, UnsupportedAlgorithm) as error:
        return "node key", WRONG, f"cannot be read ({error}); copy this machine's folder anew"
    if private.public_key() != public:
        message = "node.key does not fit node.key.pub; copy both from the same kit"
        return "node key", WRONG, message
    return "node key", OK, "fits its public half"


def _node_config(place: Path, laid_out: Kit, machine: str) -> Iterator[Line]:
    path = place / "node.toml"
    try:
        values: dict[str, Any] = reading.toml(path)
    except (OSError, ValueError) as error:
        yield "node.toml", WRONG, f"cannot be read: {error}; mend {path}"
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
            f"{key} is {values.get(key)!r}, but {machine} of {laid_out.clients} needs "
            f"{expected[key]}",
        )
    yield from _data(place, values)
    try:
        agreed = consent.terms(values)
    except consent.RefusedError as error:
        yield "consent", WRONG, f"{error}; mend {path}"
        return
    if agreed is None:
        yield "consent", WRONG, f'is missing; add consent = "" to {path}'
        return
    yield "consent", OK, agreed.consent or "to plain training only"
    yield from _measures(path, values, agreed)
    state = (place / "work" / agreed.state).resolve()
    yield from budget(agreed, state)
    yield from _deadline(place, state)


def _measures(path: Path, values: Mapping[str, Any], agreed: Terms) -> Iterator[Line]:
    """Check the share of the records that is held back, and the cost of an answer about them."""
    if consent.MEASURES not in agreed.kinds:
        for key in (consent.MEASURES_SHARE, consent.MEASURES_EPSILON):
            if key in values:
                message = f"{key} is set, but has no effect: consent lacks '{consent.MEASURES}'"
                yield "measures", NOTE, message
        return
    from fedsim.federation.client import holding_back  # noqa: PLC0415  (torch)

    try:
        share = holding_back.agreed(values, consent.MEASURES_SHARE, most=0.5)
        epsilon = holding_back.agreed(values, consent.MEASURES_EPSILON)
    except consent.RefusedError as error:
        yield "measures", WRONG, f"{error} in {path}"
        return
    message = (
        f"{share:.0%} of the records are held back; one answer about them costs epsilon "
        f"{epsilon:g} at most"
    )
    yield "measures", OK, message


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
        yield "data", OK, f"of the function {data}, which is not called here"
    elif not data or not where.exists():
        message = (
            f"there is no folder and no file '{data}'; set data-path in {place / 'node.toml'} to "
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
        yield "data", WRONG, f"{where}, {problem}; mend the records, or the schema that all share"
    for problem in inspection.problems:
        if problem.drop:
            yield "data", NOTE, f"{where}, {problem}; left out, as {consent.SCHEMA} says"
    if inspection.ignored:
        named = shortened(inspection.ignored)
        yield "data", NOTE, f"{where} has columns that {consent.SCHEMA} does not use: {named}"
    kept = len(inspection.records.labels)
    if not kept:
        yield "data", WRONG, f"{where} has no records that {consent.SCHEMA} keeps; give some"
    elif not inspection.refused:
        share = "all as" if kept == inspection.total else f"of {inspection.total}, as"
        yield "data", OK, f"{where}: {kept} records, {share} {consent.SCHEMA} says"


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
        answers = client_ledger.read(state)
    except InputError as error:
        yield "budget", WRONG, str(error)
        return
    promised: list[Answer] = []
    for run, group in groupby(answers, key=lambda answer: answer.run):
        mine = list(group)
        promised += mine
        charged = any(answer.charged or answer.measured for answer in mine)
        after = client_ledger.epsilon(promised, terms.delta_limit)
        rounds = len({answer.round for answer in mine if not answer.measured})
        trials = len({trial for answer in mine for trial in answer.trial_numbers})
        cost = f"epsilon {after:.4g} after it" if charged else "nothing charged"
        message = (
            f"{mine[0].name} (run {run}, records {mine[-1].records}): rounds {rounds}, trials "
            f"{trials}; {cost}"
        )
        yield "answered", OK if charged else NOTE, message
    spent, limit = client_ledger.epsilon(promised, terms.delta_limit), terms.epsilon_limit
    at = f"at delta {terms.delta_limit:g}"
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
