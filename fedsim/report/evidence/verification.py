"""Checks a signed statement against its files, and against reports derived again."""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from adversaries.errors import InputError
from fedsim.common import private_files, reading
from fedsim.common.report_directory import EVIDENCE
from fedsim.config import to_run_config
from fedsim.federation.runs.run_directory import RunDirectory
from fedsim.report.evidence import derivation, envelope
from fedsim.report.evidence.envelope import Envelope, Statement
from fedsim.report.evidence.statement import (
    SignedSubject,
    is_below,
    located,
    made,
    of_code,
    of_file,
    own_code,
    said,
    versions,
)

AS_SIGNED, NOTED = "as signed", "noted"


class Outcome(IntEnum):
    """The result of a check; the value is the exit status, on the scale of audits.

    VERIFIED: the statement holds, or does not concern this.
    CANNOT_TELL: the check cannot tell whether the statement holds.
    REFUTED: the statement is false.
    """

    VERIFIED = 0
    CANNOT_TELL = 3
    REFUTED = 4


@dataclass(frozen=True)
class StatementCheck:
    """One check of a statement; `word` is for an outcome whose usual word would claim too much."""

    of: str
    outcome: Outcome
    words: str
    word: str = ""


@dataclass(frozen=True)
class Verification:
    statement: Statement
    checks: tuple[StatementCheck, ...]

    @property
    def outcome(self) -> Outcome:
        return max(check.outcome for check in self.checks)

    @property
    def taken(self) -> bool:
        """Whether all checks passed, but the report was accepted as signed."""
        return self.outcome is Outcome.VERIFIED and any(
            check.word == AS_SIGNED for check in self.checks
        )


def verify(
    path: Path, key: Ed25519PublicKey | None, root: Path | None = None, as_signed: bool = False
) -> Verification:
    sealed, statement = envelope.read_envelope(path)
    predicate = statement.predicate
    names = [*(each.name for each in statement.subject), predicate.report]
    for name in [*names, predicate.transcript or predicate.report]:
        if not is_below(name):
            raise InputError(f"'{path}' names '{name}', which is not a file below its folder")
    folder = (path.parent if root is None else root).absolute()
    signed = SignedSubject(predicate.kind, folder, predicate.report, predicate.transcript)
    here = path.absolute()
    own = here.relative_to(folder).as_posix() if here.is_relative_to(folder) else ""
    checks = [_signature(sealed, key), *_files(signed, statement, own)]
    if lacking := predicate.absent:
        checks.append(
            StatementCheck("absent", Outcome.VERIFIED, f"{', '.join(lacking)}: not signed", NOTED)
        )
    same = _same_code(signed, statement)
    checks += same
    # Files without a valid signature are neither believed nor used for computing.
    believed = key is None or checks[0].outcome is Outcome.VERIFIED
    if believed and all(check.outcome is Outcome.VERIFIED for check in checks[1:]):
        if as_signed:
            checks.append(
                StatementCheck("report", Outcome.VERIFIED, "was not derived again", AS_SIGNED)
            )
        else:
            checks += _derived(signed, all(not check.words for check in same))
        checks.append(_said(signed, statement))
    return Verification(statement, tuple(check for check in checks if check.words))


def _signature(sealed: Envelope, key: Ed25519PublicKey | None) -> StatementCheck:
    named = ", ".join(each.keyid for each in sealed.signatures)
    if key is None:
        words = (
            f"not checked: give the signer's public key with --key. The evidence names key {named}"
        )
        return StatementCheck("signature", Outcome.CANNOT_TELL, words)
    whose = envelope.fingerprint(key)
    if sealed.signed_by(key):
        return StatementCheck("signature", Outcome.VERIFIED, f"by the key {whose}")
    why = "the evidence was altered" if whose in named else f"the evidence names the key {named}"
    return StatementCheck("signature", Outcome.REFUTED, f"not by the key {whose}: {why}")


def _files(signed: SignedSubject, statement: Statement, evidence: str) -> Iterator[StatementCheck]:
    """Yield a check for every file that differs from the signed one, and one for all others."""
    same, names = 0, set()
    for subject in statement.subject:
        names.add(subject.name)
        try:
            digest = of_file(signed.root, subject.name)
        except OSError as error:
            why = error.strerror or reading.reason(error)
            yield StatementCheck(subject.name, Outcome.REFUTED, f"cannot be read: {why}")
            continue
        if digest == subject.digest.sha256:
            same += 1
        else:
            yield StatementCheck(subject.name, Outcome.REFUTED, "is not the file that was signed")
    if same:
        yield StatementCheck(
            "files", Outcome.VERIFIED, f"{same} of {len(names)} files equal the signed ones"
        )
    needed = {signed.report, *([signed.transcript] if signed.transcript else [])}
    try:
        there, others = {*signed.names()}, signed.others()
    except (OSError, InputError) as error:
        yield StatementCheck(
            "files", Outcome.CANNOT_TELL, f"cannot be listed: {reading.reason(error)}"
        )
        there, others = set(), list[str]()
    for name in others:
        if name != evidence:
            words = "is other evidence, which was not checked"
            yield StatementCheck(name, Outcome.VERIFIED, words, NOTED)
    for name in sorted((there | needed) - names):
        yield StatementCheck(
            name, Outcome.CANNOT_TELL, "exists, but the statement does not cover it"
        )


