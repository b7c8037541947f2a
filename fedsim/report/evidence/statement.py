"""The statement about a run or an audit that is signed: its files and conclusions."""

import hashlib
import os
import platform
import stat
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from importlib import import_module
from importlib.machinery import PathFinder
from importlib.metadata import version
from pathlib import Path, PurePosixPath
from typing import Any

import fedsim
from adversaries import registry
from adversaries.errors import InputError
from fedsim.audits.results import conditions
from fedsim.audits.results.conditions import APP, LIVE, LOOP, RUN, TRAINING, TRANSCRIPT
from fedsim.common import private_files, reading
from fedsim.common.installation import PACKAGES
from fedsim.common.report_directory import EVIDENCE
from fedsim.config import Scalar, to_run_config
from fedsim.federation.runs.run_directory import RunDirectory
from fedsim.report import model_card
from fedsim.report.evidence import derivation, envelope
from fedsim.report.evidence.derivation import OfCode, OfFederation, OfRun, SignedReport
from fedsim.report.evidence.envelope import Digest, Predicate, Statement, Subject

LIBRARIES = ("flwr", "torch", "numpy", "scipy", "dp-accounting", "cryptography", "matplotlib")
OTHERS = ("torchvision", "flwr", "hf", "given")
"""Prefixes before a colon in a configuration that are not modules: they name no file."""


def below(root: Path, place: Path) -> Iterator[str]:
    """Yield the names of all files in a place below a folder, in order."""
    status = os.lstat(place)
    if stat.S_ISDIR(status.st_mode):
        for inner in sorted(place.iterdir()):
            yield from below(root, inner)
    elif stat.S_ISREG(status.st_mode):
        yield place.relative_to(root).as_posix()
    else:
        raise InputError(f"'{place}' is not a plain file; replace it with its target, or remove it")


def is_below(name: str) -> bool:
    """Return whether a foreign name leads to a file below a folder."""
    parts = PurePosixPath(name).parts
    plain = "/".join(parts) == name and "\0" not in name and not name.startswith("/")
    return plain and not {"..", "."} & {*parts}


