"""The audit convicts every broken DP-SGD, says why, and accuses no correct one."""

from unittest.mock import patch

import pytest
from variants import CORRECT, MUTANTS, Variant, noise_of, play

from fedsim.privacy.participation import sampling
from fedsim.privacy.participation.sampling import participation
from tests.findings import raised

TRIALS, ROUNDS = 32, 8

ALARMS = {
    "no noise": "residual_noise",
    "half the noise": "residual_noise",
    "uniform noise of the right variance": "residual_shape",
    "Laplace noise of the right variance": "residual_shape",
    "noise once per epoch": "residual_noise",
    "an epoch's noise in one round": "residual_noise",
    "clipping after averaging": "residual_scale",
    "mean in place of sum, in the noise alone": "residual_noise",
    "mean in place of sum, noise and all": "residual_scale",
    "weighted mean after clipping": "residual_scale",
    "shuffled instead of Poisson": "sampling",
    "rare records drawn more often": "sampling",
    "divisor of the data at hand": "residual_noise",
    "reused seed": "residual_repeats",
    "one layer left unclipped": "residual_scale",
    "epsilon reset every round": "composition",
}
"""By mutant: the alarm that it must raise."""


FULL_BATCHES = 12
"""Ways that a report on full batches has to raise an alarm by chance: advantage, delta', three
lower bounds, residuals' four tests, the fit of the log-odds in two worlds, the trade-off curve."""

CHANCES = {
    # Sensitivities vary: no bound by normal log-odds.
    "replace": 11,
    # The same, and two vantages.
    "client level, all vantages": 15,
    # A bound by the trade-off curve in place of mu and of normal log-odds; the sizes of batches.
    "Poisson sampling": 12,
    "Poisson sampling, replace, local trust, Adam": 12,
}
"""The others' number."""

ORACLE = {
    "audit.mode": "oracle",
    "training.sampling-rate": 0.1,
    "training.clipping-norm": 1.0,
    "privacy.rho-beta": 0.99,
}


def joined_more_often():
    """Let records take part half as often again as is accounted for."""
    return patch.object(
        sampling,
        "participation",
        lambda *stream: participation(*stream[:-1], 1.5 * stream[-1]),
    )


HALF = [
    pytest.param(variant, marks=pytest.mark.slow if index % 2 else ())
    for index, variant in enumerate(CORRECT)
]
"""Half of the correct variants by default; the others are slow tests."""


REPEATED = {
    "Laplace noise of the right variance",
    "an epoch's noise in one round",
    "mean in place of sum, in the noise alone",
    "weighted mean after clipping",
    "rare records drawn more often",
    "one layer left unclipped",
}
"""Mutants whose alarm another one raises too: slow tests."""


@pytest.mark.parametrize(
    "mutant",
    [
        pytest.param(mutant, marks=pytest.mark.slow if mutant.name in REPEATED else ())
        for mutant in MUTANTS
    ],
    ids=lambda mutant: mutant.name,
)
def test_a_mutant_is_convicted_by_its_alarm(mutant, tmp_path):
    report = play(mutant, tmp_path / "run", TRIALS, ROUNDS).report
    alarm = ALARMS[mutant.name]
    assert alarm in raised(report)
    # The attack itself proves it too, and not only the steps that the transcript names.
    proven = raised(report).keys() & report["details"]["empirical"]["lower_bounds"].keys()
    assert proven or alarm != "composition"


@pytest.mark.parametrize("variant", HALF, ids=lambda variant: variant.name)
def test_a_correct_variant_is_not_accused(variant, tmp_path):
    report = play(variant, tmp_path / "run", TRIALS, ROUNDS).report
    assert report["alarms"] == 0
    assert report["details"]["chance_alarms"] == CHANCES.get(variant.name, FULL_BATCHES)
    assert report["details"]["residuals"]["noise"]["degrees_of_freedom"] > TRIALS * ROUNDS


def test_a_record_that_moves_the_sums_little_is_not_surer_than_it_may_be(tmp_path):
    """Epsilon is 0 at so large a delta: half of the trials pass it, though by next to nothing."""
    milder = Variant(
        "far below the clipping norm",
        {
            "data.held-out": 60,
            "model.name": "linear",
            "training.sampling-rate": 0.02,
            "training.clipping-norm": 50.0,
            "privacy.rho-beta": 0.0,
            "privacy.noise-multiplier": 0.3,
            "privacy.delta": 0.05,
        },
    )
    report = play(milder, tmp_path / "run", trials=200, rounds=2).report
    assert (
        report["rows"]["participant"]["attack"]["delta_prime"]
        > 3 * report["details"]["bounds"]["tail_probability"]
    )
    assert report["rows"]["participant"]["limit"]["exceeded"] == 1.0
    assert report["alarms"] == 0


@pytest.mark.slow
def test_records_that_join_more_often_than_claimed_are_noticed_where_norms_vary(tmp_path):
    """An oracle audit has the log-odds alone; some gradients are below the clipping norm."""
    more = Variant("q", ORACLE, joined_more_often)
    report = play(more, tmp_path / "more", trials=1000, rounds=10).report
    assert not report["details"]["prediction"]["deterministic"]
    assert "do not follow sampled steps" in raised(report)["world_d"]
    honest = Variant("q", ORACLE)
    assert play(honest, tmp_path / "honest", trials=1000, rounds=10).report["alarms"] == 0


@pytest.mark.slow
@pytest.mark.parametrize(
    ("changes", "trials", "least"),
    [({}, 40, 0.9), ({"audit.mode": "oracle"}, 200, 0.3)],
    ids=["participant", "oracle"],
)
def test_noise_that_falls_as_short_as_an_honest_audit_would_have_noticed_is_convicted(
    changes, trials, least, tmp_path
):
    """With 95 %: fewer than six of eight are an accident of one in two hundred."""

    def played(share, seed):
        scaled = Variant("less noise", changes, lambda: noise_of(share))
        return play(scaled, tmp_path / f"{share}-{seed}", trials, rounds=6, seed=seed).report

    honest = played(1.0, 0)
    (share,) = (
        one["detects"] for one in honest["rows"].values() if one["observer"] == honest["vantage"]
    )
    assert least < share < 1
    assert not honest["alarms"]
    assert sum(bool(played(share, seed)["alarms"]) for seed in range(1, 9)) >= 6


def test_there_are_fifteen_that_leak_one_that_does_not_and_ten_correct_ones():
    assert (sum(mutant.leaks for mutant in MUTANTS), len(MUTANTS), len(CORRECT)) == (15, 16, 10)
    assert [mutant.name for mutant in MUTANTS] == list(ALARMS)
    assert not any(mutant.correct for mutant in MUTANTS)
    assert all(variant.correct for variant in CORRECT)
