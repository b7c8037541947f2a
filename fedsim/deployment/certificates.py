"""Keys and certificates of a federation: one authority, one server certificate, a key per node.

An authority outlives the server's certificates, so that a new one needs nothing of the nodes.

X.509 with the extensions that strict verification asks for (RFC 5280), over NIST P-384; the keys of
nodes are in OpenSSH form, which is what Flower reads.
"""

import ipaddress
import ssl
from base64 import b64decode, b64encode
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
    load_ssh_public_key,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from adversaries.errors import InputError

LOOPBACK = ("localhost", "127.0.0.1", "::1")
"""The names by which a machine reaches itself."""

AUTHORITY_DAYS = 3650
"""How much longer an authority lasts than the first certificate that it signs."""

USAGES = (
    *("digital_signature", "content_commitment", "key_encipherment", "data_encipherment"),
    *("key_agreement", "key_cert_sign", "crl_sign", "encipher_only", "decipher_only"),
)
"""All that a certificate may say of its key."""

SOON = timedelta(days=30)
"""How long before its end a certificate is spoken of."""


@dataclass(frozen=True)
class Pair:
    """A secret and what may be shown of it.

    Attributes:
        private: the key, PEM or OpenSSH text.
        public: its certificate (PEM) or, of a node, its public key (OpenSSH, one line).
    """

    private: bytes
    public: bytes


def authority(days: int, now: datetime | None = None) -> Pair:
    """Return the key and the self-signed certificate (PEM) of a new certificate authority.

    Args:
        now: when it begins, less an hour for clocks that disagree; None for this moment.
    """
    start = now or datetime.now(UTC)
    key = ec.generate_private_key(ec.SECP384R1())
    name = _name("fedsim federation authority")
    usage = _usage("key_cert_sign", "crl_sign")
    certificate = (
        _builder(
            name, name, key.public_key(), key.public_key(), start, start + timedelta(days=days)
        )
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(usage, critical=True)
        .sign(key, hashes.SHA384())
    )
    return Pair(_pem(key), certificate.public_bytes(Encoding.PEM))


def server_certificate(
    issuer: Pair,
    names: Iterable[str],
    days: int,
    now: datetime | None = None,
    both_sides: bool = False,
) -> Pair:
    """Return a TLS key and its certificate (PEM) for host names and IP addresses.

    Args:
        names: at least one; the first is the certificate's common name as well.
        days: how long it lasts, though it ends with its issuer at the latest.
        now: when it begins, less an hour for clocks that disagree; None for this moment.
        both_sides: whether its holder shows it to servers as well, as a client.

    Raises:
        ValueError: the issuer's certificate has ended, or is none.
    """
    issuer_key = _private_key(issuer.private)
    issuer_certificate = x509.load_pem_x509_certificate(issuer.public)
    key = ec.generate_private_key(ec.SECP384R1())
    hosts = list(names)
    start, last = now or datetime.now(UTC), issuer_certificate.not_valid_after_utc
    if start > last:
        raise ValueError(f"it ended on {last:%Y-%m-%d}")
    usage = _usage("digital_signature")
    purposes = [ExtendedKeyUsageOID.SERVER_AUTH]
    if both_sides:
        purposes.append(ExtendedKeyUsageOID.CLIENT_AUTH)
    certificate = (
        _builder(
            _name(hosts[0]),
            issuer_certificate.subject,
            key.public_key(),
            issuer_key.public_key(),
            start,
            min(start + timedelta(days=days), last),
        )
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(usage, critical=True)
        .add_extension(x509.ExtendedKeyUsage(purposes), critical=False)
        .add_extension(
            x509.SubjectAlternativeName([_general_name(host) for host in hosts]), critical=False
        )
        .sign(issuer_key, hashes.SHA384())
    )
    return Pair(_pem(key), certificate.public_bytes(Encoding.PEM))


def loopback(days: int, now: datetime | None = None) -> tuple[Pair, bytes]:
    """Return a key and certificate for this machine alone, and what to trust it by (PEM).

    Nobody can sign another: the authority's key is thrown away.

    Args:
        now: when they begin, less an hour for clocks that disagree; None for this moment.
    """
    own = authority(days, now)
    return server_certificate(own, LOOPBACK, days, now), own.public


