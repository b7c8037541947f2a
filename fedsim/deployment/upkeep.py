"""Maintenance of a running federation: a new certificate, a new node key, a new version."""

import ssl
from dataclasses import replace
from datetime import datetime
from importlib.metadata import version
from pathlib import Path

import httpx
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
from cryptography.hazmat.primitives.serialization import load_ssh_private_key

import fedsim
from adversaries.errors import InputError
from fedsim.deployment import certificates, kit, wheel
from fedsim.deployment.certificates import Own, own_pair
from fedsim.federation.runtimes.flower_services import server_knows

NEXT = "next.key"
"""The new key before its registration; its public half is beside it."""


def renew(directory: Path, days: int, own: tuple[Path, Path] | None = None) -> datetime:
    """Write a new key and certificate of the server; return when it ends. Nodes need no change.

    own: the operator's certificate and key (PEM files), which the nodes already trust; None: a
    certificate of the kit's authority.
    Raises InputError if no certificate can be made; the old files stay.
    """
    laid_out = kit.read_kit(directory)
    if laid_out.machine:
        raise InputError(
            f"'{directory}' is only the folder of '{laid_out.machine}'; renew in the folder of the "
            "whole kit"
        )
    server = kit.folder(directory, "server")
    if own is None:
        pair = _signed(directory / "ca", laid_out.address, days)
    else:
        pair, _ = own_pair(Own(*own, server / "ca.crt"), laid_out.address)
    kit.write_file(server / "server.key", pair.private)
    kit.write_file(server / "server.crt", pair.public)
    return certificates.end(server / "server.crt")


def _signed(ca: Path, address: str, days: int) -> certificates.KeyPair:
    try:
        authority = certificates.KeyPair((ca / "ca.key").read_bytes(), (ca / "ca.crt").read_bytes())
        return certificates.server_certificate(authority, [address], days)
    except FileNotFoundError:
        raise InputError(
            f"the kit has no authority in '{ca}'; give --certificate and --key"
        ) from None
    except (OSError, ValueError) as error:
        raise InputError(f"the authority in '{ca}' cannot sign ({error}); make a new kit") from None


def rotate(place: Path) -> tuple[str, str]:
    """Make the next key of a node; return the machine and the fingerprint. The old key stays."""
    machine = kit.read_kit(place).machine
    if machine in ("", "server"):
        raise InputError(f"'{place}' is not a node's folder; give that of a client or the auditor")
    if (place / NEXT).exists():
        raise InputError(
            f"'{place / NEXT}' exists already; send {NEXT}.pub to the server, or delete {NEXT} and "
            f"{NEXT}.pub"
        )
    pair = certificates.node_key()
    kit.write_file(place / NEXT, pair.private)
    kit.write_file(place / f"{NEXT}.pub", pair.public + b"\n")
    return machine, certificates.fingerprint(pair.public)


def take_up(place: Path, superlink: str) -> bool:
    """Replace a node's key by its next key, if the server knows that key; return whether it did."""
    try:
        private = load_ssh_private_key((place / NEXT).read_bytes(), password=None)
        trusted = ssl.create_default_context(cafile=str(place / "ca.crt"))
        if not isinstance(private, EllipticCurvePrivateKey):
            return False
        if not server_knows(f"https://{superlink}", trusted, private):
            return False
        if (public := place / f"{NEXT}.pub").exists():  # else an interrupted call moved it
            public.replace(place / "node.key.pub")
        (place / NEXT).replace(place / "node.key")
        own = place / "peers" / f"{kit.read_kit(place).machine}.pub"
        if own.exists():  # at a client, which signs its exchange keys with it
            kit.write_file(own, (place / "node.key.pub").read_bytes())
    except (OSError, ValueError, httpx.HTTPError, InputError):
        return False  # no next key, or no answer of the server: use the old key
    return True


def upgrade(directory: Path) -> Path:
    """Write this version's files for each machine of a whole kit; return the folder of all."""
    old = kit.read_kit(directory)
    if old.machine:
        raise InputError(
            f"'{directory}' is only the folder of '{old.machine}'; upgrade the whole kit's folder"
        )
    new = replace(old, fedsim=fedsim.__version__, flwr=version("flwr"))
    if new == old:
        raise InputError(
            f"the kit already has fedsim {old.fedsim} with Flower {old.flwr}; run this "
            "command with the new version"
        )
    out = directory / f"upgrade-{new.fedsim}-flwr-{new.flwr}"
    program = wheel.running()
    for machine in new.machines:
        kit.write_program(out / machine, new, machine, program)
    kit.write_instructions(directory, new, program)
    return out
