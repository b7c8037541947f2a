"""Trainings of many settings in one batch, against runs and against each other."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from adversaries.errors import InputError
from fedsim.game import federation, trainings
from fedsim.game.mechanisms import privacy
from fedsim.game.trainings import Setting


def setting(config):
    return Setting(config, privacy.noise_multiplier(config))


CASES = {
    "full batches": {},
    "sampled records": {"training.sampling-rate": 0.5},
    "adam": {"training.optimizer": "adam", "training.learning-rate": 0.1},
    "whole clients": {"privacy.unit": "client", "training.optimizer": "sgd"},
}


@pytest.mark.parametrize("changes", CASES.values(), ids=CASES)
def test_a_batch_of_one_setting_trains_as_a_run_does(changes, small, run):
    """The central noise is the run's to the bit, so that losses agree up to float32 sums."""
    values = {"audit.evaluated-trials": 1, "trials.count": 1}
    values["audit.attacks"] = "none"
    config = small({**values, **changes, "federation.trust": "central"})
    transcript = run(config)
    loaded = federation.load(config)
    theta = trainings.trained([setting(config)], loaded, 4)
    losses, _ = loaded.evaluate(theta, *loaded.held_out())
    first = losses[:1].mean(1)
    np.testing.assert_allclose(first, transcript["losses"][-1], rtol=1e-4)


def test_settings_of_one_batch_train_as_each_alone(small):
    """Rate, clipping norm and noise are numbers of a trial; a batch changes no other trial."""
    numbers = [(0.5, 0.1), (2.0, 1.0), (8.0, 3.0)]
    configs = [
        small({"training.learning-rate": rate, "training.clipping-norm": norm})
        for rate, norm in numbers
    ]
    settings = [setting(config) for config in configs]
    settings[1] = replace(settings[1], noise_multiplier=0.0)
    together = trainings.trained(settings, federation.load(configs[0]), 2)
    for at, each in enumerate(settings):
        alone = trainings.trained([each], federation.load(each.config), 2)
        torch.testing.assert_close(together[2 * at : 2 * at + 2], alone, rtol=1e-4, atol=1e-5)
    # Without noise, trainings differ only in their first models, which settings share.
    assert not torch.equal(together[0], together[1])


@pytest.mark.parametrize(
    ("changes", "sources"),
    [
        ({"federation.trust": "local"}, 3),
        ({"federation.trust": "distributed"}, 1),
        ({"federation.trust": "local", "training.local-steps": 3}, 9),
    ],
)
def test_clients_noise_adds_up(changes, sources, small):
    """One SGD step of rate r moves by r/n times the sum, whose noise has sources (z C)^2.

    A standard deviation of 400 models of 650 parameters is known to 1 % at 6 sigma; the clients'
    own steps move gradients too, and these are tiny here.
    """
    sgd = {"training.optimizer": "sgd", "training.learning-rate": 1e-3}
    config = small({**changes, **sgd, "training.rounds": 1})
    once, loaded = setting(config), federation.load(config)
    loaded = replace(loaded, start=federation.initial_parameters(config, loaded, range(1))[0])
    spread = trainings.trained([once], loaded, 400).double().var(0).mean().sqrt()
    expected = 1e-3 / config.data.records * once.noise_multiplier * sources**0.5
    assert float(spread) == pytest.approx(expected * config.training.clipping_norm, rel=0.02)


def test_a_part_of_the_records_has_as_much_less_noise(small):
    config = small({"data.records": 400, "training.optimizer": "sgd", "training.rounds": 1})
    once, loaded = setting(config), federation.load(config)
    start = federation.initial_parameters(config, loaded, range(1))[0]
    loaded = replace(loaded, start=start)
    whole, part = (
        trainings.trained([once], loaded, 200, records).var(0).mean().sqrt()
        for records in (None, 100)
    )
    # The noise in a step is std/n for n records, and (m/n) std/m for a part of m.
    assert float(part / whole) == pytest.approx(1.0, rel=0.1)


def test_public_records_stand_in_and_others_judge(small):
    config = small({"data.held-out": 90})
    loaded = federation.load(config)
    public = trainings.on_public_records(loaded, 3, seed=0)
    trained, judging = set(public.split.members), set(public.split.held_out)
    assert (len(trained), len(judging), len(public.client_of)) == (60, 30, 60)
    assert trained | judging == set(loaded.split.held_out)
    few = federation.load(small({"data.held-out": 30}))
    with pytest.raises(InputError, match="30 public records stand in"):
        trainings.on_public_records(few, 3, seed=0)


def test_other_numbers_are_other_trainings_and_local_steps_share_their_numbers(small):
    config = small({"training.sampling-rate": 0.5})
    loaded = federation.load(config)
    first, later = (trainings.trained([setting(config)], loaded, 2, start=at) for at in (0, 2))
    assert not torch.equal(first[0], later[0])
    local = {"federation.trust": "local", "training.local-steps": 2}
    two = [setting(small({**local, "training.clipping-norm": norm})) for norm in (0.1, 1.0)]
    with pytest.raises(ValueError, match="one learning rate and one clipping norm"):
        trainings.trained(two, loaded, 1)
