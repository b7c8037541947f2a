"""A new certificate for the server of a federation that runs: the keys of its nodes stay."""

from datetime import datetime
from pathlib import Path

from adversaries.errors import InputError
from fedsim.deployment import certificates, kit
from fedsim.deployment.own_certificate import Own, own_pair


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
