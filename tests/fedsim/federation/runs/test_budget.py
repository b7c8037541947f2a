"""A budget is of everything that is released, and is planned before the first round leaves."""

from collections import Counter
from functools import cache

import pytest

from adversaries.errors import InputError
from fedsim.configuration.files import dump
from fedsim.federation.runs import ledger, spending
from fedsim.federation.runs.batches import Batches
from fedsim.federation.runs.ledger import planned_kind
from fedsim.federation.runs.run_directory import RunDirectory
from fedsim.federation.runs.spending import Ahead
from fedsim.game.mechanisms import privacy
from fedsim.privacy.accounting import PLD
from fedsim.privacy.mechanism import Mechanism
from fedsim.privacy.releases import Rounds

Z, DELTA = 3.0, 0.005
NOISE = {"privacy.rho-beta": 0.0, "privacy.noise-multiplier": Z}
SYSTEM = NOISE | {"privacy.noise-source": "system"}
SAMPLED = {"training.sampling-rate": 0.3, "audit.mode": "oracle"}


@cache
def exact(steps, sampling_rate=1.0):
    return PLD.epsilon(Mechanism.alike(Z, steps, sampling_rate), DELTA)


@pytest.mark.parametrize("changes", [{}, SAMPLED], ids=["full batch", "sampled"])
@pytest.mark.parametrize("trainings", [1, 8])
@pytest.mark.parametrize("spent", [0, 5])
@pytest.mark.parametrize("stop_at", [0.6, 1.5, 2.5])
def test_the_affordable_rounds_are_those_of_brute_force(stop_at, spent, trainings, changes, small):
    config = small(NOISE | changes | {"privacy.stop-at": stop_at})
    kind = planned_kind(config.training, config.participation, Z)
    rate = config.training.sampling_rate
    expected = max(n for n in range(31) if n == 0 or exact(n * trainings + spent, rate) <= stop_at)
    course = [kind] * 30
    clients = [(Counter({kind: spent}), course), (Counter[Rounds](), course)]
    assert Ahead(config, trainings, clients).affordable(30) == expected


def test_noise_calibrated_to_the_budget_affords_every_round(small):
    for changes in ({}, {"privacy.accountant": "rdp"}, {"training.sampling-rate": 0.3}):
        keys = {"privacy.rho-beta": 0.0, "privacy.epsilon": 0.5, "privacy.stop-at": 0.5}
        config = small(keys | changes | {"training.rounds": 30})
        assert spending.planned_rounds(Batches(config), privacy.noise_multiplier(config)) == 30


def test_all_batches_of_a_campaign_on_real_people_share_one_budget(small):
    # Eight trials of six rounds are 48 releases; 35 are allowed, so that every batch of trials runs
    # four.
    stop_at = {"training.rounds": 6, "trials.batch": 2, "privacy.stop-at": exact(35)}
    assert spending.planned_rounds(Batches(small(SYSTEM | stop_at)), Z) == 4
    assert spending.planned_rounds(Batches(small(NOISE | stop_at)), Z) == 6


def test_a_campaign_that_cannot_afford_a_round_is_refused_in_one_line(small):
    config = small(SYSTEM | {"privacy.stop-at": exact(7)})
    said = rf"one round of each of the 8 trials to come .* {exact(8):.4g} .*with fewer trials$"
    with pytest.raises(InputError, match=said):
        spending.planned_rounds(Batches(config), Z)
    assert spending.planned_rounds(Batches(small(NOISE | {"privacy.stop-at": exact(7)})), Z) == 3


@pytest.mark.parametrize(("before", "now"), [("seed", "system"), ("system", "seed")])
def test_a_run_is_not_continued_with_noise_of_another_source(small, tmp_path, before, now):
    changes = NOISE | {"federation.trust": "central"}
    config = small(changes | {"privacy.noise-source": before})
    directory = RunDirectory.create(tmp_path / "run", config)
    ledger.Ledger(config, directory).begin(range(8), 3, Z).charge(1, range(3))
    edited = small(changes | {"privacy.noise-source": now})
    directory.write_text("config.toml", dump(edited))
    with pytest.raises(InputError, match=f"is '{now}', but rounds of this run .* '{before}'"):
        spending.planned_rounds(Batches(edited, directory), Z)
    with pytest.raises(InputError, match="do not add up"):
        spending.describe_run(directory)
