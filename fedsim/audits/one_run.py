"""One-run audits: planted canaries, their scores, and what these prove about epsilon."""

import csv
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np
from pydantic import BaseModel, FiniteFloat, NonNegativeInt, ValidationError

from adversaries.arrays import Bools, Floats
from adversaries.errors import InputError
from adversaries.statistics.intervals import EpsilonBound, check_positive_delta
from fedsim.common import reading
from fedsim.common.html_table import html_table

if TYPE_CHECKING:  # torch takes a second
    from adversaries.bounds.one_run import CanaryEstimate

COLUMNS = ("trial", "canary", "included", "score")
HEADINGS = ("how", "ε", "guesses", "assumes")


@dataclass(frozen=True)
class OneRun:
    """What the canaries of one training prove about epsilon.

    Attributes:
        confidence: of each bound by itself; the largest of several proves less.
        estimate: estimate from the canaries; it proves nothing.
    """

    trial: int
    included: Bools = field(repr=False)
    scores: Floats = field(repr=False)
    delta: float
    confidence: float
    bounds: Mapping[str, EpsilonBound]
    estimate: "CanaryEstimate"

    @property
    def title(self) -> str:
        included = int(self.included.sum())
        return f"{self.scores.size} canaries, {included} of them included, δ = {self.delta:g}"

    @property
    def caption(self) -> str:
        return f"Bounds and interval at {self.confidence:.1%}; the estimate proves nothing."

    def rows(self) -> list[tuple[str, str, str, str]]:
        lines = []
        for bound in self.bounds.values():
            details = bound.details
            guesses = f"{details['right']:g} of {details['guesses']:g} right"
            lines.append((bound.method, f"at least {bound.epsilon:.3f}", guesses, bound.assumes))
        estimate, between = self.estimate, self.estimate.epsilon_interval
        value = f"{estimate.epsilon:.3f} ({between.low:.3f} to {between.high:.3f})"
        return [*lines, (estimate.method, estimate.reason or value, "", estimate.assumes)]

    def _repr_html_(self) -> str:
        return html_table(HEADINGS, self.rows(), f"{self.title}. {self.caption}")


def estimate(
    trial: int,
    included: Bools,
    scores: Floats,
    delta: float,
    confidence: float,
    guesses: int = 0,
) -> OneRun:
    """Return what canaries prove about epsilon, and what they suggest.

    included: whether each canary was in the training, by a fair coin, bool [m].
    scores: computed without the coins, float64 [m].
    guesses: number of canaries to guess; 0 for one in eight, -1 for the best of several numbers.
    Raises InputError for values that allow no bound.
    """
    from adversaries.bounds import one_run as estimators  # noqa: PLC0415

    check_positive_delta(delta)
    bounds = estimators.bounds(included, scores, delta, confidence, guesses)
    suggested = estimators.client_canary_estimate(included, scores, delta, confidence)
    return OneRun(trial, included, scores, delta, confidence, bounds, suggested)


class _Row(BaseModel):
    """A canary's row in a file of scores."""

    included: Literal["0", "1"]
    score: FiniteFloat
    trial: NonNegativeInt = 0
    canary: str = ""


def read_scores(path: Path, trial: int | None) -> tuple[int, Bools, Floats]:
    """Return a trial, the coins bool [m] and the scores float64 [m] of its canaries."""
    try:
        rows = _rows(path)
    except InputError:
        raise
    except (csv.Error, *reading.DAMAGE) as error:
        why = reading.reason(error)
        raise InputError(f"cannot read scores from '{path}': {why}; give a CSV") from None
    named = Counter((row.trial, row.canary) for row in rows if row.canary)
    for (number, canary), times in named.items():
        if times > 1:
            raise InputError(
                f"'{path}': canary {canary!r} of trial {number} occurs {times} times, but it had "
                "one coin; keep one row of each"
            )
    numbers = {row.trial for row in rows}
    number = min(numbers) if trial is None else trial
    if number not in numbers:
        raise InputError(f"'{path}' has no trial {number}; it has {min(numbers)} to {max(numbers)}")
    chosen = [row for row in rows if row.trial == number]
    coins = np.array([row.included == "1" for row in chosen])
    return number, coins, np.array([row.score for row in chosen])


def _rows(path: Path) -> list[_Row]:
    rows = []
    # Spreadsheets start their files with a byte order mark.
    with path.open(encoding="utf-8-sig", newline="") as file:
        lines = csv.reader(file)
        header = [name.strip() for name in next(lines, [])]
        for name in COLUMNS:
            if header.count(name) > 1:
                raise InputError(f"'{path}' has {header.count(name)} columns '{name}'; keep one")
        for line in filter(None, lines if {"included", "score"} <= {*header} else ()):
            place = f"'{path}', line {lines.line_num}"
            if len(line) > len(header):
                raise InputError(f"{place}: more fields than the header has; give one score a row")
            cells = zip(header, map(str.strip, line), strict=False)
            try:
                rows.append(_Row.model_validate({name: cell for name, cell in cells if cell}))
            except ValidationError as error:
                first = error.errors()[0]
                raise InputError(f"{place}: {first['loc'][0]}: {first['msg']}") from None
    if not rows:
        raise InputError(
            f"'{path}' has no columns 'included' and 'score' with rows; give a CSV with these two"
        )
    return rows
