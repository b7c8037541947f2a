"""The audit of training loops: what it proves of wrong ones, how often it accuses right ones."""

import time
from collections.abc import Iterator
from pathlib import Path

from tables import Table, Value

from fedsim.app_audit.configuration import Claim, Scope
from fedsim.audits.verdict import Verdict
from fedsim.loop_audit.audit import LoopAudit, audit_loop

LOOPS = Path(__file__).parents[1] / "apps" / "loops"

CASES = (
    ("opacus_loops.py:correct", 63, 400),
    ("opacus_loops.py:correct", 64, 400),
    ("opacus_loops.py:weighted", 63, 400),
    ("opacus_loops.py:fixed_batches", 63, 400),
    ("opacus_loops.py:rebuilt", 63, 400),
    ("opacus_loops.py:persistent", 63, 400),
    ("opacus_loops.py:per_layer", 63, 400),
)
"""Function, records and trials of each; all make their own claims."""

HONEST = (("opacus_loops.py:correct", 63), ("own_loops.py:correct", 63))
REPEATS, FEW = 60, 40
"""Audits of each right loop, and trials of each."""

OWN_CLAIM = Claim(1.0, 1e-5, Scope.RUN, "given")
"""True of the loop by hand: four releases at a noise multiplier of 8 are private at 0.93."""


def measure(smoke: bool, data_root: Path | None) -> Iterator[Table]:
    """Yield a table of loops, and one of right loops again and again."""
    del data_root  # scikit-learn brings the data
    cases = CASES[: 1 if smoke else None]
    yield Table(
        "Opacus as it is installed",
        (
            "loop",
            "records",
            "trials",
            "claimed ε",
            "ε by theory",
            "ε at least (95 %)",
            "to convict (99.99 %)",
            "verdict",
            "rules",
            "minutes",
        ),
        [_row(*case[:2], 20 if smoke else case[2]) for case in cases],
    )
    repeats = 1 if smoke else REPEATS
    yield Table(
        f"Right loops, {repeats} seeds each, {FEW} trials",
        ("loop", "records", "convicted", "suspect", "supported", "not judged", "minutes"),
        [
            _repeated(loop, records, repeats)
            for loop, records in HONEST[slice(-1 if smoke else 0, None)]
        ],
    )


def _audit(loop: str, records: int, trials: int, seed: int = 0) -> LoopAudit:
    claim = OWN_CLAIM if loop.startswith("own") else None
    return audit_loop(f"{LOOPS / loop}", records=records, trials=trials, claim=claim, seed=seed)


def _row(loop: str, records: int, trials: int) -> tuple[Value, ...]:
    began = time.monotonic()
    found = _audit(loop, records, trials)
    rules = ", ".join(each.rule for each in found.findings if each.breaks) or "none"
    claimed = None if found.claim is None else found.claim.epsilon
    numbers = claimed, found.epsilon, found.lower_bound.epsilon, found.proven.epsilon
    minutes = round((time.monotonic() - began) / 60, 1)
    return loop, records, trials, *numbers, found.verdict.value, rules, minutes


def _repeated(loop: str, records: int, repeats: int) -> tuple[Value, ...]:
    began = time.monotonic()
    verdicts = [_audit(loop, records, FEW, 1000 + seed).verdict for seed in range(repeats)]
    kinds = Verdict.CONVICTED, Verdict.SUSPECT, Verdict.SUPPORTED, Verdict.NOT_JUDGED
    counts = [verdicts.count(each) for each in kinds]
    return loop, records, *counts, round((time.monotonic() - began) / 60, 1)
