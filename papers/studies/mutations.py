"""The mutation suite: which alarms convict broken DP-SGDs, and that ten correct ones pass."""

import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tables import Table, Value

from adversaries.statistics.intervals import ALARM_CONFIDENCE

TESTS = Path(__file__).parents[2] / "tests"
# The variants lie beside the tests that play them at small sizes.
sys.path.append(str(TESTS / "mutations"))

from variants import CORRECT, MUTANTS, Variant, play  # noqa: E402

FEWER = (2, 4, 8, 16, 32, 64, 128)
"""How many of the first trials are judged by themselves, to say what a conviction costs."""


JUDGED = "convicted from trials", "alarms", "smallest p-value"

REPEATS, SMALL = 40, (20, 5)
"""Seeds with which every correct variant is played again, and trials and rounds of each run."""


def measure(smoke: bool, data_root: Path | None) -> Iterator[Table]:
    """Yield a table of the mutants and one of the correct variants."""
    del data_root  # scikit-learn brings the data
    trials, rounds = (8, 3) if smoke else (200, 10)
    chosen = slice(2 if smoke else None)
    size = f"{trials} trials of {rounds} rounds"
    rows = [_row(variant, trials, rounds, seed) for seed, variant in enumerate(MUTANTS[chosen])]
    yield Table(
        f"Broken variants, {size}: {_count(rows)} of {len(rows)} convicted",
        ("variant", "leaks more than claimed?", *JUDGED),
        [
            (name, "yes" if mutant.leaks else "no", *judged)
            for mutant, (name, *judged) in zip(MUTANTS[chosen], rows, strict=True)
        ],
        "Convicted from: the fewest of 2, 4, 8, ... trials whose report has an alarm. P-value: of "
        "the tests of residuals, batches and log-odds; bounds have none.",
    )
    rows = [
        _row(variant, trials, rounds, 100 + seed) for seed, variant in enumerate(CORRECT[chosen])
    ]
    yield Table(
        f"Ten correct variants, {size}: {_count(rows)} of {len(rows)} accused",
        ("variant", *(name.replace("convicted", "accused") for name in JUDGED)),
        rows,
    )
    repeats = 2 if smoke else REPEATS
    rows = [_repeated(variant, repeats) for variant in CORRECT[chosen]]
    runs, chances = repeats * len(rows), repeats * sum(int(str(row[2])) for row in rows)
    yield Table(
        f"Correct variants again, {SMALL[0]} trials of {SMALL[1]} rounds, {repeats} seeds each: "
        f"{sum(int(str(row[1])) for row in rows)} of {runs} reports accuse",
        ("variant", "reports with an alarm", "alarms that chance could raise", "alarms"),
        rows,
        f"At {1 - ALARM_CONFIDENCE:.1g} for each test, {runs} reports have at most "
        f"{chances * (1 - ALARM_CONFIDENCE):.2g} alarms by chance on average.",
    )


def _repeated(variant: Variant, repeats: int) -> tuple[Value, ...]:
    """Return how many runs of a variant were accused, and of what.

    Between the two, how many alarms chance could raise in one of them at most.
    """
    accused: list[str] = []
    reports = chances = 0
    for seed in range(1000, 1000 + repeats):
        with tempfile.TemporaryDirectory() as folder:
            report = play(variant, Path(folder) / "run", *SMALL, seed=seed).report
        alarms, chances = _raised(report), max(chances, report["details"]["chance_alarms"])
        reports += bool(alarms)
        accused += alarms
    return variant.name, reports, chances, ", ".join(sorted(set(accused))) or "none"


def _count(rows: list[tuple[Value, ...]]) -> int:
    return sum(row[1] is not None for row in rows)


def _row(variant: Variant, trials: int, rounds: int, seed: int) -> tuple[Value, ...]:
    # Each variant has a seed of its own, so that one unlucky draw is not in all of them.
    with tempfile.TemporaryDirectory() as folder:
        directory = Path(folder) / "run"
        fewer = [count for count in FEWER if count < trials]
        outcome = play(variant, directory, trials, rounds, fewer, seed)
    alarms = ", ".join(_raised(outcome.report)) or "none"
    return variant.name, outcome.convicting_trials, alarms, f"{_smallest(outcome.report):.2g}"


def _raised(report: dict[str, Any]) -> list[str]:
    return [each["rule"] for each in report["findings"] if each["severity"] == "alarm"]


def _smallest(report: dict[str, Any]) -> float:
    """Return the smallest p-value of all tests in a report, not corrected for their number."""
    residuals, fits = report["details"]["residuals"], report["details"]["prediction"]["fit"]
    found = [test["p_value"] for test in residuals.values() if isinstance(test, dict)]
    found += [fit["p_value"] for fit in fits.values() if fit]
    return min(found)