def of_file(root: Path, name: str) -> str:
    """Return the SHA-256 of a file, in hexadecimal, without following a link to it."""
    descriptor = os.open(root / name, os.O_RDONLY | private_files.SAFELY)
    with os.fdopen(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(0, "it is not a plain file")
        return hashlib.file_digest(file, "sha256").hexdigest()


def of_code(own: Mapping[str, str]) -> dict[str, str]:
    digests = {package: _of_package(Path(_file(package)).parent) for package in PACKAGES}
    modules = sorted({name.partition(":")[0] for name in own})
    return digests | {
        name: hashlib.sha256(Path(_file(name)).read_bytes()).hexdigest() for name in modules
    }


def own_code(values: Mapping[str, Scalar]) -> dict[str, str]:
    """Return the user's own code that a configuration names: the key by the code's name."""
    digests = {}
    for key, value in values.items():
        for name in str(value).split(","):
            if registry.is_code(name.strip()) and name.strip().partition(":")[0] not in OTHERS:
                registry.lookup({}, name.strip(), key)
                digests[name.strip()] = key
    return digests


def of_app(folder: Path) -> dict[str, str]:
    """Return the SHA-256 of a Flower app's Python files and its pyproject.toml, by name."""
    names = (path.relative_to(folder) for path in sorted(folder.rglob("*.py")))
    visible = [name for name in names if not any(part.startswith(".") for part in name.parts)]
    return _of_files(folder, [Path("pyproject.toml"), *visible])


def of_function(name: str) -> dict[str, str]:
    """Return the SHA-256 of the file of a function, by its name, and import nothing."""
    place = name.rpartition(":")[0]
    if place.endswith(".py"):
        path = Path(place)
        return _of_files(path.parent, [Path(path.name)])
    search, origin = [str(Path.cwd()), *sys.path], None
    for part in place.split("."):
        spec = PathFinder.find_spec(part, search)
        origin = None if spec is None else spec.origin
        search = [] if spec is None else list(spec.submodule_search_locations or ())
    return {} if origin is None else _of_files(Path(origin).parent, [Path(Path(origin).name)])


def _of_files(folder: Path, names: Iterable[Path]) -> dict[str, str]:
    return {
        name.as_posix(): hashlib.sha256((folder / name).read_bytes()).hexdigest()
        for name in names
        if (folder / name).is_file()
    }


def versions() -> dict[str, str]:
    own = {"fedsim": fedsim.__version__, "python": platform.python_version()}
    return own | {"platform": sys.platform} | {name: version(name) for name in LIBRARIES}


def _file(module: str) -> str:
    return str(import_module(module).__file__)


def _of_package(folder: Path) -> str:
    """Return one digest of all Python files in a folder: of their names and digests, in order."""
    lines = (
        f"{of_file(folder, path)}  {path}\n"
        for path in below(folder, folder)
        if path.endswith(".py")
    )
    return hashlib.sha256("".join(lines).encode()).hexdigest()


REPORT = "report.json"
PARTS = {"configuration": "config.toml", "ledger": "ledger.jsonl", "transcript": "transcript.npz"}
LOCK = "lock"


@dataclass(frozen=True)
class SignedSubject:
    """The subject of a statement; file names are relative to its root."""

    kind: str
    root: Path
    report: str
    transcript: str

    @property
    def is_run(self) -> bool:
        return self.kind in (RUN, TRAINING)

    @property
    def unmade(self) -> str:
        return derivation.underivable(self.kind, self.transcript)

    @property
    def evidence(self) -> Path:
        return self.root / (
            f"{Path(self.transcript).stem}-{EVIDENCE}" if self.transcript else EVIDENCE
        )

    @property
    def remedy(self) -> str:
        if self.is_run:
            return f"fedsim report {self.root}"
        return f"fedsim {' '.join(reversed(self.kind.split()))}"

    def names(self) -> Iterator[str]:
        """Yield the names of all its files in order, without evidence and the lock, if empty."""
        folder = (self.root / self.report).parent
        places = [folder, *([self.root / self.transcript] if self.transcript else [])]
        for place in places:
            for name in below(self.root, place):
                held = name == LOCK and not (self.root / name).stat().st_size
                if not held and not self._is_evidence(name):
                    yield name

    def others(self) -> list[str]:
        folder = (self.root / self.report).parent
        return [name for name in below(self.root, folder) if self._is_evidence(name)]

    def _is_evidence(self, name: str) -> bool:
        """Return whether a file is an envelope with a statement."""
        if not name.endswith(EVIDENCE):
            return False
        try:
            envelope.read_envelope(self.root / name)
        except (InputError, OSError):
            return False
        return True

    def absent(self) -> list[str]:
        there = {*self.names()}
        lacking = [part for part, name in PARTS.items() if name not in there]
        return [part for part in lacking if part != "transcript" or not self.transcript]

    def read(self) -> SignedReport:
        path = self.root / self.report

        def refusal(why: str) -> InputError:
            return InputError(f"cannot read '{path}': {why}")

        with reading.damage(refusal):
            return SignedReport(reading.json_object(path))


def located(what: Path) -> SignedSubject:
    if what.is_dir() and not (what / PARTS["configuration"]).exists():
        return _of_audit(what.absolute())
    if what.is_dir():
        directory = RunDirectory.open(what)
        if not directory.finished:
            raise InputError(f"'{what}' is not finished; continue it with {directory.resumed_by}")
        kind = TRAINING if directory.config.run.job == "training" else RUN
        return SignedSubject(kind, directory.path, REPORT, "")
    if not what.is_file():
        raise InputError(f"there is no '{what}'; name the directory of a run or audit")
    path = what.absolute()
    name = f"{path.stem}-audit/{REPORT}"
    if not (path.parent / name).is_file():
        raise InputError(
            f"'{what}' has no {name} beside it; write it with fedsim audit transcript {what}"
        )
    report = SignedSubject(TRANSCRIPT, path.parent, name, path.name)
    if (kind := report.read().kind) not in (TRANSCRIPT, LIVE):
        raise InputError(f"'{path.parent / name}' reports a {kind}, not the audit of a transcript")
    return replace(report, kind=kind)


def _of_audit(root: Path) -> SignedSubject:
    if not (root / REPORT).is_file():
        raise InputError(f"'{root}' is neither a run nor an audit: it has no {REPORT}")
    signed = SignedSubject("", root, REPORT, "")
    kind = signed.read().kind
    if kind in (TRANSCRIPT, LIVE):
        recorded = root.with_name(f"{root.name.removesuffix('-audit')}.fedt")
        if recorded.is_file() and recorded.stem != root.name:
            return located(recorded)
    elif kind not in (APP, LOOP):
        raise InputError(f"'{root}' reports a {kind}, which is neither a run nor an audit")
    return replace(signed, kind=kind)


def made(signed: SignedSubject) -> Statement:
    report = signed.read()
    if not signed.unmade:
        again = derivation.derived(signed.kind, signed.root, signed.transcript, report)
        _refuse_others(signed, report, again)
    with reading.damage(lambda why: InputError(f"{signed.report} is damaged: {why}")):
        stated = said(signed, report)
    try:
        subject = [
            Subject(name=name, digest=Digest(sha256=of_file(signed.root, name)))
            for name in signed.names()
        ]
    except OSError as error:
        raise InputError(f"cannot read the files of '{signed.root}': {error.strerror}") from None
    own = {}
    if signed.is_run:
        own = own_code(to_run_config(RunDirectory.open(signed.root).config))
    predicate = Predicate(
        kind=signed.kind,  # type: ignore[arg-type]  # pydantic sees to it
        report=signed.report,
        transcript=signed.transcript,
        signed=datetime.now(UTC).isoformat(timespec="seconds"),
        code=of_code(own),
        versions=versions(),
        **stated,
    )
    return Statement(subject=subject, predicate=predicate)


def _refuse_others(signed: SignedSubject, report: SignedReport, again: derivation.MadeBy) -> None:
    apart = derivation.named(derivation.differences(report.values, again.values))
    wrong = f"{signed.report} differs from what fedsim derives from the other files ({apart})"
    if not apart:
        _, other = derivation.differing((signed.root / signed.report).parent, again.pages)
        wrong = f"{', '.join(other)} differs from what fedsim derives from {signed.report}"
        if not other:
            return
    raise InputError(f"{wrong}; write it again with {signed.remedy}, then sign")


def said(signed: SignedSubject, report: SignedReport) -> dict[str, Any]:
    seeds: dict[str, int | str] = {}
    conclusions: dict[str, str] = {}
    if signed.is_run:
        config = RunDirectory.open(signed.root).config
        seeds = {"run.seed": config.run.seed, "data.seed": config.data.seed}
        seeds |= {"privacy.noise-source": config.privacy.noise_source}
    if signed.kind == RUN:
        conclusions = {one.vantage: one.state for one in report.part(OfRun).verdicts}
    elif signed.kind == TRAINING:
        card = model_card.read_card(RunDirectory.open(signed.root))
        conclusions = {"guaranteed": "yes" if card.privacy.guaranteed else "no"}
    elif signed.kind in (APP, LOOP):
        audit = report.part(OfCode)
        seeds = {"audit.seed": audit.seed}
        conclusions = {"verdict": audit.verdict}
    elif (claim := report.part(OfFederation).claim) is not None:
        conclusions = {"claim": claim.verdict}
    return {
        "absent": signed.absent(),
        "seeds": seeds,
        "numbers": conditions.numbers(report.values),
        "conclusions": conclusions,
    }
