"""Verification of a result: the sums of its files, and its report and pages made again.

- A run's report follows from its configuration, ledger, facts and transcript.
- A training's report follows from its events, and the epsilons of its card from its ledger.
- The audit of a recorded federation follows from the transcript.
- A live audit needs the clients' data; audits of an app or a training loop keep no trials.
"""

import hashlib
import math
import os
import platform
import re
import stat
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from enum import IntEnum
from pathlib import Path
from typing import Any

import fedsim
from adversaries.errors import InputError
from fedsim.audits.judgement.claim import Claim
from fedsim.audits.judgement.options import AuditOptions
from fedsim.audits.recorded import audit as transcript_audit
from fedsim.audits.results import conditions
from fedsim.audits.results.conditions import APP, LIVE, LOOP, RUN, SCORES, TRAINING, TRANSCRIPT
from fedsim.audits.run import report as results
from fedsim.common import installation, private_files, reading
from fedsim.common.report_directory import SUMS
from fedsim.common.strict_json import report_json
from fedsim.federation.runs.run_directory import CARD, RunDirectory
from fedsim.federation.runs.run_transcript import ContradictionError
from fedsim.federation.transcripts.reader import Reader
from fedsim.reports import model_card, training_report
from fedsim.reports import page as rendering
from fedsim.reports.document import html
from fedsim.reports.kinds import audited

REPORT, PAGE, SIGNATURE = "report.json", "report.html", f"{SUMS}.sig"
MOST_SUMS, MOST_NAMED = 2**24, 3
LINE = re.compile(r"([0-9a-f]{64}) [ *]([^\n\\]+)")

RELATIVE, ABSOLUTE = 1e-6, 1e-9
"""Tolerances for numbers: other machines round differently."""


class Outcome(IntEnum):
    """The result of a check; the value is the exit status."""

    VERIFIED = 0
    CANNOT_TELL = 3
    REFUTED = 4


@dataclass(frozen=True)
class Check:
    """One check: what it is of, its outcome in words, and whether sums may be written with it."""

    of: str
    outcome: Outcome
    words: str
    seals: bool = True


@dataclass(frozen=True)
class Verification:
    """The checks of a result, of which the worst decides; sealed: whether sums were written now."""

    checks: tuple[Check, ...]
    sealed: bool = False

    @property
    def outcome(self) -> Outcome:
        return max(check.outcome for check in self.checks)


@dataclass(frozen=True)
class Result:
    """A run, a training or an audit: its directory, and the transcript beside an audit's."""

    kind: str
    root: Path
    values: Mapping[str, Any]
    transcript: Path | None = None


def verify(directory: Path) -> Verification:
    """Compare a result with its SHA256SUMS, and its report with what follows from its files.

    Writes SHA256SUMS where it is missing, unless the report is refuted or a file that it needs is
    damaged. Raises InputError if the directory is no finished result, a file cannot be read, or the
    facts of a run contradict it.
    """
    root = directory.absolute()
    if not (root / REPORT).exists() and not (root / SUMS).exists():
        raise InputError(f"'{directory}' is no finished run or audit: it has no {REPORT}")
    if os.path.lexists(root / SUMS):
        checks = [*_compared(root, read_sums(root / SUMS))]
        if all(check.outcome is Outcome.VERIFIED for check in checks):
            checks += _remade(_opened(directory))  # no other files are believed
        return Verification(tuple(checks))
    result = _opened(directory)
    checks = [*_remade(result)]
    if os.path.lexists(root / SIGNATURE):
        words = f"is missing, but its signature is here: {SIGNATURE}"
        checks.insert(0, Check(SUMS, Outcome.REFUTED, words))
    sealed = all(each.seals and each.outcome is not Outcome.REFUTED for each in checks)
    if sealed:
        count = _write_sums(result)
        words = f"there was none; written now, with {count} files"
        checks.insert(0, Check(SUMS, Outcome.VERIFIED, words))
    return Verification(tuple(checks), sealed)


def _opened(directory: Path) -> Result:
    root = directory.absolute()
    run = RunDirectory.open(root) if (root / "config.toml").exists() else None
    if run is not None and not run.finished:
        raise InputError(f"'{directory}' is not finished; continue it with {run.resumed_by}")
    with reading.damage(lambda why: InputError(f"cannot read '{directory / REPORT}': {why}")):
        values = reading.json_object(root / REPORT)
    if run is not None:
        return Result(TRAINING if run.config.run.job == "training" else RUN, root, values)
    kind = conditions.kind_of(values)
    if kind not in _WAYS and kind not in UNMADE:
        raise InputError(f"'{directory}' reports a {kind}, which is neither a run nor an audit")
    recorded = kind in (TRANSCRIPT, LIVE) and _beside(root).is_dir()
    return Result(kind, root, values, _beside(root) if recorded else None)


