"""What a federation that runs needs now and then: a certificate, a node's key, a new version."""

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
"""The key that waits to be registered; its public half is beside it."""


def renew(directory: Path, days: int, own: tuple[Path, Path] | None = None) -> datetime:
    """Write a new key and certificate of the server; return when it ends. No node needs to know.

    Args:
        days: how long one that the kit's authority signs lasts; an operator's own has its own end.
        own: an operator's own certificate and key (PEM files), which the nodes trust already; None
            for one that the kit's authority signs.

    Raises:
        InputError: it cannot be done; the old ones are then as they were.
    """
    laid_out = kit.read(directory)
    if laid_out.machine:
        raise InputError(
            f"'{directory}' is the folder of '{laid_out.machine}' alone: renew where the whole "
            "kit is"
        )
    server = kit.folder(directory, "server")
    if own is None:
        pair = _signed(directory / "ca", laid_out.address, days)
    else:
        pair, _ = own_pair(Own(*own, server / "ca.crt"), laid_out.address)
    kit.write_file(server / "server.key", pair.private)
    kit.write_file(server / "server.crt", pair.public)
    return certificates.end(server / "server.crt")


def _signed(ca: Path, address: str, days: int) -> certificates.Pair:
    try:
        authority = certificates.Pair((ca / "ca.key").read_bytes(), (ca / "ca.crt").read_bytes())
        return certificates.server_certificate(authority, [address], days)
    except FileNotFoundError:
        raise InputError(
            f"the kit has no authority in '{ca}': give --certificate and --key"
        ) from None
    except (OSError, ValueError) as error:
        raise InputError(f"the authority in '{ca}' cannot sign ({error}): make a new kit") from None


def rotate(place: Path) -> tuple[str, str]:
    """Make the next key of a node; return whose it is, and its fingerprint. The old one serves on.

    Raises:
        InputError: it is no node's folder, or a key waits already.
    """
    machine = kit.read(place).machine
    if machine in ("", "server"):
        raise InputError(f"'{place}' is not the folder of a node: give that of a client or auditor")
    if (place / NEXT).exists():
        raise InputError(
            f"'{place / NEXT}' waits already: send {NEXT}.pub to the server, or delete both"
        )
    pair = certificates.node_key()
    kit.write_file(place / NEXT, pair.private)
    kit.write_file(place / f"{NEXT}.pub", pair.public + b"\n")
    return machine, certificates.fingerprint(pair.public)


def take_up(place: Path, superlink: str) -> bool:
    """Put the next key in the place of a node's own, if the server knows it; return whether."""
    try:
        private = load_ssh_private_key((place / NEXT).read_bytes(), password=None)
        trusted = ssl.create_default_context(cafile=str(place / "ca.crt"))
        if not isinstance(private, EllipticCurvePrivateKey):
            return False
        if not server_knows(f"https://{superlink}", trusted, private):
            return False
        if (public := place / f"{NEXT}.pub").exists():  # else it was interrupted here
            public.replace(place / "node.key.pub")
        (place / NEXT).replace(place / "node.key")
    except (OSError, ValueError, httpx.HTTPError, InputError):
        return False  # where nothing waits, or the server does not answer: the old key is tried
    return True


def upgrade(directory: Path) -> Path:
    """Write what each machine needs of the program that runs; return the folder with all of it.

    Args:
        directory: of the whole kit, whose README.md and deploy.json tell the version from now on.

    Raises:
        InputError: it is one machine's folder, or the kit has this version already.
    """
    old = kit.read(directory)
    if old.machine:
        raise InputError(
            f"'{directory}' is the folder of '{old.machine}' alone: upgrade where the whole kit is"
        )
    new = replace(old, fedsim=fedsim.__version__, flwr=version("flwr"))
    if new == old:
        raise InputError(
            f"the kit has fedsim {old.fedsim} with Flower {old.flwr} already: run the command of "
            "the version that it is to have"
        )
    out = directory / f"upgrade-{new.fedsim}-flwr-{new.flwr}"
    program = wheel.running()
    for machine in new.machines:
        kit.write_program(out / machine, new, machine, program)
    kit.write_instructions(directory, new, program)
    return out
