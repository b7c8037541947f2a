"""Makes a report again from the files that it came from, with the code that is here.

A run's report follows from its configuration, ledger, facts and transcript; a training's from its
events, and its card's epsilons from its ledger; the audit of a recorded federation from the
transcript. What an auditor's node recorded takes the clients' data, which evidence does not hold;
of the trials of an app or of a training loop nothing is kept.
"""

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from adversaries.errors import InputError
from fedsim.audits.recorded import audit as transcript_audit
from fedsim.audits.results import report as results
from fedsim.audits.results.report import encode
from fedsim.common.strict_json import report_json
from fedsim.federation.runs import ledger
from fedsim.federation.runs.run_directory import RunDirectory
from fedsim.federation.transcripts.reader import Reader
from fedsim.report import model_card, training_report, writing
from fedsim.report.evidence import pages
from fedsim.report.evidence.conditions import APP, LIVE, LOOP, RUN, TRAINING, TRANSCRIPT

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
    pages: pages.Pages


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
    return Made(encode(made), pages.of_run(directory, made))


def _of_training(root: Path, _: Report) -> Made:
    directory = RunDirectory.open(root)
    card = model_card.read(directory)
    privacy = model_card.privacy_of(
        directory.config, card.privacy.noise_multiplier, ledger.verified(directory)
    )
    if apart := named(differences(report_json(asdict(card.privacy)), report_json(asdict(privacy)))):
        raise directory.damaged("public/model_card.json", f"its ledger says otherwise: {apart}")
    made = training_report.assemble(directory)
    return Made(report_json(made), pages.of_training(directory, made))


def _of_transcript(path: Path, report: Report) -> Made:
    claim = report["claim"] or {"epsilon": None, "unit": None}
    with Reader(path) as reader:
        made = transcript_audit.audit(
            reader, report["delta"], report["confidence"], claim["epsilon"], claim["unit"]
        )
    return Made(report_json(made), pages.of_transcript(made))


_WAYS: Mapping[str, Callable[[Path, Report], Made]] = {
    RUN: _of_run,
    TRAINING: _of_training,
    TRANSCRIPT: _of_transcript,
}