def node_key() -> Pair:
    """Return a new key for a node (OpenSSH, EC P-384); its public half is what is registered."""
    key = ec.generate_private_key(ec.SECP384R1())
    private = key.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption())
    return Pair(private, key.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH))


def fingerprint(public: bytes) -> str:
    """Return the SHA-256 of a public key (OpenSSH), as `ssh-keygen -l -f` shows it.

    Raises ValueError for what is no key.
    """
    try:
        key = load_ssh_public_key(public)
        blob = key.public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH).split()[1]
    except UnsupportedAlgorithm as error:
        raise ValueError(str(error)) from None
    digest = hashes.Hash(hashes.SHA256())
    digest.update(b64decode(blob))
    return f"SHA256:{b64encode(digest.finalize()).decode().rstrip('=')}"


def end(certificate: Path) -> datetime:
    """Return when a certificate, the first of a PEM file, ends. Raises OSError and ValueError."""
    return x509.load_pem_x509_certificates(certificate.read_bytes())[0].not_valid_after_utc


def verify(certificate: Path, key: Path, trusted: Path, host: str) -> None:
    """Shake hands with oneself, as a server and as a client that wants a host.

    Args:
        certificate: the server's, a PEM file with what leads to a trusted one.
        key: the server's, a PEM file without a passphrase.
        trusted: the client's certificates, a PEM file.

    Raises:
        OSError: a file cannot be read; its ssl.SSLError if the handshake fails.
    """
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(certificate, key, password="")  # "": where it has one, do not ask
    client = ssl.create_default_context(cafile=str(trusted))
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = [
        client.wrap_bio(to_client, to_server, server_hostname=host),
        server.wrap_bio(to_server, to_client, server_side=True),
    ]
    while ends:
        end = ends.pop(0)
        try:
            end.do_handshake()
        except ssl.SSLWantReadError:
            ends.append(end)


def fits(key: bytes, certificate: bytes) -> bool:
    """Return whether a key is that of a certificate."""
    public = x509.load_pem_x509_certificate(certificate).public_key()
    return _private_key(key).public_key() == public


def _private_key(pem: bytes) -> ec.EllipticCurvePrivateKey:
    try:
        key = load_pem_private_key(pem, password=None)
    except (TypeError, UnsupportedAlgorithm) as error:
        raise ValueError(str(error)) from None
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise ValueError("it is not an elliptic-curve key")
    return key


def _builder(
    subject: x509.Name,
    issuer: x509.Name,
    public: ec.EllipticCurvePublicKey,
    issuer_public: ec.EllipticCurvePublicKey,
    start: datetime,
    end: datetime,
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(public)
        .serial_number(x509.random_serial_number())
        # An hour for clocks that disagree.
        .not_valid_before(start - timedelta(hours=1))
        .not_valid_after(end)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer_public), critical=False
        )
    )


def _usage(*granted: str) -> x509.KeyUsage:
    return x509.KeyUsage(**{name: name in granted for name in USAGES})


def _name(common: str) -> x509.Name:
    # X.520 allows a common name 64 characters; the alternative names are what is verified.
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common[:64])])


def _general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


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


def own_pair(own: Own, address: str) -> tuple[Pair, bytes]:
    """Return a key with its certificate, and what to trust it by (PEM).

    Args:
        address: of the server, where the nodes connect.
    """
    try:
        verify(own.certificate, own.key, own.trusted, address)
        pair = Pair(own.key.read_bytes(), own.certificate.read_bytes())
        return pair, own.trusted.read_bytes()
    except OSError as error:
        reason = getattr(error, "verify_message", "") or error.strerror or error
        raise InputError(
            f"nodes would refuse '{own.certificate}' with '{own.key}' for {address} ({reason}); "
            f"give a certificate for {address}, its key without a passphrase, and what it is "
            "trusted by (PEM)"
        ) from None
