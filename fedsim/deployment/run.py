"""A run on a SuperLink of Flower's deployment runtime that has already started.

The nodes receive no path of the server except the run directory: each node's own config has the
path of its data. Only nodes with registered public keys take part.
"""

import json
import logging
import tempfile
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import fedsim
from adversaries.errors import InputError
from fedsim.common import reading
from fedsim.deployment import certificates, kit
from fedsim.deployment.supervision import Part, Service, log_as
from fedsim.federation.runtimes.flower_command import (
    FlowerError,
    Submission,
    environment,
    executable,
    flwr,
    submit,
    write_app,
)

log = logging.getLogger(__name__)

UNREGISTERED = "unregistered"
"""Status of a node whose key is refused permanently."""

LAST = "run.json"
"""File of the server's folder with the id and the directory of the last submitted run."""

MOST_RUNS = "1000"
"""Runs that the SuperLink is asked for; the latest."""

POLL_INTERVAL = "0.5"
"""Seconds between two requests of Flower's process starter for a task."""

WATCH_INTERVAL = 0.5
"""Seconds between two looks at the processes of the service."""


@dataclass(frozen=True)
class Registration:
    """The id of the SuperLink's node for a machine's key, and the key's fingerprint."""

    node: str
    key: str


def start(server: Path, run_config: str, out: Path) -> Submission:
    """Submit a prepared run (TOML) to the SuperLink of a server; return the submission."""
    home = _home(server)
    with tempfile.TemporaryDirectory(prefix="fedsim-deployment-") as temporary:
        app = Path(temporary) / "fedsim"
        app.mkdir()
        write_app(app)
        file = Path(temporary) / "run.toml"
        file.write_text(run_config, encoding="utf-8")
        submitted = submit(home, kit.CONNECTION, app, file)
    last = {"run-id": submitted.run_id, "directory": str(out.absolute())}
    kit.write_file(server / LAST, json.dumps(last) + "\n")
    return submitted


def last(server: Path) -> tuple[Path, str] | None:
    """Return the directory and Flower's number of the last submitted run. Raises InputError."""
    path = server / LAST
    try:
        submitted = reading.json_object(path)
        return Path(str(submitted["directory"])), str(submitted["run-id"])
    except FileNotFoundError:
        return None
    except reading.DAMAGE as error:
        raise InputError(f"cannot read '{path}': {reading.reason(error)}; delete it") from None


def submission(server: Path, run_id: str) -> Submission:
    return Submission(_home(server), kit.CONNECTION, run_id)


def runs(server: Path) -> dict[str, str]:
    """Return Flower's status of each of the SuperLink's runs, by its id. Raises FlowerError."""
    listed = flwr(_home(server), "list", kit.CONNECTION, "--limit", MOST_RUNS)["runs"]
    return {str(run["run-id"]): str(run["status"]) for run in listed}


def unfinished(statuses: Mapping[str, str]) -> list[str]:
    """Return the ids of the runs that have not ended."""
    return [run for run, status in statuses.items() if not status.startswith("finished")]


def stop(server: Path) -> list[str]:
    """Stop every run of the SuperLink; return their ids. Raises FlowerError."""
    stopped = unfinished(runs(server))
    for run in stopped:
        submission(server, run).stop()
    return stopped


def register(server: Path) -> dict[str, str]:
    """Register every public key in server/keys; return each machine's node id.

    A registered key keeps its node. All other nodes are unregistered, such as the node of a
    replaced key: their keys are refused from then on. Raises FlowerError, and InputError for keys
    that are unreadable or of no machine of the federation, and while a run needs a node
    that would be unregistered.
    """
    home = _home(server)
    files = key_files(server)
    machines = kit.read_kit(server).nodes
    if strange := [machine for machine in files if machine not in machines]:
        raise InputError(
            f"keys/{strange[0]}.pub belongs to no machine of this federation, which has "
            f"{', '.join(machines)}; delete it"
        )
    nodes = registered(server)
    keys = {machine: fingerprint_of(path) for machine, path in files.items()}
    living = {node for node, status in statuses(server).items() if status != UNREGISTERED}
    known = {nodes[machine].node for machine, key in keys.items() if _has(nodes, machine, key)}
    if living - known and unfinished(runs(server)):
        raise InputError(
            "a run is not finished, and a node that it may need would be unregistered, because its "
            "key was replaced or removed; wait for the run's end, or stop it with fedsim deploy "
            "stop, and register again"
        )
    for machine, key in keys.items():
        if not _has(nodes, machine, key) or nodes[machine].node not in living:
            nodes[machine] = _registered(home, machine, files[machine], key)
            write_registered(server, nodes)
    nodes = {machine: nodes[machine] for machine in keys}
    for node in living.difference(one.node for one in nodes.values()):
        flwr(home, "supernode", "unregister", node, kit.CONNECTION)
    write_registered(server, nodes)
    return {machine: one.node for machine, one in nodes.items()}


