"""Whom a server lets in: the public keys of its nodes, and what the SuperLink made of each."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from adversaries.errors import InputError
from fedsim.common import reading
from fedsim.deployment import certificates, kit


@dataclass(frozen=True)
class Registration:
    """The node that the SuperLink made of a machine's key.

    Attributes:
        node: its id.
        key: the fingerprint of its public key.
    """

    node: str
    key: str


def key_files(server: Path) -> dict[str, Path]:
    """Return the public key file of each node that the server is to let in, by its machine."""
    return {path.stem: path for path in sorted((server / "keys").glob("*.pub"))}


def key(path: Path) -> str:
    """Return the fingerprint of a node's public key. Raises InputError if it is none."""
    try:
        return certificates.fingerprint(path.read_bytes())
    except (OSError, ValueError) as error:
        raise InputError(
            f"cannot read '{path}' ({error}): copy that machine's node.key.pub to it"
        ) from None


def registered(server: Path) -> dict[str, Registration]:
    """Return what was registered for each machine. Raises InputError."""
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
            f"cannot read '{path}': {reading.reason(error)}; delete it and register anew"
        ) from None


def write_registered(server: Path, nodes: Mapping[str, Registration]) -> None:
    """Write down in nodes.json which node, of which key, each machine has.

    Args:
        server: the server's folder.
    """
    values = {machine: asdict(node) for machine, node in nodes.items()}
    kit.write_file(server / "nodes.json", json.dumps(values, indent=2) + "\n")
