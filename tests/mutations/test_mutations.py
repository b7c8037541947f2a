"""The audit convicts every broken DP-SGD, says why, and accuses no correct one."""

from pathlib import Path

import pytest
from variants import CORRECT, MUTANTS, Variant, play

TRIALS, ROUNDS = 24, 8

CAUSES = {
    "no noise": ("residual_noise", "no noise was added at all"),
    "half the noise": ("residual_noise", "less noise was added than is accounted for"),
    "noise once per epoch": ("residual_noise", "no noise was added in round 2, 3, 4"),
    "clipping after averaging": ("residual_scale", "not clipped one by one"),
    "mean in place of sum": ("residual_scale", "a mean was sent in place of a sum"),
    "weighted mean after clipping": ("residual_scale", "gradients were weighted"),
    "shuffled instead of Poisson": ("sampling", "Shuffled batches of a fixed size"),
    "reused seed": ("residual_repeats", "rounds share their noise"),
    "one layer left unclipped": ("residual_scale", "not clipped one by one over all parameters"),
    "epsilon reset every round": ("composition", "Rounds were not all composed"),
}
"""By mutant: the alarm that it must raise, and what that must say."""


HALF = [
    pytest.param(variant, marks=pytest.mark.slow if index % 2 else ())
    for index, variant in enumerate(CORRECT)
]
"""Half of the correct variants by default; the others are slow tests."""


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_a_mutant_is_convicted_and_its_fault_is_named(mutant: Variant, tmp_path: Path) -> None:
    report = play(mutant, tmp_path / "run", TRIALS, ROUNDS).report
    alarm, cause = CAUSES[mutant.name]
    assert cause in report["alarms"].get(alarm, "")
    assert report["alarms"][alarm] in report["warnings"]


@pytest.mark.parametrize("variant", HALF, ids=lambda variant: variant.name)
def test_a_correct_variant_is_not_accused(variant: Variant, tmp_path: Path) -> None:
    report = play(variant, tmp_path / "run", TRIALS, ROUNDS).report
    assert report["alarms"] == {}
    assert report["residuals"]["noise"]["degrees_of_freedom"] > TRIALS * ROUNDS


def test_composed_rounds_are_above_the_bound_of_one_of_them(tmp_path: Path) -> None:
    """The attack itself proves it, and not only the steps that the transcript names."""
    report = play(MUTANTS[-1], tmp_path / "run", TRIALS, ROUNDS).report
    assert report["alarms"].keys() & report["empirical"]["lower_bounds"].keys()


def test_there_are_ten_of_each_and_the_correct_ones_differ_in_what_matters() -> None:
    assert len(MUTANTS) == len(CORRECT) == len(CAUSES) == 10
    assert not any(mutant.correct for mutant in MUTANTS)
    assert all(variant.correct for variant in CORRECT)
