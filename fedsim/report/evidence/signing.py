"""Signs a directory by a key's file, and verifies evidence that lies in one."""

import os
from pathlib import Path

from adversaries.errors import InputError
from fedsim.common import private_files
from fedsim.common.report_directory import EVIDENCE
from fedsim.report.evidence import envelope, statement, verification
from fedsim.report.evidence.verification import Verification


def sign(signed: Path, key: Path, out: Path | None = None) -> tuple[Path, str]:
    """Write evidence of what a run or an audit found.

    Args:
        signed: the directory of a finished run or audit, or an audited transcript.
        key: an Ed25519 private key, PEM or of OpenSSH.
        out: where the evidence goes; None for evidence.json in the directory.

    Returns:
        Where the evidence is, and why its report could not be made again before ("" if it was).

    Raises:
        InputError: nothing that can be signed, no such key, or a file that is there already.
    """
    private = envelope.read_private(key)
    found = statement.located(signed)
    place = private_files.as_named(found.evidence if out is None else out)
    if not place.name.endswith(EVIDENCE):
        raise InputError(
            f"the name of evidence ends in {EVIDENCE}, so that no other file is "
            f"taken for it; '{place.name}' does not"
        )
    if os.path.lexists(place):
        raise InputError(f"'{place}' is there already; delete it, or name a new file with --out")
    sealed = envelope.seal(statement.made(found), private)
    try:
        private_files.write(place, sealed)
    except OSError as error:
        raise InputError(f"cannot write '{place}': {error.strerror}") from None
    return place, found.unmade


def verify(
    evidence: Path, key: Path | None = None, files: Path | None = None, as_signed: bool = False
) -> Verification:
    """Hold evidence against the files it is about.

    Args:
        evidence: a file that `sign` wrote, or its directory.
        key: the public key of the signer who is trusted; None where nobody's is known.
        files: where the signed files are; None for beside the evidence.
        as_signed: whether the report is taken as it was signed, and not made again.

    Raises:
        InputError: no evidence, several files of it, or no such key.
    """
    public = None if key is None else envelope.read_public(key)
    return verification.verify(_within(evidence), public, files, as_signed)


def _within(place: Path) -> Path:
    """Return the evidence that is meant: a file, or the only one in a directory."""
    if not place.is_dir():
        return place
    found = sorted(each for each in place.iterdir() if each.name.endswith(EVIDENCE))
    if len(found) != 1:
        raise InputError(
            f"'{place}' holds {len(found)} files whose names end in {EVIDENCE}; name the one to "
            "verify"
        )
    return found[0]
