"""The kit that `fedsim deploy init` writes: one folder for each machine of a federation.

    deploy.json    addresses, versions and dates; no secrets; a copy in every machine's folder
    ca/            the certificate authority, which no machine needs
    server/        TLS key and certificate, those of the SuperLink, the public keys of all nodes,
                   scripts, Flower's settings, the configuration of a first training
    clients/client-K/, auditor/   the node's own key, its node.toml, scripts; peers/, at a client
                   only, has the public keys of all clients
    README.md      instructions for each machine

Every machine's folder also has the files that start its services: scripts and units of systemd.
Secrets have mode 0600 in folders with mode 0700. `templates` has the text of every file.
"""

import ipaddress
import json
import math
import re
import secrets
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, fields, replace
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

import tomli_w

import fedsim
from adversaries.errors import InputError
from fedsim.common import configurations, private_files, reading
from fedsim.deployment import certificates, templates

FORMAT = 2
CONNECTION = "federation"
"""Name of the SuperLink in the server's Flower settings."""

NODE_PORT = 9094
"""Port of a machine's first node, which is Flower's default. Further nodes count up."""

DEADLINE = 3600
"""Default seconds for a message's process, equal to the default of federation.timeout. It is for
kits that do not set it."""

MANIFEST = "deploy.json"

LABEL = re.compile(r"(?!-)[A-Za-z0-9-]{1,63}(?<!-)")
"""A label of a host name, which is the text between two dots."""


@dataclass(frozen=True)
class Kit:
    """The layout of a federation, as deploy.json has it.

    Attributes:
        address: host name or IPv4 address of the server, where the nodes connect.
        port: port of the proxy, to which the nodes connect.
        superlink_port: port of the SuperLink, on the server's loopback.
        created: time of writing, in ISO 8601.
        machine: machine of the folder; "" in the folder of the whole kit.
    """

    address: str
    port: int
    superlink_port: int
    clients: int
    auditor: bool
    created: str
    fedsim: str
    flwr: str
    machine: str = ""
    format: int = FORMAT

    @property
    def machines(self) -> list[str]:
        """The machines by name, the server first."""
        clients = [f"client-{client}" for client in range(self.clients)]
        return ["server", *clients, *(["auditor"] if self.auditor else [])]

    @property
    def nodes(self) -> list[str]:
        return self.machines[1:]


def is_host(text: str) -> bool:
    """Return whether a text is a host name (RFC 1123, section 2.1) or an IPv4 address."""
    labels = text.split(".")
    if labels[-1].isdecimal():
        return _is_address(text)
    return len(text) <= 253 and all(LABEL.fullmatch(label) for label in labels)


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return "%" not in text  # an IPv6 scope may be any text, which scripts must not read


def read_kit(directory: Path) -> Kit:
    """Return the kit of a folder, of all machines or of one. Raises InputError."""
    path = directory / MANIFEST
    try:
        values = reading.json_object(path)
        kit = Kit(**{field.name: values[field.name] for field in fields(Kit)})
    except FileNotFoundError:
        raise InputError(
            f"'{directory}' is not a deployment: it has no {MANIFEST}; make one with "
            f"fedsim deploy init {directory}"
        ) from None
    except reading.DAMAGE as error:
        raise InputError(
            f"cannot read '{path}': {reading.reason(error)}; write the kit anew"
        ) from None
    if kit.format != FORMAT:
        raise InputError(
            f"'{path}' has format {kit.format}, but this fedsim reads {FORMAT}; "
            f"use fedsim {kit.fedsim}, or write the kit anew"
        )
    for field in fields(Kit):
        value = getattr(kit, field.name)
        if type(value) is not field.type:
            raise InputError(
                f"cannot read '{path}': {field.name} is {value!r}, not of type "
                f"{getattr(field.type, '__name__', field.type)}; write the kit anew"
            )
    return kit


def folder(directory: Path, machine: str) -> Path:
    """Return the absolute path of a machine's folder. Raises InputError for another machine's."""
    kit = read_kit(directory)
    if machine not in kit.machines:
        raise InputError(
            f"this federation has no machine '{machine}'; it has {', '.join(kit.machines)}"
        )
    if kit.machine == machine:
        return directory.absolute()
    if kit.machine:
        raise InputError(
            f"'{directory}' is the folder of '{kit.machine}'; give the folder of '{machine}', or "
            "of the whole kit"
        )
    return directory.absolute() / _place(machine)


