"""The current status of a federation, seen from its server: its nodes, its run, its certificate."""

import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from adversaries.errors import InputError
from fedsim.deployment import certificates, check, kit, run
from fedsim.deployment.check import WRONG, Checked
from fedsim.federation.runs.run_directory import LAST_FILE, RunDirectory
from fedsim.federation.runtimes.flower_command import COMPLETED, FlowerError

CONNECTED, AWAY, NEVER = "connected", "away", "never connected"


@dataclass(frozen=True)
class Node:
    """A machine that connects, and when its state began (ISO 8601; "" for "never connected")."""

    machine: str
    state: str
    since: str


@dataclass(frozen=True)
class SubmittedRun:
    """The last submitted run.

    Attributes:
        state: Flower's name of its state.
        round: last finished round; 0 before the first.
        rounds: number of planned rounds; 0 before the training begins.
        busy: seconds since each client that has not answered for 20 or more received the message.
        reason: why it failed; "" while it runs, and of a run that succeeded.
    """

    directory: str
    state: str
    round: int
    rounds: int
    busy: dict[str, float]
    reason: str


@dataclass(frozen=True)
class Status:
    """The status of a federation; no run before the first, or if the SuperLink does not answer."""

    nodes: tuple[Node, ...]
    run: SubmittedRun | None
    certificate_days: float
    problems: tuple[str, ...]


def status(server: Path) -> Status:
    """Return the status of a federation. Raises InputError if the folder's files are damaged."""
    laid_out = kit.read_kit(server)
    try:
        left = certificates.end(server / "server.crt") - datetime.now(UTC)
    except (OSError, ValueError) as error:
        raise InputError(f"server.crt cannot be read ({error}); copy it to '{server}'") from None
    days = left / timedelta(days=1)
    problems = []
    if left < certificates.SOON:
        problems.append(f"the certificate expires in {days:.0f} days; run fedsim deploy renew KIT")
    answering = check.server_connection(Checked("server", server, laid_out))
    problems += [message for state, message in answering if state == WRONG]
    nodes: tuple[Node, ...] = ()
    last = None
    try:
        nodes, last = tuple(_nodes(server, laid_out.nodes)), _run(server)
    except FlowerError as error:
        problems.append(" ".join(str(error).split()))
    problems += [
        f"{node.machine} is {node.state}; fedsim deploy check on its machine says why"
        for node in nodes
        if node.state != CONNECTED and node.machine != "auditor"  # no round waits for an auditor
    ]
    return Status(nodes, last, round(days, 1), tuple(problems))


def _nodes(server: Path, machines: list[str]) -> Iterator[Node]:
    """Yield the state of every machine. Raises InputError and FlowerError."""
    known = {str(node["node-id"]): node for node in run.nodes(server)}
    registered = run.registered(server)
    for machine in machines:
        entry = known.get(registered[machine].node, {}) if machine in registered else {}
        if entry.get("status") == "online":
            yield Node(machine, CONNECTED, str(entry.get("online-at", "")))
        else:
            offline = str(entry.get("offline-at") or "")
            yield Node(machine, AWAY if offline else NEVER, offline)


def _run(server: Path) -> SubmittedRun | None:
    """Return the last submitted run. Raises InputError and FlowerError."""
    if (last := run.last(server)) is None:
        return None
    path, id = last
    state, reason = run.submission(server, id).status()
    finished, planned, busy = 0, 0, dict[str, float]()
    directory = RunDirectory(path)
    for event, _ in directory.events():
        planned = event.get("rounds", planned)
        finished = event.get("round", finished)
        if "busy" in event or "phase" in event:
            seconds = round(time.time() - event["time"] + event.get("seconds", 0.0), 1)
            busy = {f"client-{client}": seconds for client in event.get("busy", ())}
    if state == COMPLETED and not directory.has(LAST_FILE):
        reason = f"'{path}' has no {LAST_FILE}; see logs/superlink.log"
    elif state == COMPLETED or not state.startswith("finished"):
        reason = ""
    busy = {} if state.startswith("finished") else busy
    return SubmittedRun(str(path), state, finished, planned, busy, reason)
