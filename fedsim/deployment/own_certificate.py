"""A certificate that an operator has already, in place of one that the kit's authority signs."""

from dataclasses import dataclass
from pathlib import Path

from adversaries.errors import InputError
from fedsim.deployment import certificates


@dataclass(frozen=True)
class Own:
    """An operator's own certificate and what belongs to it, PEM files.

    Attributes:
        certificate: for the server's address, with what leads to a trusted one.
        key: of the certificate, without a passphrase.
        trusted: certificates by which the nodes trust it.
    """

    certificate: Path
    key: Path
    trusted: Path


def own_pair(own: Own, address: str) -> tuple[certificates.Pair, bytes]:
    """Return a key with its certificate, and what to trust it by (PEM).

    Args:
        address: of the server, where the nodes connect.

    Raises:
        InputError: nodes that want this address would refuse the certificate.
    """
    try:
        certificates.verify(own.certificate, own.key, own.trusted, address)
        pair = certificates.Pair(own.key.read_bytes(), own.certificate.read_bytes())
        return pair, own.trusted.read_bytes()
    except OSError as error:
        reason = getattr(error, "verify_message", "") or error.strerror or error
        raise InputError(
            f"nodes would refuse '{own.certificate}' with '{own.key}' for {address} ({reason}); "
            f"give a certificate for {address}, its key without a passphrase, and what it is "
            "trusted by (PEM)"
        ) from None
