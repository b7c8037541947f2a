"""The audit of training loops with less noise than they are configured to have, of small models."""

import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from loops import LOOPS, audit
from tables import Table, Value

from fedsim.audits.judgement.claim import Verdict
from fedsim.audits.loop.audit import RECORDS
from fedsim.audits.steps.theory import epsilon

SIZES = (7, 15, 62, 650)
SHARES = (100, 95, 90, 80, 70, 50)
"""Percent of the configured noise."""

REPEATS, RIGHT = 40, 100
"""Audits of each loop with less noise, and of each right one: 400 of these in all."""

TRIALS = 20

KINDS = Verdict.SUPPORTED, Verdict.SUSPECT, Verdict.CONVICTED, Verdict.NOT_JUDGED


def measure(smoke: bool, data_root: Path | None) -> Iterator[Table]:
    """Yield a table for each size of the model: verdicts by the share of the noise."""
    del data_root  # scikit-learn brings the data
    right, repeats = (1, 1) if smoke else (RIGHT, REPEATS)
    for size in SIZES[: 1 if smoke else None]:
        yield Table(
            f"{size} parameters, {repeats} audits of each loop, {right} of the right one",
            (
                "noise ×",
                "true ε",
                "claimed ε",
                *(kind.value for kind in KINDS),
                "noise at least (median)",
                "seen below (median)",
                "minutes",
            ),
            [
                _row(size, share, right if share == SHARES[0] else repeats)
                for share in (SHARES[:3:2] if smoke else SHARES)
            ],
        )


def _row(parameters: int, percent: int, repeats: int) -> tuple[Value, ...]:
    began = time.monotonic()
    loop = LOOPS / f"small_loops.py:parameters_{parameters}_noise_at_{percent}"
    data = "digits" if parameters > 62 else "breast-cancer"
    found = [
        audit(str(loop), RECORDS, TRIALS, 5000 + seed, data=data, target="real")
        for seed in range(repeats)
    ]
    verdicts = [report.verdict for _, report in found]
    first, report = found[0]
    assert report.claim is not None
    measured = [noise for _, each in found if (noise := each.details.noise) is not None]
    true = epsilon(first.observation, first.delta, percent / 100)
    return (
        percent / 100,
        true,
        report.claim.epsilon,
        *(verdicts.count(kind) for kind in KINDS),
        float(np.median([each.at_least for each in measured])),
        float(np.median([each.seen_below for each in measured])),
        round((time.monotonic() - began) / 60, 1),
    )
