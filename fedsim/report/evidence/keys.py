"""Ed25519 keys of whoever signs: PEM files, as OpenSSL writes and reads them."""

import hashlib
import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import (
    Ed25519PrivateKey,
    Ed25519PublicKey,
)
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
    load_pem_public_key,
)

from adversaries.errors import InputError
from fedsim.common import private_files, reading

MOST_KEY = 2**14
"""Bytes of a file with a key."""


def create(path: Path) -> Path:
    """Write a new private key (0600), and its public half beside it.

    Args:
        path: of the private key; nothing may be there.

    Returns:
        The file of the public key: NAME.public.pem for NAME.pem.
    """
    place = private_files.as_named(path)
    public = place.with_name(f"{place.stem}.public.pem")
    for each in (place, public):
        if os.path.lexists(each):
            raise InputError(f"'{each}' is there already; name a new file for the key")
    key = Ed25519PrivateKey.generate()
    try:
        private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        private_files.write(place, private)
        private_files.write(public, _pem(key.public_key()), mode=0o644)
    except OSError as error:
        raise InputError(f"cannot write a key to '{place.parent}': {error.strerror}") from None
    return public


def read_private(path: Path) -> Ed25519PrivateKey:
    """Return the key of a PEM file, which nobody else may read.

    Raises:
        InputError: it cannot be read, or by others too, or holds no Ed25519 key without a
            passphrase.
    """
    wanted = "an Ed25519 private key without a passphrase, as of fedsim sign --new-key"
    key = _read(path, lambda pem: load_pem_private_key(pem, password=None), wanted)
    if not isinstance(key, Ed25519PrivateKey):
        raise InputError(f"'{path}' holds another key; give {wanted}")
    if stat.S_IMODE(path.stat().st_mode) & 0o077:
        raise InputError(f"others may read the private key '{path}'; chmod 600 {path}")
    return key


def read_public(path: Path) -> Ed25519PublicKey:
    """Return the public key of a PEM file.

    Raises:
        InputError: it cannot be read, or holds no Ed25519 public key.
    """
    wanted = "the signer's Ed25519 public key (PEM), as fedsim sign --new-key writes beside it"
    key = _read(path, load_pem_public_key, wanted)
    if not isinstance(key, Ed25519PublicKey):
        raise InputError(f"'{path}' holds another key; give {wanted}")
    return key


def fingerprint(key: Ed25519PublicKey) -> str:
    """Return the SHA-256 of a public key (DER, SubjectPublicKeyInfo), in hexadecimal."""
    der = key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    return hashlib.sha256(der).hexdigest()


def _read(path: Path, load: Callable[[bytes], Any], wanted: str) -> Any:
    try:
        return load(reading.content(path, MOST_KEY))
    except OSError as error:
        raise InputError(f"cannot read the key '{path}': {error.strerror}") from None
    except (ValueError, TypeError, UnsupportedAlgorithm):
        raise InputError(f"'{path}' is not {wanted}") from None


def _pem(key: Ed25519PublicKey) -> bytes:
    return key.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
