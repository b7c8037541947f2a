"""The current status of a federation, seen from its server: its nodes, its run, its certificate."""

import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from adversaries.errors import InputError
from fedsim.deployment import certificates, kit, run
from fedsim.deployment.checks import server as checks
from fedsim.deployment.checks.connection import WRONG
from fedsim.federation.runs.run_directory import LAST_FILE, RunDirectory
from fedsim.federation.runtimes import flower_command
from fedsim.federation.runtimes.flower_command import FlowerError

COMPLETED, FAILED = "finished:completed", "finished:failed"

CONNECTED, AWAY, NEVER = "connected", "away", "never connected"


@dataclass(frozen=True)
class Node:
    """A machine that connects, and when its state began (ISO 8601; "" for "never connected")."""

    machine: str
    state: str
    since: str


@dataclass(frozen=True)
class Busy:
    """A client for which the server waits, and the seconds since it received the message."""

    machine: str
    seconds: float


@dataclass(frozen=True)
class SubmittedRun:
    """The last submitted run.

    Attributes:
        state: Flower's name of its state; "finished:failed" also for a run without its last file.
        reason: why it failed; "" while it runs, and of a run that succeeded.
        round: last finished round; 0 before the first.
        rounds: number of planned rounds; 0 before the training begins.
        batch: number of finished batches of trials; a training has one batch.
        busy: clients that have not answered for 20 seconds or more.
    """

    directory: str
    state: str
    round: int
    rounds: int
    batch: int
    busy: tuple[Busy, ...] = ()
    reason: str = ""


@dataclass(frozen=True)
class Status:
    """The status of a federation; no run before the first, or if the SuperLink does not answer."""

    nodes: tuple[Node, ...]
    run: SubmittedRun | None
    certificate_days: float
    problems: tuple[str, ...]


def status(server: Path) -> Status:
    """Return the status of a federation."""
    laid_out = kit.read_kit(server)
    try:
        end = certificates.end(server / "server.crt")
    except (OSError, ValueError) as error:
        raise InputError(f"server.crt cannot be read ({error}); copy it to '{server}'") from None
    left = end - datetime.now(UTC)
    days = left / timedelta(days=1)
    problems = []
    if left < certificates.SOON:
        problems.append(f"the certificate expires in {days:.0f} days; run fedsim deploy renew KIT")
    nodes: tuple[Node, ...] = ()
    last = None
    services = [line for line in checks.services(server, laid_out) if line[1] == WRONG]
    problems += [f"{what}: {message}" for what, _, message in services]
    try:
        if not any(what == "superlink" for what, _, _ in services):
            nodes = tuple(_nodes(server, laid_out.nodes))
            last = _run(server)
    except FlowerError as error:
        reason = " ".join(str(error).split())
        problems.append(f"the SuperLink does not answer ({reason}); run fedsim deploy check")
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
        own = registered.get(machine)
        entry = known.get(own.node, {}) if own else {}
        if entry.get("status") == "online":
            yield Node(machine, CONNECTED, str(entry.get("online-at", "")))
        elif offline := entry.get("offline-at"):
            yield Node(machine, AWAY, str(offline))
        else:
            yield Node(machine, NEVER, "")


def _run(server: Path) -> SubmittedRun | None:
    """Return the last submitted run. Raises InputError and FlowerError."""
    if (last := run.last(server)) is None:
        return None
    directory, id = last
    state, reason = run.submission(server, id).status()
    finished = planned = batches = 0
    busy: tuple[Busy, ...] = ()
    directory_of = RunDirectory(directory)
    for event, _ in directory_of.events():
        planned = event.get("rounds", planned)
        finished = event.get("round", finished)
        batches += event.get("phase") == "batch"
        if "busy" in event or "phase" in event:
            seconds = round(time.time() - event["time"] + event.get("seconds", 0.0), 1)
            busy = tuple(Busy(f"client-{client}", seconds) for client in event.get("busy", ()))
    if not directory_of.has(LAST_FILE):
        if state == COMPLETED:
            state, reason = FAILED, f"'{directory}' has no {LAST_FILE}; see logs/superlink.log"
        elif not state.startswith("finished") and directory_of.ended(id):
            state, reason = FAILED, flower_command.WITHOUT_REASON[0]  # Flower learns of it later
    if not state.startswith("finished"):
        reason = ""
    else:
        reason, busy = "" if state == COMPLETED else flower_command.reason(reason), ()
    return SubmittedRun(str(directory), state, finished, planned, batches, busy, reason)
