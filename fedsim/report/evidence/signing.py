"""Signs a directory with a key file, and verifies the evidence in a directory."""

import os
from pathlib import Path

from adversaries.errors import InputError
from fedsim.common import private_files
from fedsim.common.report_directory import EVIDENCE
from fedsim.report.evidence import envelope, statement, verification
from fedsim.report.evidence.verification import Verification


def sign(signed: Path, key: Path, out: Path | None = None) -> tuple[Path, str]:
    """Write evidence of the results of a run or an audit.

    Args:
        signed: the directory of a finished run or audit, or an audited transcript.
        key: file of an Ed25519 private key, PEM or OpenSSH.
        out: file of the evidence; None for evidence.json in the directory.

    Returns:
        The file of the evidence, and why the report could not be derived again before signing
        ("" if it was).

    Raises:
        InputError: there is nothing to sign, the key cannot be used, or the file exists.
    """
    private = envelope.read_private(key)
    found = statement.located(signed)
    place = private_files.as_named(found.evidence if out is None else out)
    if not place.name.endswith(EVIDENCE):
        raise InputError(
            f"--out '{place.name}' must end in {EVIDENCE}, so that it is recognised as evidence"
        )
    if os.path.lexists(place):
        raise InputError(f"'{place}' exists already; delete it, or name a new file with --out")
    sealed = envelope.seal(statement.made(found), private)
    try:
        private_files.write(place, sealed)
    except OSError as error:
        raise InputError(f"cannot write '{place}': {error.strerror}") from None
    return place, found.unmade


def verify(
    evidence: Path, key: Path | None = None, files: Path | None = None, as_signed: bool = False
) -> Verification:
    """Check evidence against the signed files.

    Args:
        evidence: a file that `sign` wrote, or its directory.
        key: file of the trusted signer's public key; None if no key is known.
        files: folder of the signed files; None for the folder of the evidence.
        as_signed: accept the report as signed, without deriving it again.

    Raises:
        InputError: there is no evidence or more than one, or the key cannot be used.
    """
    public = None if key is None else envelope.read_public(key)
    return verification.verify(_within(evidence), public, files, as_signed)


def _within(place: Path) -> Path:
    """Return the evidence file: the path itself, or the only one in a directory."""
    if not place.is_dir():
        return place
    found = sorted(each for each in place.iterdir() if each.name.endswith(EVIDENCE))
    if len(found) != 1:
        raise InputError(
            f"'{place}' holds {len(found)} files whose names end in {EVIDENCE}; name the one to "
            "verify"
        )
    return found[0]
