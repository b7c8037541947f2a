"""Makes a report again from the files that it came from, with the code that is here.

A run's report follows from its configuration, ledger, facts and transcript; a training's from its
events, and its card's epsilons from its ledger; the audit of a recorded federation from the
transcript. What an auditor's node recorded takes the clients' data, which evidence does not hold;
of the trials of an app or of a training loop nothing is kept.
"""

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from adversaries.errors import InputError
from fedsim.audits.judgement.claim import Claim
from fedsim.audits.judgement.options import AuditOptions
from fedsim.audits.recorded import audit as transcript_audit
from fedsim.audits.results import report as results
from fedsim.audits.results.conditions import APP, LIVE, LOOP, RUN, TRAINING, TRANSCRIPT
from fedsim.audits.results.report import Report as RunReport
from fedsim.audits.results.report import encode
from fedsim.common.strict_json import report_json
from fedsim.federation.runs import ledger
from fedsim.federation.runs.run_directory import RunDirectory
from fedsim.federation.runs.run_transcript import read as read_transcript
from fedsim.federation.transcripts.reader import Reader
from fedsim.report import model_card, training_report, writing
from fedsim.report import page as rendering
from fedsim.report.kinds import recorded as transcript_report
from fedsim.report.tracking import live_page

PAGE = "report.html"

NUMBER = re.compile(r"(?<![\w.])-?\d++(?:\.(\d++))?+(?:e([-+]?\d++))?+(?![\w.]*[A-Za-z])")
"""A number that stands by itself, its decimals and its exponent; no part of a name or digest."""

Pages = Mapping[str, Sequence[bytes]]
"""By name, what a page or picture may be."""


def _pages_of_run(directory: RunDirectory, report: RunReport) -> Pages:
    """Return the page of a run and its pictures."""
    drawn = rendering.Pictures(report, read_transcript(directory))
    # The page of one run of several leads to theirs, which need not have been copied along.
    about = rendering.about(directory)
    found = [
        rendering.render_html(report, drawn, several, about).encode() for several in (False, True)
    ]
    pictures = {
        f"figures/{name}.{'svg' if isinstance(each, str) else 'png'}": [
            each.encode() if isinstance(each, str) else each
        ]
        for name, each in drawn.files.items()
    }
    return {
        PAGE: found,
        live_page.FILE: [live_page.render_finished(directory.config.run.name).encode()],
    } | pictures


def differing(folder: Path, pages: Pages) -> tuple[list[str], list[str]]:
    """Return which of the pages that are there are as they were made again, and which are not."""
    same, other = list[str](), list[str]()
    for name, made in pages.items():
        if (folder / name).exists():
            content = (folder / name).read_bytes()
            (same if any(alike(content, each) for each in made) else other).append(name)
    return same, other


def alike(told: bytes, made: bytes) -> bool:
    """Return whether two pages differ in nothing but how numbers are rounded."""
    if told == made:
        return True
    try:
        texts = told.decode(), made.decode()
    except UnicodeDecodeError:
        return False
    one, other = (NUMBER.split(text)[::3] for text in texts)
    if one != other:
        return False
    pairs = zip(*(NUMBER.finditer(text) for text in texts), strict=True)
    return all(_rounded(*pair) for pair in pairs)


def _rounded(one: re.Match[str], other: re.Match[str]) -> bool:
    """Return whether two numbers are one that was rounded otherwise; whole numbers are not."""
    if one[0] == other[0]:
        return True
    decimals = min(len(one[1] or ""), len(other[1] or ""))
    if not decimals:
        return False
    unit = 10.0 ** (max(int(one[2] or 0), int(other[2] or 0)) - decimals)
    first, second = float(one[0]), float(other[0])
    return abs(first - second) <= 1.01 * unit or math.isclose(first, second, rel_tol=RELATIVE)


RELATIVE, ABSOLUTE = 1e-6, 1e-9
"""By how much a number may differ: libraries of other versions and machines round otherwise."""

MOST_NAMED = 3

NO_TRIALS = "its audit keeps no trials; audit the code again, from the same seed"

UNDERIVABLE = {
    LIVE: "its report takes the clients' data, which no evidence holds",
    APP: NO_TRIALS,
    LOOP: NO_TRIALS,
}
"""Why a report of a kind cannot be made again from its files."""

Report = Mapping[str, Any]


class UnderivableError(InputError):
    """The files that a report follows from are not among those that are signed."""


