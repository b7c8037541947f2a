"""The audit of training loops: what it proves of wrong ones, how often it accuses right ones."""

import time
from collections.abc import Iterator
from pathlib import Path

from tables import Table, Value

from fedsim.audits.judgement.claim import Claim, Verdict
from fedsim.audits.loop import running
from fedsim.audits.loop.audit import LoopReport, MeasuredLoop, judged
from fedsim.audits.loop.audit import measure as measured_loop
from fedsim.audits.loop.running import LoopOrder
from fedsim.privacy.mechanism import Neighbouring

LOOPS = Path(__file__).parents[2] / "tests" / "apps" / "loops"

OPACUS, OWN = "opacus_loops.py", "own_loops.py"

CASES = (
    (f"{OPACUS}:correct", 63, 400),
    (f"{OPACUS}:correct", 64, 400),
    (f"{OPACUS}:weighted", 63, 400),
    (f"{OPACUS}:fixed_batches", 63, 400),
    (f"{OPACUS}:rebuilt", 63, 800),
    (f"{OPACUS}:persistent", 63, 400),
    (f"{OPACUS}:per_layer", 63, 400),
    (f"{OPACUS}:noise_at_50", 63, 4000),
)
"""Function, records and trials of each; all make their own claims."""

HONEST = ((f"{OPACUS}:correct", 63, 40), (f"{OWN}:correct", 63, 200))
RIGHT = 400
"""Audits of each right loop: of so many records, with so many trials each."""

OWN_CLAIM = Claim(0.9285, 1e-5, "given")
"""What is true of the loop by hand: four releases at a noise multiplier of 8."""


def measure(smoke: bool, data_root: Path | None) -> Iterator[Table]:
    """Yield a table of loops, and one of right loops again and again."""
    del data_root  # scikit-learn brings the data
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
        [_row(*case[:2], 20 if smoke else case[2]) for case in CASES[: 1 if smoke else None]],
    )
    columns = ("convicted", "suspect", "supported", "not judged", "ε at least > claim", "minutes")
    yield Table(
        f"Right loops, {2 if smoke else RIGHT} audits each",
        ("loop", "records", "trials", *columns),
        [
            _repeated(loop, records, trials, 2 if smoke else RIGHT)
            for loop, records, trials in HONEST[slice(-1 if smoke else 0, None)]
        ],
    )


def audit(
    loop: str,
    records: int,
    trials: int,
    seed: int = 0,
    claim: Claim | None = None,
    data: str = "digits",
    target: str = "crafted",
) -> tuple[MeasuredLoop, LoopReport]:
    """Return the runs of a loop in this very process, and their report.

    Args:
        loop: "file.py:function".
        records: of D.
        trials: judged runs.
        seed: of everything.
        claim: None for the accountant's last word.
        data: a bundled data set.
        target: "crafted" or "real".
    """
    relation = Neighbouring.ADD_REMOVE
    order = LoopOrder(loop, data, records, target, relation.value, seed)
    with running.opened(order) as trials_of_loop:
        found, claim = measured_loop(trials_of_loop, order, trials, claim, 0.95)
    return found, judged(found, claim)


def _audit(loop: str, records: int, trials: int, seed: int = 0) -> LoopReport:
    own = loop.startswith(OWN)
    # The loop by hand is run on few features, for the sake of time.
    data, claim = ("breast-cancer", OWN_CLAIM) if own else ("digits", None)
    return audit(f"{LOOPS / loop}", records, trials, seed, claim, data)[1]


def _row(loop: str, records: int, trials: int) -> tuple[Value, ...]:
    began = time.monotonic()
    found = _audit(loop, records, trials)
    rules = ", ".join(each.rule for each in found.findings if each.breaks) or "none"
    claimed = None if found.claim is None else found.claim.epsilon
    numbers = claimed, found.epsilon, _at_least(found), found.proven_epsilon
    minutes = round((time.monotonic() - began) / 60, 1)
    return loop, records, trials, *numbers, found.verdict.value, rules, minutes


def _repeated(loop: str, records: int, trials: int, repeats: int) -> tuple[Value, ...]:
    began = time.monotonic()
    found = [_audit(loop, records, trials, 1000 + seed) for seed in range(repeats)]
    verdicts = [each.verdict for each in found]
    kinds = Verdict.CONVICTED, Verdict.SUSPECT, Verdict.SUPPORTED, Verdict.NOT_JUDGED
    counts = [f"{verdicts.count(each)} of {repeats}" for each in kinds]
    above = sum(each.claim is not None and _at_least(each) > each.claim.epsilon for each in found)
    return loop, records, trials, *counts, above, round((time.monotonic() - began) / 60, 1)


def _at_least(found: LoopReport) -> float:
    attack = found.row.attack
    return 0.0 if attack is None else attack.epsilon_at_least or 0.0
