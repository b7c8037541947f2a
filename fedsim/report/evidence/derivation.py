"""Derives a report again from its source files, with the installed code.

- A run's report follows from its configuration, ledger, facts and transcript.
- A training's report follows from its events, and the epsilons of its card from its ledger.
- The audit of a recorded federation follows from the transcript.
- A live audit needs the clients' data, which evidence does not hold.
- Audits of an app or a training loop keep no trials.
"""

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeVar

from pydantic import TypeAdapter

from adversaries.errors import InputError
from fedsim.audits.judgement.claim import Claim
from fedsim.audits.judgement.report import AuditOptions
from fedsim.audits.recorded import audit as transcript_audit
from fedsim.audits.results import conditions
from fedsim.audits.results import report as results
from fedsim.audits.results.conditions import APP, LIVE, LOOP, RUN, TRAINING, TRANSCRIPT
from fedsim.audits.results.report import encode
from fedsim.common.strict_json import report_json
from fedsim.federation.runs.run_directory import RunDirectory
from fedsim.federation.transcripts.reader import Reader
from fedsim.report import model_card, training_report
from fedsim.report import page as rendering
from fedsim.report.kinds import recorded as transcript_report

PAGE = "report.html"
NUMBER = re.compile(r"(?<![\w.])-?\d++(?:\.(\d++))?+(?:e([-+]?\d++))?+(?![\w.]*[A-Za-z])")
"""A number by itself, with its decimals and exponent; not a part of a name or digest."""

Pages = Mapping[str, Sequence[bytes]]


def differing(folder: Path, pages: Pages) -> tuple[list[str], list[str]]:
    same, other = list[str](), list[str]()
    for name, made in pages.items():
        if (folder / name).exists():
            content = (folder / name).read_bytes()
            (same if any(alike(content, each) for each in made) else other).append(name)
    return same, other


def alike(signed: bytes, made: bytes) -> bool:
    """Return whether two pages are equal up to the rounding of numbers."""
    if signed == made:
        return True
    try:
        texts = signed.decode(), made.decode()
    except UnicodeDecodeError:
        return False
    one, other = (NUMBER.split(text)[::3] for text in texts)
    if one != other:
        return False
    pairs = zip(*(NUMBER.finditer(text) for text in texts), strict=True)
    return all(_rounded(*pair) for pair in pairs)


def _rounded(one: re.Match[str], other: re.Match[str]) -> bool:
    """Return whether two numbers are equal up to rounding; whole numbers must be equal."""
    if one[0] == other[0]:
        return True
    decimals = min(len(one[1] or ""), len(other[1] or ""))
    if not decimals:
        return False
    unit = 10.0 ** (max(int(one[2] or 0), int(other[2] or 0)) - decimals)
    first, second = float(one[0]), float(other[0])
    return abs(first - second) <= 1.01 * unit or math.isclose(first, second, rel_tol=RELATIVE)


RELATIVE, ABSOLUTE = 1e-6, 1e-9
"""Tolerances for numbers: other versions of libraries and other machines round differently."""

MOST_NAMED = 3
NO_TRIALS = "its audit keeps no trials; audit the code again with the same seed"

UNDERIVABLE = {
    LIVE: "its report needs the clients' data, which evidence does not hold",
    APP: NO_TRIALS,
    LOOP: NO_TRIALS,
}

Part = TypeVar("Part")


@dataclass(frozen=True)
class VerdictPart:
    vantage: str
    state: str


@dataclass(frozen=True)
class OfRun:
    verdicts: list[VerdictPart]


@dataclass(frozen=True)
class OfCode:
    """What evidence reads of the audit of an app or a training loop."""

    seed: int
    verdict: str


@dataclass(frozen=True)
class SignedClaim:
    epsilon: float
    unit: str | None
    verdict: str


@dataclass(frozen=True)
class OfFederation:
    """What evidence reads of the audit of a recorded or a live federation."""

    claim: SignedClaim | None


@dataclass(frozen=True)
class TranscriptPart(OfFederation):
    delta: float
    confidence: float
    rounds_stated: int | None


@dataclass(frozen=True)
class SignedReport:
    """report.json, of any kind: its values, and typed those parts that evidence reads."""

    values: Mapping[str, object]

    @property
    def kind(self) -> str:
        return conditions.kind_of(self.values)

    def part(self, type_: type[Part]) -> Part:
        """Return the values that a type names. Raises ValueError where they have other types."""
        return results.decoded(self.values, TypeAdapter(type_))