def write_kit(
    directory: Path,
    address: str,
    port: int,
    clients: int,
    *,
    superlink_port: int = 8000,
    listen: str = "0.0.0.0",
    auditor: bool = False,
    days: int = 365,
    now: datetime | None = None,
) -> Kit:
    """Write a new kit and return it.

    address: host name or IPv4 address of the server, where the nodes connect.
    listen: IP address where the proxy listens; 0.0.0.0: all interfaces.
    Raises InputError if an address is invalid, or the directory exists.
    """
    if not is_host(address):
        raise InputError(
            f"the server's address {address!r} is neither a host name nor an IPv4 address"
        )
    if not _is_address(listen):
        raise InputError(
            f"--listen {listen!r} is not an IP address, for example 0.0.0.0 for all interfaces"
        )
    created = now or datetime.now(UTC)
    kit = Kit(
        address=address,
        port=port,
        superlink_port=superlink_port,
        clients=clients,
        auditor=auditor,
        created=created.isoformat(timespec="seconds"),
        fedsim=fedsim.__version__,
        flwr=version("flwr"),
    )
    authority = certificates.authority(days + certificates.AUTHORITY_DAYS, created)
    pair = certificates.server_certificate(authority, [address], days, created)
    with _made(directory) as place:
        write_file(place / "ca" / "ca.key", authority.private)
        write_file(place / "ca" / "ca.crt", authority.public)
        _write_machines(place, kit, pair, authority.public, listen)
    return kit


@contextmanager
def _made(directory: Path) -> Iterator[Path]:
    """Yield a temporary folder, which becomes the kit's directory once it is complete."""
    try:
        directory.parent.mkdir(parents=True, exist_ok=True)
        directory.mkdir(mode=0o700)
    except FileExistsError:
        raise InputError(
            f"'{directory}' exists, and a kit never replaces another; name a new directory"
        ) from None
    except OSError as error:
        raise InputError(f"cannot write to '{directory}': {error.strerror}") from None
    place = directory.with_name(f".{directory.name}.{secrets.token_hex(8)}.partial")
    try:
        place.mkdir(mode=0o700)
        yield place
        place.rename(directory)  # which is empty
    except BaseException:
        shutil.rmtree(place, ignore_errors=True)
        directory.rmdir()
        raise


def _write_machines(
    directory: Path, kit: Kit, pair: certificates.KeyPair, trusted: bytes, listen: str
) -> None:
    """Write the files of the whole kit, and the folder of each machine."""
    values = _values(kit)
    _write_manifest(directory, kit)
    write_file(directory / "README.md", templates.filled("README.md", values))
    place = directory / "server"
    write_file(place / "server.key", pair.private)
    write_file(place / "server.crt", pair.public)
    write_file(place / "ca.crt", trusted)
    superlink, known_by = certificates.loopback(certificates.AUTHORITY_DAYS)
    write_file(place / "superlink.key", superlink.private)
    write_file(place / "superlink.crt", superlink.public)
    write_file(place / "superlink-ca.crt", known_by)
    settings = templates.filled("server.env", {**values, "LISTEN": listen})
    write_file(place / "settings.env", settings)
    example = configurations.path("deployment")
    write_file(place / example.name, example.read_bytes())
    keys = {machine: certificates.node_key() for machine in kit.nodes}
    for index, (machine, key) in enumerate(keys.items()):
        placeholders = {**values, "PARTITION": str(index), "NODE_PORT": str(NODE_PORT + index)}
        _write_node(directory / _place(machine), machine, key, trusted, placeholders)
        write_file(directory / "server" / "keys" / f"{machine}.pub", key.public + b"\n")
        for reader in kit.nodes if machine != "auditor" else ():
            if reader != "auditor":  # clients know each other's keys
                peers = directory / _place(reader) / "peers"
                write_file(peers / f"{machine}.pub", key.public + b"\n")
    for machine in kit.machines:
        place = directory / _place(machine)
        _write_manifest(place, replace(kit, machine=machine))
        for name, text in templates.services(machine, values).items():
            write_file(place / name, text, 0o700 if name.endswith(".sh") else 0o600)


def connect_flower(server: Path, superlink_port: int) -> None:
    """Write the connection to the SuperLink into the server's Flower home, by absolute paths."""
    connection = {
        "address": f"127.0.0.1:{superlink_port}",
        "root-certificates": str(server / "superlink-ca.crt"),
    }
    tree = {"superlink": {"default": CONNECTION, CONNECTION: connection}}
    write_file(server / "flower" / "config.toml", tomli_w.dumps(tree))


