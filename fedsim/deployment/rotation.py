"""Another key for a node: made on its machine, taken up once the server has registered it."""

import ssl
from pathlib import Path

import httpx
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
from cryptography.hazmat.primitives.serialization import load_ssh_private_key

from adversaries.errors import InputError
from fedsim.deployment import certificates, kit
from fedsim.federation.protocol.flower_private import server_knows

NEXT = "next.key"
"""The key that waits to be registered; its public half is beside it."""


def rotate(place: Path) -> tuple[str, str]:
    """Make the next key of a node; return whose it is, and its fingerprint. The old one serves on.

    Args:
        place: the node's folder, on its machine.

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
    """Put the next key in the place of a node's own, if the server knows it; return whether.

    Args:
        place: the node's folder.
    """
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
