"""Keys and certificates of a federation: one authority, one server certificate, a key per node.

Certificates are X.509 over NIST P-384, with the extensions for strict verification (RFC 5280). The
keys of nodes are in OpenSSH form, which Flower reads.
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
    load_ssh_private_key,
    load_ssh_public_key,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from adversaries.errors import InputError

LOOPBACK = ("localhost", "127.0.0.1", "::1")
"""The names by which a machine reaches itself."""

AUTHORITY_DAYS = 3650
"""Days that an authority lasts beyond the first certificate that it signs."""

USAGES = (
    *("digital_signature", "content_commitment", "key_encipherment", "data_encipherment"),
    *("key_agreement", "key_cert_sign", "crl_sign", "encipher_only", "decipher_only"),
)

SOON = timedelta(days=30)
"""Remaining validity below which a certificate is reported."""


@dataclass(frozen=True)
class KeyPair:
    """A private key, PEM or OpenSSH, with its certificate (PEM) or public key (OpenSSH line)."""

    private: bytes
    public: bytes


def authority(days: int, now: datetime | None = None) -> KeyPair:
    """Return the key and the self-signed certificate (PEM) of a new authority, valid from `now`."""
    start = now or datetime.now(UTC)
    key, name = ec.generate_private_key(ec.SECP384R1()), _name("fedsim federation authority")
    constraints = x509.BasicConstraints(ca=True, path_length=0)
    critical = constraints, _usage("key_cert_sign", "crl_sign")
    return _signed(name, key, name, key, start, start + timedelta(days=days), critical)


def server_certificate(
    issuer: KeyPair,
    names: Iterable[str],
    days: int,
    now: datetime | None = None,
    both_sides: bool = False,
) -> KeyPair:
    """Return a TLS key and its certificate (PEM) for host names and IP addresses, valid from `now`.

    names: at least one; the first one is also the certificate's common name.
    both_sides: whether its holder also shows it to servers, as a client.
    Raises ValueError if the issuer's certificate has ended, or is invalid.
    """
    issuer_key = _private_key(issuer.private)
    issuer_certificate = x509.load_pem_x509_certificate(issuer.public)
    key, hosts = ec.generate_private_key(ec.SECP384R1()), list(names)
    start, last = now or datetime.now(UTC), issuer_certificate.not_valid_after_utc
    if start > last:
        raise ValueError(f"its certificate expired on {last:%Y-%m-%d}")
    purposes = [ExtendedKeyUsageOID.SERVER_AUTH]
    if both_sides:
        purposes.append(ExtendedKeyUsageOID.CLIENT_AUTH)
    last = min(start + timedelta(days=days), last)
    issued_by = issuer_certificate.subject, issuer_key
    constraints = x509.BasicConstraints(ca=False, path_length=None)
    critical = constraints, _usage("digital_signature")
    others = (
        x509.ExtendedKeyUsage(purposes),
        x509.SubjectAlternativeName([_general_name(host) for host in hosts]),
    )
    return _signed(_name(hosts[0]), key, *issued_by, start, last, critical, others)


def loopback(days: int, now: datetime | None = None) -> tuple[KeyPair, bytes]:
    """Return a key and certificate for this machine only, and the authority's certificate (PEM).

    The authority's key is not kept, so it can sign nothing else.
    """
    own = authority(days, now)
    return server_certificate(own, LOOPBACK, days, now), own.public


def node_key() -> KeyPair:
    """Return a new key for a node (OpenSSH, EC P-384), whose public half is registered."""
    key = ec.generate_private_key(ec.SECP384R1())
    private = key.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption())
    return KeyPair(private, key.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH))


def private_node_key(path: Path) -> ec.EllipticCurvePrivateKey:
    """Return the key in a node's file. Raises InputError if it cannot be read."""
    try:
        key = load_ssh_private_key(path.read_bytes(), password=None)
        if not isinstance(key, ec.EllipticCurvePrivateKey):
            raise ValueError("it is not an elliptic-curve key")
    except (OSError, ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise InputError(f"'{path}' cannot be read ({error}); make a new key") from None
    return key


def fingerprint(public: bytes) -> str:
    """Return the SHA-256 of a public key (OpenSSH), as `ssh-keygen -l -f` shows it.

    Raises ValueError for an invalid key.
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
    """Return the end of the first certificate in a PEM file. Raises OSError and ValueError."""
    return x509.load_pem_x509_certificates(certificate.read_bytes())[0].not_valid_after_utc


def verify(certificate: Path, key: Path, trusted: Path, host: str) -> None:
    """Perform a TLS handshake in memory between the server and a client that wants a host.

    The server's certificate, with its chain, and its key are PEM files, as are the client's trusted
    certificates. Raises OSError if a file cannot be read; its subclass ssl.SSLError: it fails.
    """
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(certificate, key, password="")  # "": never ask for a passphrase
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


def _private_key(pem: bytes) -> ec.EllipticCurvePrivateKey:
    try:
        key = load_pem_private_key(pem, password=None)
    except (TypeError, UnsupportedAlgorithm) as error:
        raise ValueError(str(error)) from None
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise ValueError("it is not an elliptic-curve key")
    return key


def _signed(
    subject: x509.Name,
    key: ec.EllipticCurvePrivateKey,
    issuer: x509.Name,
    issuer_key: ec.EllipticCurvePrivateKey,
    start: datetime,
    end: datetime,
    critical: Iterable[x509.ExtensionType],
    others: Iterable[x509.ExtensionType] = (),
) -> KeyPair:
    """Return a key with its certificate of some extensions, signed by the issuer."""
    public = key.public_key()
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(public)
        .serial_number(x509.random_serial_number())
        # An hour for different clocks.
        .not_valid_before(start - timedelta(hours=1))
        .not_valid_after(end)
    )
    own = x509.SubjectKeyIdentifier.from_public_key(public)
    above = x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer_key.public_key())
    for extensions, is_critical in (((own, above, *others), False), (critical, True)):
        for extension in extensions:
            builder = builder.add_extension(extension, critical=is_critical)
    private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    certificate = builder.sign(issuer_key, hashes.SHA384())
    return KeyPair(private, certificate.public_bytes(Encoding.PEM))


def _usage(*granted: str) -> x509.KeyUsage:
    return x509.KeyUsage(**{name: name in granted for name in USAGES})


def _name(common: str) -> x509.Name:
    # X.520 limits a common name to 64 characters. Clients verify the alternative names.
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common[:64])])


def _general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)
