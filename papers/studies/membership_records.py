"""How often intervals of membership inference hold the mean over fresh draws of the data.

The attack of a run, Yeom's, asks all trials about the same members and the same others.
"""

import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from tables import Table

from adversaries.attacks.membership import membership_advantage, over_records
from adversaries.statistics.intervals import Interval, clopper_pearson
from adversaries.statistics.trials import Floats
from fedsim.configuration import Scalar
from fedsim.federation.runs.run_directory import RunDirectory

# The runs are those of the correct variants, on other data.
sys.path.append(str(Path(__file__).parents[2] / "tests" / "mutations"))

from variants import Variant, play

RECORDS, TRIALS, ROUNDS, DRAWS = 60, 20, 8, 40

PLAYED: dict[str, Scalar] = {
    "data.records": RECORDS,
    "data.held-out": RECORDS,
    "model.name": "linear",
    "training.learning-rate": 1.5,
    "training.clipping-norm": 1.0,
    "privacy.rho-beta": 0.99,
    "privacy.delta": 0.005,
    "audit.attacks": "none",
}


def measure(smoke: bool, data_root: Path | None) -> Iterator[Table]:
    """Yield in how many draws of the data each interval holds the mean of all draws."""
    del data_root  # scikit-learn brings the data
    draws = [_rates(seed) for seed in range(3 if smoke else DRAWS)]
    points = [float((true - false).mean()) for true, false in draws]
    mean, confidence = float(np.mean(points)), 0.95
    # The challenge is neither a member nor another.
    fresh = [over_records(*rates, RECORDS - 1, RECORDS, confidence) for rates in draws]
    these = [membership_advantage(*rates, confidence).interval for rates in draws]
    yield Table(
        f"Yeom's attack on {len(draws)} draws of {RECORDS} digits and {RECORDS} others, {TRIALS} "
        "trials each",
        ("95 % interval", "holds the mean of all draws", "half its length on average"),
        [_row("for these records", these, mean), _row("over fresh records", fresh, mean)],
        f"Mean {mean:.3f}; standard deviation of the draws {np.std(points, ddof=1):.3f}, 1.96 of "
        f"which are {1.96 * np.std(points, ddof=1):.3f}.",
    )


def _rates(seed: int) -> tuple[Floats, Floats]:
    """Return true and false positive rates [T] on the data of a seed."""
    variant = Variant("membership", PLAYED | {"data.seed": seed})
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "run"
        play(variant, path, TRIALS, ROUNDS, seed=seed)
        seen = RunDirectory(path).read_arrays("transcript.npz")
    return seen["true_positive_rate"], seen["false_positive_rate"]


def _row(name: str, intervals: list[Interval | None], mean: float) -> tuple[str, str, str]:
    found = [interval for interval in intervals if interval]
    held, draws = sum(each.low < mean < each.high for each in found), len(found)
    limits = clopper_pearson(held, draws, 0.95)
    half = np.mean([(each.high - each.low) / 2 for each in found])
    share = f"{held} of {draws} ({100 * limits.low:.0f}–{100 * limits.high:.0f} %)"
    return name, share, f"{half:.3f}"