def settings(machine_folder: Path) -> dict[str, str]:
    """Return the NAME=VALUE lines of a machine's settings.env. Raises InputError."""
    path = machine_folder / "settings.env"
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise InputError(
            f"cannot read '{path}' ({reason}); copy this machine's folder again"
        ) from None
    pairs = (line.partition("=") for line in lines if line and not line.startswith("#"))
    return {name.strip(): value.strip().strip("\"'") for name, _, value in pairs}


def port(machine_folder: Path, name: str) -> int:
    """Return a port of a machine's settings.env. Raises InputError unless it is 1 to 65535."""
    value = settings(machine_folder).get(name, "")
    if not value.isascii() or not value.isdecimal() or not 0 < int(value) < 65536:
        raise InputError(
            f"{name} is {value!r} in '{machine_folder / 'settings.env'}'; give a port, 1 to 65535"
        )
    return int(value)


def deadline(machine_folder: Path) -> float:
    """Return the time limit of a message's process in a node's settings.env, in seconds."""
    value = settings(machine_folder).get("DEADLINE", f"{DEADLINE}")
    with suppress(ValueError):
        if 0 < float(value) < math.inf:
            return float(value)
    raise InputError(
        f"DEADLINE is {value!r} in '{machine_folder / 'settings.env'}'; give seconds, above 0"
    )


def _place(machine: str) -> str:
    return f"clients/{machine}" if machine.startswith("client-") else machine


def _values(kit: Kit) -> dict[str, str]:
    copies = "\n".join(
        f"scp -pr {_place(machine)} {machine.upper()}-MACHINE:/etc/fedsim/" for machine in kit.nodes
    )
    return {
        # First, since it contains other placeholders.
        "AUDITOR": templates.filled("auditor.md", {}) if kit.auditor else "",
        "ADDRESS": kit.address,
        "PORT": str(kit.port),
        "SUPERLINK_PORT": str(kit.superlink_port),
        "CLIENTS": str(kit.clients),
        "COMMANDS": str(4 + 2 * len(kit.nodes)),
        "VERSION": kit.fedsim,
        "FLOWER": kit.flwr,
        "COPIES": copies,
    }


def _write_node(
    place: Path, machine: str, key: certificates.KeyPair, trusted: bytes, values: Mapping[str, str]
) -> None:
    write_file(place / "node.key", key.private)
    write_file(place / "node.key.pub", key.public + b"\n")
    write_file(place / "ca.crt", trusted)
    # No round waits for an auditor, so a client on the same machine goes first.
    nice = "19" if machine == "auditor" else "0"
    values = {**values, "NICE": nice, "DEADLINE": f"{DEADLINE}"}
    write_file(place / "settings.env", templates.filled("node.env", values))
    config = "auditor.toml" if machine == "auditor" else "client.toml"
    write_file(place / "node.toml", templates.filled(config, values))
    (place / ("transcripts" if machine == "auditor" else "data")).mkdir(mode=0o700)


def _write_manifest(place: Path, kit: Kit) -> None:
    write_file(place / MANIFEST, json.dumps(asdict(kit), indent=2) + "\n")


def write_file(path: Path, content: str | bytes, mode: int = 0o600) -> None:
    """Write a file, and missing folders, that only its owner can ever read; follow no link."""
    for parent in reversed(path.parents):
        if not parent.exists():
            parent.mkdir(mode=0o700)
    data = content.encode() if isinstance(content, str) else content
    private_files.write_private(private_files.as_named(path), data, mode)


def renew(directory: Path, days: int) -> datetime:
    """Write a new key and certificate of the server; return when it ends. Nodes need no change.

    Raises InputError if no certificate can be made; the old files stay.
    """
    kit = read_kit(directory)
    if kit.machine:
        raise InputError(
            f"'{directory}' is only the folder of '{kit.machine}'; renew in the folder of the "
            "whole kit"
        )
    ca, server = directory / "ca", folder(directory, "server")
    try:
        authority = certificates.KeyPair((ca / "ca.key").read_bytes(), (ca / "ca.crt").read_bytes())
        pair = certificates.server_certificate(authority, [kit.address], days)
    except (OSError, ValueError) as error:
        raise InputError(f"the authority in '{ca}' cannot sign ({error}); make a new kit") from None
    write_file(server / "server.key", pair.private)
    write_file(server / "server.crt", pair.public)
    return certificates.end(server / "server.crt")
