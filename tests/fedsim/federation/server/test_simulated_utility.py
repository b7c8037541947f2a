"""How well the models serve single clients, against counting by hand."""

import numpy as np
import pytest
import torch

from fedsim.federation.server import simulated_utility
from fedsim.game import federation, local_training
from fedsim.game.known_round import KnownRound
from fedsim.game.round_game import RoundGame

CLIENT = {
    "privacy.unit": "client",
    "privacy.rho-beta": 0.0,
    "privacy.noise-multiplier": 1.0,
    "training.local-learning-rate": 0.5,
    "training.clipping-norm": 100.0,
    "federation.partition": "dirichlet",
    "federation.clients": 4,
    "data.records": 80,
}


def test_accuracies_are_counted_client_by_client(small):
    config = small(CLIENT)
    known = federation.load(config.experiment)
    theta = federation.initial_parameters(config.game, known, range(1))
    found = simulated_utility.measure(config.game, known, theta, 3)
    held_out, game = known.held_out(), RoundGame(4, range(1), 1.0, 0, None, None)
    for client in range(4):
        mine = known.members(known.owned_by(client))
        right = float(known.evaluate(theta, *mine)[1].double().mean())
        assert found["client_accuracies"][0, client] == pytest.approx(right)
        # Far below the clipping norm, so that what it sends is how far it came.
        sent = local_training.contribution(KnownRound(config.game, known, game, theta), client)
        assert float(sent.norm()) < 50
        _, correct = known.evaluate((theta.double() - sent).float(), *held_out)
        own = found["own_model_accuracies"][0, client]
        assert own == pytest.approx(float(correct.double().mean()))
    everybody = known.members(np.arange(80))
    weighted = (found["client_accuracies"] * found["client_weights"]).sum()
    assert weighted == pytest.approx(float(known.evaluate(theta, *everybody)[1].double().mean()))


def test_a_hundred_clients_and_ten_rounds_are_looked_at():
    assert simulated_utility.clients(3) == [0, 1, 2]
    chosen = simulated_utility.clients(10_000)
    assert (len(chosen), chosen[0], chosen[-1]) == (100, 0, 9999)
    assert simulated_utility.rounds(3) == [0, 1, 2, 3]
    assert simulated_utility.rounds(100) == list(range(0, 101, 10))


def test_a_transcript_has_them_of_its_first_trial_whatever_the_batches(small, run):
    whole, parts = run(small(CLIENT)), run(small(CLIENT | {"trials.batch": 3}))
    names = ("client_points", "client_accuracies", "own_model_accuracies", "client_weights")
    for name in names:
        np.testing.assert_allclose(parts[name], whole[name], atol=0.03)
    assert whole["client_points"].tolist() == [0, 1, 2, 3]
    assert whole["client_accuracies"].shape == whole["own_model_accuracies"].shape == (4, 4)
    by_record = run(small())
    assert "own_model_accuracies" not in by_record
    assert torch.tensor(by_record["client_weights"]).sum(1).tolist() == pytest.approx([1.0] * 4)
