"""How a federation is at this moment, seen from its server: who is there, what runs, what ends."""

import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from adversaries.errors import InputError
from fedsim.common import reading
from fedsim.deployment import certificates, kit, run
from fedsim.federation.runs.run_directory import RunDirectory
from fedsim.federation.runtimes.flower_command import FlowerError

CONNECTED, AWAY, NEVER = "connected", "away", "never connected"


@dataclass(frozen=True)
class Node:
    """A machine that connects to the server.

    Attributes:
        machine: its name in the kit.
        state: "connected", "away", or "never connected" of one that is not registered as well.
        since: when that began, in ISO 8601; "" where it always was so.
    """

    machine: str
    state: str
    since: str


@dataclass(frozen=True)
class Busy:
    """A client that the server waits for.

    Attributes:
        machine: its name in the kit.
        seconds: since it was sent a message that it has not answered.
    """

    machine: str
    seconds: float


@dataclass(frozen=True)
class Run:
    """The run that was submitted last.

    Attributes:
        directory: where it writes.
        state: Flower's word for it.
        round: the last one that is finished; 0 before the first.
        rounds: how many are planned; 0 where it has not begun to train.
        batch: how many batches of trials are finished: a training has one.
        busy: the clients that have not answered for a minute or more.
    """

    directory: str
    state: str
    round: int
    rounds: int
    batch: int
    busy: tuple[Busy, ...] = ()


@dataclass(frozen=True)
class Status:
    """How a federation is.

    Attributes:
        nodes: every machine that connects.
        run: the last one; None before the first, or where the SuperLink does not answer.
        certificate_days: how long the server's certificate lasts from now.
        problems: what is to be looked at, one line each; none if all is well.
    """

    nodes: tuple[Node, ...]
    run: Run | None
    certificate_days: float
    problems: tuple[str, ...]


def status(server: Path) -> Status:
    """Return how a federation is.

    Args:
        server: the server's folder, on its machine.
    """
    laid_out = kit.read(server)
    try:
        end = certificates.end(server / "server.crt")
    except (OSError, ValueError) as error:
        raise InputError(f"server.crt cannot be read ({error}): copy it to '{server}'") from None
    left = end - datetime.now(UTC)
    days = left / timedelta(days=1)
    problems = []
    if left < certificates.SOON:
        problems.append(f"the certificate lasts {days:.0f} days: fedsim deploy renew KIT")
    nodes: tuple[Node, ...] = ()
    last = None
    try:
        nodes = tuple(_nodes(server, laid_out.nodes))
        last = _run(server)
    except FlowerError as error:
        said = " ".join(str(error).split())
        problems.append(f"the SuperLink does not answer, see fedsim deploy check: {said}")
    problems += [
        f"{node.machine} is {node.state}: fedsim deploy check on its machine says why"
        for node in nodes
        if node.state != CONNECTED and node.machine != "auditor"  # nobody waits for an auditor
    ]
    return Status(nodes, last, round(days, 1), tuple(problems))


def _nodes(server: Path, machines: list[str]) -> Iterator[Node]:
    """Yield every machine as it is. Raises InputError and FlowerError."""
    known = {str(node["node-id"]): node for node in run.nodes(server)}
    registered = run.registered(server)
    for machine in machines:
        own = registered.get(machine)
        found = known.get(own.node, {}) if own else {}
        if found.get("status") == "online":
            yield Node(machine, CONNECTED, str(found.get("online-at", "")))
        elif seen := found.get("offline-at"):
            yield Node(machine, AWAY, str(seen))
        else:
            yield Node(machine, NEVER, "")


def _run(server: Path) -> Run | None:
    """Return the run that was submitted last. Raises InputError and FlowerError."""
    path = server / run.LAST
    try:
        submitted = reading.json_object(path)
        directory, id = str(submitted["directory"]), str(submitted["run-id"])
    except FileNotFoundError:
        return None
    except reading.DAMAGE as error:
        raise InputError(f"cannot read '{path}': {reading.reason(error)}; delete it") from None
    state, _ = run.submission(server, id).status()
    finished = planned = batches = 0
    busy: tuple[Busy, ...] = ()
    for event, _ in RunDirectory(Path(directory)).events():
        planned = event.get("rounds", planned)
        finished = event.get("round", finished)
        batches += event.get("phase") == "batch"
        if "busy" in event or "phase" in event:
            seconds = round(time.time() - event["time"] + event.get("seconds", 0.0), 1)
            busy = tuple(Busy(f"client-{client}", seconds) for client in event.get("busy", ()))
    if state.startswith("finished"):
        busy = ()
    return Run(directory, state, finished, planned, batches, busy)