def _derived(signed: SignedSubject, same_code: bool) -> Iterator[StatementCheck]:
    report, folder = signed.read(), (signed.root / signed.report).parent
    try:
        again = derivation.derived(signed.kind, signed.root, signed.transcript, report)
        same, other = derivation.differing(folder, again.pages)
    except InputError as error:
        yield StatementCheck("report", Outcome.CANNOT_TELL, f"was not derived again: {error}")
        return
    except reading.DAMAGE as error:
        why = reading.reason(error)
        yield StatementCheck("report", Outcome.CANNOT_TELL, f"was not derived again: {why}")
        return
    wrong = Outcome.REFUTED if same_code else Outcome.CANNOT_TELL
    elsewhere = "differs when derived by other code or libraries"
    if apart := derivation.named(derivation.differences(report.values, again.values)):
        words = f"does not follow from the files: {apart}" if same_code else f"{elsewhere}: {apart}"
        yield StatementCheck("report", wrong, words)
        return
    words = "derived again from the other files, with the same numbers"
    yield StatementCheck("report", Outcome.VERIFIED, words)
    for name in other:
        words = "is not the page of this report" if same_code else elsewhere
        yield StatementCheck(name, wrong, words)
    if same:
        pages = [name for name in same if not name.startswith("figures/")]
        if drawn := len(same) - len(pages):
            pages.append(f"{drawn} figures")
        words = f"derived again, with the same words and numbers: {', '.join(pages)}"
        yield StatementCheck("pages", Outcome.VERIFIED, words)
    unmade = sum(1 for _ in signed.names()) - len(same) - len(other) - 1
    several = "s" * (unmade != 1)
    words = f"{unmade} other file{several}, accepted as signed and not derived again"
    yield StatementCheck("files", Outcome.VERIFIED, words, NOTED)


def _said(signed: SignedSubject, statement: Statement) -> StatementCheck:
    stated = statement.predicate.model_dump(
        include={"absent", "seeds", "numbers", "conclusions"}, exclude_unset=True
    )
    try:
        actual = said(signed, signed.read())
    except (InputError, *reading.DAMAGE) as error:
        why = reading.reason(error)
        return StatementCheck("statement", Outcome.CANNOT_TELL, f"was not compared: {why}")
    if "absent" not in stated:  # early evidence lacks the field
        del actual["absent"]
    if apart := derivation.named(derivation.differences(stated, actual)):
        words = f"contradicts the report: {apart}"
        return StatementCheck("statement", Outcome.REFUTED, words)
    return StatementCheck("statement", Outcome.VERIFIED, "agrees with the report")


def _same_code(signed: SignedSubject, statement: Statement) -> list[StatementCheck]:
    predicate = statement.predicate
    try:
        config = RunDirectory.open(signed.root).config if signed.is_run else None
        here = of_code({} if config is None else own_code(to_run_config(config)))
    except InputError:  # the user's own code is not allowed here, or is missing
        here = of_code({})
    yours = {f"code of {name}": digest for name, digest in here.items()} | versions()
    theirs = {
        f"code of {name}": digest for name, digest in predicate.code.items()
    } | predicate.versions
    different = sorted(name for name in {*yours, *theirs} if yours.get(name) != theirs.get(name))
    if not different:
        return [StatementCheck("code", Outcome.VERIFIED, "")]
    words = [
        name
        if name.startswith("code of")
        else f"{name} {theirs.get(name)} there, {yours.get(name)} here"
        for name in different
    ]
    return [
        StatementCheck(
            "code", Outcome.VERIFIED, f"differs from the signer's: {'; '.join(words)}", NOTED
        )
    ]


def sign(signed: Path, key: Path, out: Path | None = None) -> tuple[Path, str]:
    """Write evidence of results; return its file, and why they were not derived again ("" if so).

    Raises InputError if there is nothing to sign, the key cannot be used, or the file exists.
    """
    private = envelope.read_private(key)
    existing = located(signed)
    place = private_files.as_named(existing.evidence if out is None else out)
    if not place.name.endswith(EVIDENCE):
        raise InputError(
            f"--out '{place.name}' must end in {EVIDENCE}, so that it is recognised as evidence"
        )
    if os.path.lexists(place):
        raise InputError(f"'{place}' exists already; delete it, or name a new file with --out")
    sealed = envelope.seal(made(existing), private)
    try:
        private_files.write_private(place, sealed)
    except OSError as error:
        raise InputError(f"cannot write '{place}': {error.strerror}") from None
    return place, existing.unmade


def verify_in(
    evidence: Path, key: Path | None = None, files: Path | None = None, as_signed: bool = False
) -> Verification:
    public = None if key is None else envelope.read_public(key)
    return verify(_within(evidence), public, files, as_signed)


def _within(place: Path) -> Path:
    if not place.is_dir():
        return place
    envelopes = sorted(each for each in place.iterdir() if each.name.endswith(EVIDENCE))
    if len(envelopes) != 1:
        raise InputError(
            f"'{place}' holds {len(envelopes)} files whose names end in {EVIDENCE}; name the "
            "one to verify"
        )
    return envelopes[0]
