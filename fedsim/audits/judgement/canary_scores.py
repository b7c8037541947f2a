"""The audit of canary scores: what planted canaries prove about the epsilon of one training."""

import csv
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import BaseModel, FiniteFloat, ValidationError

import fedsim
from adversaries.arrays import Bools, Floats
from adversaries.bounds import one_run as estimators
from adversaries.bounds.one_run import CanaryEstimate
from adversaries.errors import InputError
from fedsim.audits.judgement.claim import Claim, Evidence
from fedsim.audits.judgement.options import AuditOptions
from fedsim.audits.judgement.report import AuditReport, concluded
from fedsim.audits.results.conditions import SCORES
from fedsim.audits.results.measured import Bound
from fedsim.audits.results.numbers import REALS
from fedsim.audits.results.rows import Row, View
from fedsim.common import reading

COLUMNS = ("included", "score")
CANARY = "canary"
"""Column of the canaries' names, which a file may have."""

UNSUPPORTED = (
    "scores of canaries may disprove a claim, but cannot support it: they do not show the noise"
)
Scores = tuple[Bools, Floats]
"""Which canaries were in the training, by a fair coin each, and their scores."""


@dataclass(frozen=True, kw_only=True)
class ScoresDetails:
    """What the audit of canary scores alone has."""

    count: int
    included: int
    bounds: Mapping[str, Bound]
    """Lower bounds on epsilon, each by itself at the confidence; the largest proves less."""
    estimate: Annotated[CanaryEstimate, REALS]
    """Estimate from the canaries; it proves nothing."""


ScoresReport = AuditReport[ScoresDetails]


def audit(scores: Scores, name: str, options: AuditOptions) -> ScoresReport:
    """Return what scores prove about epsilon. Raises InputError for values that allow no bound."""
    included, values = scores
    delta, guesses = options.stated_at, options.guesses or 0

    def bounds(confidence: float) -> Mapping[str, Any]:
        return estimators.bounds(included, values, delta, confidence, guesses)

    def evidence(claim: Claim, row: Row) -> Evidence:
        return Evidence(unknown=[UNSUPPORTED])

    view = View(
        observer="auditor",
        trials=1,
        # The other bound assumes a Gaussian mechanism, which scores do not show.
        bounds=lambda confidence: {"binomial": bounds(confidence)["binomial"].epsilon},
        detects=None,
        note="scores of canaries set no limit",
    )
    stated = included, values, delta, options.level
    return concluded(
        [view],
        evidence,
        kind=SCORES,
        name=name,
        unit="record",
        claim=options.claim,
        findings=[],
        delta=delta,
        confidence=options.level,
        details=ScoresDetails(
            count=values.size,
            included=int(included.sum()),
            bounds=bounds(options.level),
            estimate=estimators.client_canary_estimate(*stated),
        ),
        versions={"fedsim": fedsim.__version__},
    )


def of_arrays(scores: Any) -> Scores:
    """Return scores of the arrays (included [m], scores [m]) of one training."""
    coins, values = (np.asarray(each) for each in scores)
    if not np.isin(coins, (0, 1)).all():
        raise InputError(
            "the first array holds other values than true and false; give the arrays as "
            "(included, scores)"
        )
    return coins.astype(np.bool_), values.astype(np.float64)


class _Row(BaseModel):
    """A canary's row in a file of scores."""

    included: Literal["0", "1"]
    score: FiniteFloat


def read_scores(path: Path) -> Scores:
    """Return the scores of a CSV file, whose rows are the canaries of one training."""
    try:
        rows = _rows(path)
    except InputError:
        raise
    except (csv.Error, *reading.DAMAGE) as error:
        why = reading.reason(error)
        raise InputError(f"cannot read scores from '{path}': {why}; give a CSV") from None
    coins = np.array([row.included == "1" for row in rows])
    return coins, np.array([row.score for row in rows])


def _rows(path: Path) -> list[_Row]:
    rows, names = [], set()
    # Spreadsheets start their files with a byte order mark.
    with path.open(encoding="utf-8-sig", newline="") as file:
        lines = csv.reader(file)
        header = [name.strip() for name in next(lines, [])]
        if "trial" in header:
            raise InputError(f"'{path}' has a column 'trial'; give the rows of one training alone")
        for name in (*COLUMNS, CANARY):
            if header.count(name) > 1:
                raise InputError(f"'{path}' has {header.count(name)} columns '{name}'; keep one")
        for line in filter(None, lines if {*COLUMNS} <= {*header} else ()):
            place = f"'{path}', line {lines.line_num}"
            if len(line) > len(header):
                raise InputError(f"{place}: more fields than the header has; give one score a row")
            cells = dict(zip(header, map(str.strip, line), strict=False))
            # The bounds count each row as a fair coin of its own.
            if CANARY in header and (canary := cells.get(CANARY, "")) in names:
                raise InputError(f"{place}: canary '{canary}' again; give one row for each canary")
            names.add(cells.get(CANARY, ""))
            try:
                rows.append(_Row.model_validate({name: one for name, one in cells.items() if one}))
            except ValidationError as error:
                first = error.errors()[0]
                raise InputError(f"{place}: {first['loc'][0]}: {first['msg']}") from None
    if not rows:
        raise InputError(
            f"'{path}' has no columns 'included' and 'score' with rows; give a CSV with these two"
        )
    return rows