# Its files


def _beside(root: Path) -> Path:
    """Return the path of a transcript whose audit has a directory beside it."""
    return root.with_name(f"{root.name.removesuffix('-audit')}.fedt")


def _files(root: Path) -> list[str]:
    """Return the names of all files, but for the sums, their signature and an empty lock."""
    names = [name for name in _below(root, root) if name not in (SUMS, SIGNATURE)]
    if "lock" in names and not (root / "lock").lstat().st_size:
        names.remove("lock")
    return names


def _recorded(root: Path) -> list[str]:
    """Return the names of the files of a transcript whose audit has a directory beside it."""
    transcript = _beside(root)
    files = _files(transcript) if transcript.is_dir() else []
    return [f"../{transcript.name}/{name}" for name in files]


def _below(root: Path, place: Path) -> Iterator[str]:
    """Yield the names of what is in a folder, in order; a link is a name and is not followed."""
    for inner in sorted(place.iterdir()):
        if stat.S_ISDIR(inner.lstat().st_mode):
            yield from _below(root, inner)
        else:
            yield inner.relative_to(root).as_posix()


def _sum(root: Path, name: str) -> str:
    """Return the SHA-256 of a file in hexadecimal. Raises OSError, also for a link."""
    descriptor = os.open(root / name, os.O_RDONLY | private_files.SAFELY)
    with os.fdopen(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(0, "it is not a plain file")
        return hashlib.file_digest(file, "sha256").hexdigest()


def _write_sums(result: Result) -> int:
    """Write SHA256SUMS; return the number of files in it."""
    root, lines = result.root, list[str]()
    for name in [*_files(root), *(_recorded(root) if result.transcript else ())]:
        if not LINE.fullmatch(f"{'0' * 64}  {name}"):
            raise InputError(f"'{root}' has a file with the name {name!r}; rename it")
        try:
            lines.append(f"{_sum(root, name)}  {name}\n")
        except OSError as error:
            raise InputError(
                f"cannot read '{root / name}': {error.strerror}; remove it, or replace a link by "
                "the file"
            ) from None
    with private_files.new_file(root / SUMS) as file:
        file.write("".join(lines).encode())
    return len(lines)


def read_sums(sums: Path) -> dict[str, str]:
    """Return the sum of each file that SHA256SUMS lists, by name."""
    with reading.damage(lambda why: InputError(f"cannot read '{sums}': {why}")):
        lines = reading.content(sums, MOST_SUMS).decode().removesuffix("\n").split("\n")
        found = [match for line in lines if (match := LINE.fullmatch(line))]
        listed = {match[2]: match[1] for match in found}
        if len(listed) < len(lines):
            raise ValueError("a line is not a sum and a name, or a name stands twice")
    return listed


def _compared(root: Path, listed: Mapping[str, str]) -> Iterator[Check]:
    files, same = {*_files(root)}, 0
    if any(name.startswith(f"../{_beside(root).name}/") for name in listed):
        files |= {*_recorded(root)}
    for name, wanted in listed.items():
        try:
            unchanged = name in files and _sum(root, name) == wanted
            words = f"has changed since {SUMS} was written"
        except OSError as error:
            unchanged, words = False, f"cannot be read: {error.strerror}"
        same += unchanged
        if name not in files:
            words = f"is missing, but {SUMS} lists it"
        if not unchanged:
            yield Check(name, Outcome.REFUTED, words)
    if same:
        yield Check(SUMS, Outcome.VERIFIED, f"{same} of {len(listed)} files are unchanged")
    for name in sorted(files - {*listed}):
        yield Check(name, Outcome.CANNOT_TELL, f"was added: {SUMS} does not list it")


# Its report and pages, made again


def _remade(result: Result) -> Iterator[Check]:
    """Compare the report and its pages with those that follow from the other files."""
    unmade = UNMADE.get(result.kind, "")
    if result.kind == TRANSCRIPT and result.transcript is None:
        unmade = "its transcript is not beside its directory"
    if unmade:
        words = f"was not made again, so that its files are compared by {SUMS} alone: {unmade}"
        yield Check("report", Outcome.CANNOT_TELL, words)
        return
    elsewhere = _other_versions(result.values)
    wrong = Outcome.CANNOT_TELL if elsewhere else Outcome.REFUTED
    try:
        values, pages, stated = _WAYS[result.kind](result)
    except ContradictionError:
        raise
    except (InputError, *reading.DAMAGE) as error:
        words = f"was not made again: {reading.reason(error)}"
        yield Check("report", Outcome.CANNOT_TELL, words, seals=False)
        return
    for name, one, other in [*stated, ("report", result.values, values)]:
        if paths := [*differences(one, other)]:
            more = f" and {len(paths) - MOST_NAMED} more" if len(paths) > MOST_NAMED else ""
            apart = f"{', '.join(paths[:MOST_NAMED])}{more}{elsewhere}"
            yield Check(name, wrong, f"does not follow from the files: {apart}")
            return
    yield Check("report", Outcome.VERIFIED, "made again from the other files: the same numbers")
    if result.values != values:  # another machine rounds otherwise, also on a page
        wrong = Outcome.CANNOT_TELL
    kept = {name: page for name, page in pages.items() if (result.root / name).exists()}
    other_pages = [n for n, page in kept.items() if (result.root / n).read_bytes() != page]
    for name in other_pages:
        yield Check(name, wrong, f"is not the page of this report{elsewhere}")
    same = len(kept) - len(other_pages)
    yield Check("pages", Outcome.VERIFIED, f"made again from the report: {same} are the same")


def _other_versions(values: Mapping[str, Any]) -> str:
    """Return which stated versions are not the installed ones, as the end of a sentence."""
    stated = values.get("versions")
    if not isinstance(stated, Mapping):
        return ""
    here = {"fedsim": fedsim.__version__, "python": platform.python_version()}
    here |= installation.installed(name for name in stated if name not in here)
    apart = [f"{name} {stated[name]}" for name in stated if here.get(name) != stated[name]]
    return f"; it was made with {', '.join(apart)}, which is not installed here" if apart else ""


def differences(one: Any, other: Any, path: str = "") -> Iterator[str]:
    """Yield the paths at which a value differs from another by more than rounding."""
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        for key in sorted({*one, *other}):
            inner = f"{path}.{key}".removeprefix(".")
            if (key in one) != (key in other):
                yield inner
            else:
                yield from differences(one[key], other[key], inner)
    elif isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        for place, pair in enumerate(zip(one, other, strict=True)):
            yield from differences(*pair, f"{path}.{place}")
    elif not _alike(one, other):
        yield path


def _alike(one: Any, other: Any) -> bool:
    numbers = all(isinstance(each, float | int) for each in (one, other))
    if numbers and isinstance(one, float) | isinstance(other, float):
        return math.isclose(one, other, rel_tol=RELATIVE, abs_tol=ABSOLUTE)
    return type(one) is type(other) and bool(one == other)


Remade = tuple[Mapping[str, Any], Mapping[str, bytes], Sequence[tuple[str, Any, Any]]]
"""A report and its pages as the installed fedsim makes them, and other files: the name of each,
what it states, and what follows from the rest."""


def _of_run(result: Result) -> Remade:
    directory = RunDirectory.open(result.root)
    stated = results.read(directory)
    made, transcript = rendering.assembled(directory, stated.confidence, stated.delta)
    drawn, about = rendering.Pictures(made, transcript), rendering.about(directory)
    page = rendering.render_html(made, drawn, about).encode()
    pictures = {f"figures/{name}": content for name, content in drawn.contents.items()}
    return made.report, {PAGE: page, **pictures}, ()


def _of_training(result: Result) -> Remade:
    directory = RunDirectory.open(result.root)
    card = model_card.read_card(directory)
    ledgers = model_card.privacy_of(directory, card.privacy.noise_multiplier)
    stated, privacy = (report_json(asdict(each)) for each in (card.privacy, ledgers))
    made = training_report.assemble(directory, card)
    pages = {
        PAGE: html.page(training_report.told(made, card)).encode(),
        model_card.PAGE: model_card.as_markdown_page(card).encode(),
    }
    return made.report, pages, [(CARD, stated, privacy)]


def _of_transcript(result: Result) -> Remade:
    asked = result.values
    delta, claim = asked["delta"], asked["claim"]
    options = AuditOptions(
        claim=None if claim is None else Claim(claim["epsilon"], delta, unit=claim["unit"]),
        delta=None if claim else delta,
        confidence=asked["confidence"],
    )
    assert result.transcript is not None
    with Reader(result.transcript) as reader:
        made = transcript_audit.audit(reader, options)
    return made.report, {PAGE: html.page(audited.told(made)).encode()}, ()


_WAYS: Mapping[str, Callable[[Result], Remade]] = {
    RUN: _of_run,
    TRAINING: _of_training,
    TRANSCRIPT: _of_transcript,
}
NO_TRIALS = "its audit keeps no trials; audit the code again with the same seed"
UNMADE = {
    LIVE: "it needs the clients' data",
    APP: NO_TRIALS,
    LOOP: NO_TRIALS,
    SCORES: "it keeps no scores",
}
"""Reports that no file allows to make again, and why."""