def _has(nodes: Mapping[str, Registration], machine: str, key: str) -> bool:
    """Return whether a key is a machine's registered one."""
    return machine in nodes and nodes[machine].key == key


def _registered(home: Path, machine: str, path: Path, key: str) -> Registration:
    """Register a key. Raises FlowerError."""
    arguments = ["supernode", "register", str(path), kit.CONNECTION, "--name", machine]
    try:
        answer = flwr(home, *arguments)
    except FlowerError as error:
        raise FlowerError(
            f"{machine}: {error}. The SuperLink accepts no key twice, also of a node that was "
            f"unregistered: if it knows keys/{path.name}, make a new key on {machine}"
        ) from None
    return Registration(str(answer["node-id"]), key)


def statuses(server: Path) -> dict[str, str]:
    """Return the status of each node that the SuperLink knows, by its id. Raises FlowerError."""
    return {str(node["node-id"]): str(node["status"]) for node in nodes(server)}


def nodes(server: Path) -> list[dict[str, Any]]:
    """Return the SuperLink's entry for each node that it knows. Raises FlowerError."""
    return list(flwr(_home(server), "supernode", "list", kit.CONNECTION)["nodes"])


def _home(server: Path) -> Path:
    kit.connect_flower(server, kit.port(server, "SUPERLINK_PORT"))
    return server / "flower"


def key_files(server: Path) -> dict[str, Path]:
    return {path.stem: path for path in sorted((server / "keys").glob("*.pub"))}


def fingerprint_of(path: Path) -> str:
    """Return the fingerprint of a node's public key. Raises InputError if it is unreadable."""
    try:
        return certificates.fingerprint(path.read_bytes())
    except (OSError, ValueError) as error:
        raise InputError(
            f"cannot read '{path}' ({error}); copy that machine's node.key.pub to it"
        ) from None


def registered(server: Path) -> dict[str, Registration]:
    """Return the registered node of each machine. Raises InputError."""
    path = server / "nodes.json"
    try:
        nodes = reading.json_object(path)
        return {
            str(machine): Registration(str(value["node"]), str(value["key"]))
            for machine, value in nodes.items()
        }
    except FileNotFoundError:
        return {}
    except reading.DAMAGE as error:
        raise InputError(
            f"cannot read '{path}': {reading.reason(error)}; delete it and register again"
        ) from None


def write_registered(server: Path, nodes: Mapping[str, Registration]) -> None:
    values = {machine: asdict(node) for machine, node in nodes.items()}
    kit.write_file(server / "nodes.json", json.dumps(values, indent=2) + "\n")


def serve_superlink(place: Path) -> None:
    """Run the SuperLink of the folder, on loopback, and the program that starts its runs.

    Whatever reaches the SuperLink can start runs.
    """
    address = f"127.0.0.1:{kit.port(place, 'SUPERLINK_PORT')}"
    authority = f"{place / 'superlink-ca.crt'}"
    superlink = [executable("flower-superlink"), "--host", "127.0.0.1"]
    superlink += ["--port", address.rpartition(":")[2], "--ssl-ca-certfile", authority]
    superlink += ["--ssl-certfile", f"{place / 'superlink.crt'}"]
    superlink += ["--ssl-keyfile", f"{place / 'superlink.key'}"]
    superlink += ["--enable-supernode-auth", "--disable-runtime-dependency-installation"]
    superlink += ["--database", f"{place / 'state' / 'superlink.db'}", "--isolation", "process"]
    superexec = [executable("flower-superexec"), "--root-certificates", authority]
    superexec += ["--runtime-api-address", address]
    own = environment(place / "flower") | {"FLWR_SUPEREXEC_TASK_POLL_INTERVAL": POLL_INTERVAL}
    log_as("server")
    log.info("superlink begins: fedsim %s, flwr %s", fedsim.__version__, version("flwr"))
    parts = [
        Part("the SuperLink", lambda: superlink, own),
        Part("flower-superexec", lambda: superexec, own),
    ]
    with Service(parts, place / "logs") as service:
        while True:
            service.watch()
            time.sleep(WATCH_INTERVAL)
