"""Renewal of a server's certificate."""

from datetime import datetime
from pathlib import Path

from adversaries.errors import InputError
from fedsim.deployment import certificates, kit
from fedsim.deployment.certificates import Own, own_pair


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
