"""A signed statement as a file: in-toto Statement v1 in an envelope of DSSE v1.

DSSE (https://github.com/secure-systems-lab/dsse) signs the bytes of the payload with their type, so
a signature is checked before anything is parsed. Other DSSE tools can read these files.
"""

import base64
import hashlib
import json
import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Final, Literal

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
    load_pem_public_key,
    load_ssh_private_key,
    load_ssh_public_key,
)
from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from adversaries.errors import InputError
from fedsim.common import private_files, reading

MOST_KEY = 2**14


def create(path: Path) -> Path:
    """Write a new private key (0600), and its public half beside it."""
    place = private_files.as_named(path)
    public = place.with_name(f"{place.stem}.public.pem")
    for each in (place, public):
        if os.path.lexists(each):
            raise InputError(f"'{each}' exists already; name a new file for the key")
    key = Ed25519PrivateKey.generate()
    try:
        private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        private_files.write_private(place, private)
        private_files.write_private(public, _pem(key.public_key()), mode=0o644)
    except OSError as error:
        raise InputError(f"cannot write a key to '{place.parent}': {error.strerror}") from None
    return public


def read_private(path: Path) -> Ed25519PrivateKey:
    """Return the key of a PEM or OpenSSH file that only its owner may read."""
    wanted = (
        "an Ed25519 private key without a passphrase, as fedsim sign --new-key or ssh-keygen "
        "-t ed25519 writes it"
    )

    def load(content: bytes) -> Any:
        ssh = b"OPENSSH PRIVATE KEY" in content
        return (load_ssh_private_key if ssh else load_pem_private_key)(content, password=None)

    key = _read(path, load, wanted)
    if not isinstance(key, Ed25519PrivateKey):
        raise InputError(f"'{path}' holds another key; give {wanted}")
    if stat.S_IMODE(path.stat().st_mode) & 0o077:
        raise InputError(f"other users can read the private key '{path}'; run chmod 600 {path}")
    return key


def read_public(path: Path) -> Ed25519PublicKey:
    wanted = (
        "the signer's Ed25519 public key (PEM, or a line that begins with ssh-ed25519), as fedsim "
        "sign --new-key or ssh-keygen writes it beside the private key"
    )

    def load(content: bytes) -> Any:
        ssh = content.startswith(b"ssh-")
        return (load_ssh_public_key if ssh else load_pem_public_key)(content)

    key = _read(path, load, wanted)
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


PAYLOAD_TYPE: Final = "application/vnd.in-toto+json"
STATEMENT_TYPE: Final = "https://in-toto.io/Statement/v1"
PREDICATE_TYPE: Final = "urn:fedsim-identifiability:evidence:v1"
SHA256 = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]


def _base64(text: str) -> str:
    base64.b64decode(text, validate=True)
    return text


Bytes = Annotated[str, AfterValidator(_base64)]


def _named(name: str, default: Any = ...) -> Any:
    return Field(default, validation_alias=name, serialization_alias=name)


class StatementPart(BaseModel):
    """A JSON object with these keys and no others."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True, populate_by_name=True)


class Signature(StatementPart):
    """Signature of the payload in base64, and the key's fingerprint, which proves nothing."""

    keyid: str
    sig: Bytes


class Envelope(StatementPart):
    payload_type: Literal["application/vnd.in-toto+json"] = _named("payloadType")
    payload: Bytes
    signatures: Annotated[list[Signature], Field(min_length=1, max_length=16)]

    @property
    def content(self) -> bytes:
        return base64.b64decode(self.payload)

    def signed_by(self, key: Ed25519PublicKey) -> bool:
        signed = pre_authentication(self.content)
        for each in self.signatures:
            try:
                key.verify(base64.b64decode(each.sig), signed)
            except InvalidSignature:
                continue
            return True
        return False


class Digest(StatementPart):
    sha256: SHA256


class Subject(StatementPart):
    """A file, by its path below the folder that the statement is about."""

    name: Annotated[str, Field(min_length=1, max_length=1024)]
    digest: Digest


class Predicate(StatementPart):
    """The signer's statement about the files.

    Attributes:
        absent: parts of a run that are not among the files; early evidence lacks this field.
        signed: time by the signer's clock.
        code: SHA-256 of the packages that derived the report, by name.
        numbers: numbers of the report that have short names.
    """

    kind: Literal["run", "training", "app audit", "loop audit", "transcript audit", "live audit"]
    report: str
    transcript: str
    absent: list[str] = []
    signed: str
    code: dict[str, SHA256]
    versions: dict[str, str]
    seeds: dict[str, int | str]
    numbers: dict[str, float | str | None]
    conclusions: dict[str, str]


class Statement(StatementPart):
    type: Literal["https://in-toto.io/Statement/v1"] = _named("_type", STATEMENT_TYPE)
    subject: Annotated[list[Subject], Field(min_length=1, max_length=100_000)]
    predicate_type: Literal["urn:fedsim-identifiability:evidence:v1"] = _named(
        "predicateType", PREDICATE_TYPE
    )
    predicate: Predicate


def pre_authentication(payload: bytes) -> bytes:
    """Return the bytes that DSSE signs: PAE(type, payload) of its protocol."""
    kind = PAYLOAD_TYPE.encode()
    return b"DSSEv1 %d %b %d %b" % (len(kind), kind, len(payload), payload)


def seal(statement: Statement, key: Ed25519PrivateKey) -> bytes:
    payload = _canonical(statement)
    signature = Signature(
        keyid=fingerprint(key.public_key()),
        sig=base64.b64encode(key.sign(pre_authentication(payload))).decode(),
    )
    envelope = Envelope(
        payload_type=PAYLOAD_TYPE,
        payload=base64.b64encode(payload).decode(),
        signatures=[signature],
    )
    return json.dumps(envelope.model_dump(by_alias=True), indent=2).encode() + b"\n"


def read_envelope(path: Path) -> tuple[Envelope, Statement]:
    """Return the envelope of a file and its statement, without checking the signature."""

    def refusal(why: str) -> InputError:
        return InputError(f"'{path}' is not evidence of fedsim sign: {why}")

    with reading.damage(refusal):
        envelope = Envelope.model_validate(reading.json_object(path))
        statement = Statement.model_validate(reading.json_value(envelope.content))
        # One value has one spelling: readers may disagree on a repeated key, for example.
        if _canonical(statement) != envelope.content:
            raise ValueError("its statement is not written as fedsim writes it")
    return envelope, statement


def _canonical(statement: Statement) -> bytes:
    values: dict[str, Any] = statement.model_dump(by_alias=True, mode="json")
    if "absent" not in statement.predicate.model_fields_set:  # early evidence lacks the field
        del values["predicate"]["absent"]
    text = json.dumps(values, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return text.encode("ascii")