@dataclass(frozen=True)
class Made:
    """What was made again.

    Attributes:
        pages: beside it, by name: each as the bytes that it may have.
    """

    report: Report
    pages: Pages


def derived(kind: str, root: Path, source: str, report: Report) -> Made:
    """Return a report and its pages as the code that is here makes them, and write nothing.

    Args:
        kind: of the report, a key of `conditions.NAMES`.
        source: below it, the transcript of an audit; "" of a run, or where it is not there.
        report: that was signed, whose confidence, delta, limits and claim are taken over.

    Raises:
        InputError: the files are damaged or contradict each other.
        UnderivableError: there is not all that it follows from.
    """
    if why := underivable(kind, source):
        raise UnderivableError(why)
    return _WAYS[kind](root / source, report)


def underivable(kind: str, source: str) -> str:
    """Return why no report of its kind can be made again, "" if it can."""
    if kind == TRANSCRIPT and not source:
        return "its transcript is not among the files"
    return UNDERIVABLE.get(kind, "")


def differences(told: Any, found: Any, path: str = "") -> Iterator[str]:
    """Yield the paths at which a value differs from another by more than rounding."""
    if isinstance(told, Mapping) and isinstance(found, Mapping):
        for key in sorted({*told, *found}):
            inner = f"{path}.{key}".removeprefix(".")
            if (key in told) != (key in found):
                yield inner
            else:
                yield from differences(told[key], found[key], inner)
    elif isinstance(told, list) and isinstance(found, list) and len(told) == len(found):
        for place, (one, other) in enumerate(zip(told, found, strict=True)):
            yield from differences(one, other, f"{path}.{place}")
    elif not _alike(told, found):
        yield path


def named(paths: Iterator[str]) -> str:
    """Return the first of some paths, as a text that says whether there are more."""
    found = list(paths)
    more = f" and {len(found) - MOST_NAMED} more" if len(found) > MOST_NAMED else ""
    return ", ".join(found[:MOST_NAMED]) + more


def _alike(told: Any, found: Any) -> bool:
    numbers = all(isinstance(each, float | int) for each in (told, found))
    if numbers and isinstance(told, float) | isinstance(found, float):
        return math.isclose(told, found, rel_tol=RELATIVE, abs_tol=ABSOLUTE)
    return type(told) is type(found) and bool(told == found)


def _of_run(root: Path, _: Report) -> Made:
    directory = RunDirectory.open(root)
    signed = results.read(directory)
    limits = {"report.limit-advantage": 0.0, "report.limit-belief": 0.0}
    for verdict in signed.verdicts:
        limits |= {f"report.limit-{own.of}": own.limit for own in verdict.limits}
    confidence, delta = signed.empirical.confidence, signed.bounds.delta
    made, _transcript = writing.assembled(directory, confidence, delta, limits)
    return Made(encode(made), _pages_of_run(directory, made))


def _of_training(root: Path, _: Report) -> Made:
    directory = RunDirectory.open(root)
    card = model_card.read(directory)
    privacy = model_card.privacy_of(
        directory.config, card.privacy.noise_multiplier, ledger.verified(directory)
    )
    if apart := named(differences(report_json(asdict(card.privacy)), report_json(asdict(privacy)))):
        raise directory.damaged("public/model_card.json", f"its ledger says otherwise: {apart}")
    made = training_report.assemble(directory)
    pages = {
        PAGE: [training_report.render_html(made, card).encode()],
        model_card.PAGE: [model_card.as_markdown(card).encode()],
        live_page.FILE: [live_page.render_finished(directory.config.run.name).encode()],
    }
    return Made(report_json(made), pages)


def _of_transcript(path: Path, report: Report) -> Made:
    claimed, delta, confidence = report["claim"], report["delta"], report["confidence"]
    options = AuditOptions(delta=delta, confidence=confidence)
    if claimed is not None:
        claim = Claim(claimed["epsilon"], delta, unit=claimed["unit"])
        options = AuditOptions(claim=claim, confidence=confidence)
    with Reader(path) as reader:
        made = transcript_audit.audit(reader, options)
    return Made(report_json(made), {PAGE: [transcript_report.render_html(made).encode()]})


_WAYS: Mapping[str, Callable[[Path, Report], Made]] = {
    RUN: _of_run,
    TRAINING: _of_training,
    TRANSCRIPT: _of_transcript,
}