class UnderivableError(InputError):
    """The source files of a report are not among the signed files."""


@dataclass(frozen=True)
class MadeBy:
    values: Mapping[str, object]
    pages: Pages


def derived(kind: str, root: Path, source: str, report: SignedReport) -> MadeBy:
    """Return a report and its pages as the installed code derives them; write nothing."""
    if why := underivable(kind, source):
        raise UnderivableError(why)
    return _WAYS[kind](root / source, report)


def underivable(kind: str, source: str) -> str:
    if kind == TRANSCRIPT and not source:
        return "its transcript is not among the files"
    return UNDERIVABLE.get(kind, "")


def differences(signed: Any, derived: Any, path: str = "") -> Iterator[str]:
    """Yield the paths at which a value differs from another by more than rounding."""
    if isinstance(signed, Mapping) and isinstance(derived, Mapping):
        for key in sorted({*signed, *derived}):
            inner = f"{path}.{key}".removeprefix(".")
            if (key in signed) != (key in derived):
                yield inner
            else:
                yield from differences(signed[key], derived[key], inner)
    elif isinstance(signed, list) and isinstance(derived, list) and len(signed) == len(derived):
        for place, (one, other) in enumerate(zip(signed, derived, strict=True)):
            yield from differences(one, other, f"{path}.{place}")
    elif not _alike(signed, derived):
        yield path


def named(paths: Iterator[str]) -> str:
    names = list(paths)
    more = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
    return ", ".join(names[:MOST_NAMED]) + more


def _alike(signed: Any, derived: Any) -> bool:
    numbers = all(isinstance(each, float | int) for each in (signed, derived))
    if numbers and isinstance(signed, float) | isinstance(derived, float):
        return math.isclose(signed, derived, rel_tol=RELATIVE, abs_tol=ABSOLUTE)
    return type(signed) is type(derived) and bool(signed == derived)


def _of_run(root: Path, _: SignedReport) -> MadeBy:
    directory = RunDirectory.open(root)
    signed = results.read(directory)
    limits = {"report.limit-advantage": 0.0, "report.limit-belief": 0.0}
    for verdict in signed.verdicts:
        limits |= {f"report.limit-{own.of}": own.limit for own in verdict.limits}
    confidence, delta = signed.empirical.confidence, signed.bounds.delta
    made, transcript = rendering.assembled(directory, confidence, delta, limits)
    drawn, about = rendering.Pictures(made, transcript), rendering.about(directory)
    # A run of a sweep has a link to the sweep's page, which need not be among the files.
    derived = [
        rendering.render_html(made, drawn, several, about).encode() for several in (False, True)
    ]
    pictures = {f"figures/{name}": [content] for name, content in drawn.contents.items()}
    return MadeBy(encode(made), {PAGE: derived, **pictures})


def _of_training(root: Path, _: SignedReport) -> MadeBy:
    directory = RunDirectory.open(root)
    card = model_card.read_card(directory)
    privacy = model_card.privacy_of(directory, card.privacy.noise_multiplier)
    if apart := named(differences(report_json(asdict(card.privacy)), report_json(asdict(privacy)))):
        raise directory.damaged("public/model_card.json", f"its ledger differs: {apart}")
    made = training_report.assemble(directory)
    pages = {
        PAGE: [training_report.render_html(made, card).encode()],
        model_card.PAGE: [model_card.as_markdown(card).encode()],
    }
    return MadeBy(report_json(made.as_json()), pages)


def _of_transcript(path: Path, report: SignedReport) -> MadeBy:
    audited = report.part(TranscriptPart)
    claim = delta = None
    if (claimed := audited.claim) is not None:
        claim = Claim(claimed.epsilon, audited.delta, unit=claimed.unit)
    else:
        delta = audited.delta
    options = AuditOptions(
        claim=claim, delta=delta, confidence=audited.confidence, rounds=audited.rounds_stated
    )
    with Reader(path) as reader:
        made = transcript_audit.audit(reader, options)
    return MadeBy(
        report_json(made.as_json()), {PAGE: [transcript_report.render_html(made).encode()]}
    )


_WAYS: Mapping[str, Callable[[Path, SignedReport], MadeBy]] = {
    RUN: _of_run,
    TRAINING: _of_training,
    TRANSCRIPT: _of_transcript,
}
