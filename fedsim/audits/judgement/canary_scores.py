"""The audit of canary scores: what planted canaries prove about the epsilon of one training."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np

import fedsim
from adversaries.arrays import Bools, Floats
from adversaries.bounds import one_run as estimators
from adversaries.bounds.one_run import CanaryEstimate
from adversaries.errors import InputError
from fedsim.audits.judgement.claim import Evidence
from fedsim.audits.judgement.options import AuditOptions
from fedsim.audits.judgement.report import AuditReport, concluded
from fedsim.audits.results.conditions import SCORES
from fedsim.audits.results.measured import Bound
from fedsim.audits.results.numbers import REALS
from fedsim.audits.results.rows import View
from fedsim.learning.data import csv_file
from fedsim.learning.data.columns import number_of

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
        Evidence(unknown=[UNSUPPORTED]),
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


def read_scores(path: Path) -> Scores:
    """Return the scores of a CSV file, whose rows are the canaries of one training."""
    columns, _ = csv_file.read(path)
    if "trial" in columns:
        raise InputError(f"'{path}' has a column 'trial'; give the rows of one training alone")
    if not columns.keys() >= {"included", "score"} or not columns["included"]:
        raise InputError(
            f"'{path}' has no columns 'included' and 'score' with rows; give a CSV with these two"
        )
    # The bounds count each row as a fair coin of its own.
    names, coins = columns.get("canary", ()), np.array(columns["included"])
    if len(set(names)) < len(names):
        raise InputError(f"'{path}' names a canary twice; give one row for each canary")
    scores = np.array([number_of(each) for each in columns["score"]])
    for name, right, wanted in (
        ("included", np.isin(coins, ("0", "1")), "0 or 1"),
        ("score", np.isfinite(scores), "a finite number"),
    ):
        if not right.all():
            row, value = int(right.argmin()), columns[name][int(right.argmin())]
            raise InputError(
                f"'{path}': '{name}' of row {row + 1} is {value[:40]!r}; give {wanted}"
            )
    return coins == "1", scores
