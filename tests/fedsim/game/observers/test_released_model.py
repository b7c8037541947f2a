"""What theta_k alone tells: everything after one round, and a linearised score after several."""

from dataclasses import dataclass

import numpy as np
import pytest
import torch
from scipy.special import ndtr
from torch import Tensor

from adversaries.attacks.posterior import hypotheses, log_likelihood_ratio
from adversaries.errors import InputError
from adversaries.statistics import estimators
from fedsim.federation.server import plan
from fedsim.game import federation
from fedsim.game.observers import released_model
from fedsim.game.observers.released_model import attack, responses, shares, why_not
from fedsim.game.pair import challenge_gradients
from fedsim.game.round_game import RoundGame
from fedsim.learning.training import models
from fedsim.learning.training.optimizers import ServerOptimizer
from fedsim.learning.training.schedules import factor
from fedsim.privacy.mechanism import aggregate_noise_multiplier

RECORD, NOISE = 5, 2.0


@dataclass(frozen=True)
class Training:
    """A training by hand: theta_k, the world bits, and the score of somebody who saw the way."""

    released: Tensor
    worlds: Tensor
    informed: Tensor
    ratio_of_last_round: Tensor


def _train(config, trials, seed=0):
    generator = torch.Generator().manual_seed(seed)
    known, rounds = federation.load(config), config.training.rounds
    rest = np.delete(np.arange(config.data.records), RECORD)
    worlds = torch.arange(trials) % 2 == 0
    clients = config.federation.clients
    sigma = aggregate_noise_multiplier(NOISE, config.federation.trust, clients, clients)
    std = torch.full((trials,), sigma, dtype=torch.float64)
    theta = models.initial_parameters(
        lambda: federation.build_model(config, known.split.dataset),
        config.run.seed,
        range(trials),
    )
    optimizer = ServerOptimizer(config.training, config.data.records)
    weights = responses(config.training, config.participation, rounds)[-1]
    surprise = torch.zeros(theta.shape, dtype=torch.float64)
    direction = surprise.clone()
    for round, weight in enumerate(weights, start=1):
        common = known.clipped_sum(theta, rest)
        present, _ = challenge_gradients(known, theta, RECORD, None)
        noise = sigma * torch.randn(theta.shape, generator=generator, dtype=torch.float64)
        total = common + worlds[:, None] * present + noise
        ratio = log_likelihood_ratio(hypotheses(common, present, None, std), total)
        surprise += weight * (total - common - present / 2)
        direction += weight * present
        theta = optimizer.step(theta, total.float(), round)
    informed = (surprise * direction).sum(1) / (np.square(weights).sum() * sigma**2)
    return Training(theta, worlds, informed, ratio)


def _score(config, training, bridged=True):
    known, trials = federation.load(config), range(len(training.worlds))
    rounds = config.training.rounds
    game = RoundGame(rounds, trials, NOISE, int(known.client_of[RECORD]), RECORD, None)
    found = attack(config, known, game, training.released, bridged=bridged)
    assert not found["ratios"][:, :-1].any()
    return found["ratios"][:, -1]


def test_the_response_of_plain_sgd_is_the_learning_rate_over_n(small):
    config = small({"training.learning-rate": 0.6, "training.rounds": 4})
    answers = responses(config.training, config.participation, 4)
    np.testing.assert_allclose(answers, np.tril(np.full((4, 4), 0.6 / 24)), rtol=1e-6)
    np.testing.assert_allclose(shares(answers), [1 / 4, 2 / 4, 3 / 4, 1], rtol=1e-6)


def test_momentum_and_schedule_are_in_the_response(small):
    config = small(
        {"training.momentum": 0.5, "training.schedule": "cosine", "training.rounds": 3}
        | {"training.learning-rate": 0.6}
    )
    rates = [0.6 / 24 * factor(config.training, round) for round in (1, 2, 3)]
    # The momentum buffer after round i is sum_j .5^(i - j) r_j.
    first = [rates[0], rates[0] + 0.5 * rates[1], rates[0] + 0.5 * rates[1] + 0.25 * rates[2]]
    expected = [
        [first[0], 0, 0],
        [first[1], rates[1], 0],
        [first[2], rates[1] + 0.5 * rates[2], rates[2]],
    ]
    np.testing.assert_allclose(
        responses(config.training, config.participation, 3), expected, rtol=1e-6
    )


@pytest.mark.parametrize("trust", ["central", "local"])
def test_after_one_round_it_is_the_posterior_under_everybodys_noise(trust, small):
    config = small({"training.rounds": 1, "federation.trust": trust})
    training = _train(config, 16)
    expected = training.ratio_of_last_round.numpy()
    np.testing.assert_allclose(_score(config, training), expected, rtol=1e-4, atol=1e-4)
    assert np.abs(expected).max() > 0.1


def test_the_bridge_comes_closer_than_the_replay_to_who_saw_the_way(small):
    config = small({"training.rounds": 8, "training.learning-rate": 1.0})
    training = _train(config, 40)
    informed = training.informed.numpy()
    errors = [
        np.square(_score(config, training, bridged) - informed).mean() for bridged in (True, False)
    ]
    assert errors[0] < 0.8 * errors[1]
    assert errors[0] < 0.25 * informed.var()


@pytest.mark.slow
def test_it_finds_most_of_what_a_participant_finds_and_no_more(small):
    config = small({"training.rounds": 6, "training.learning-rate": 0.2})
    training = _train(config, 600)
    found = estimators.advantage(training.worlds.numpy(), _score(config, training), 0.999)
    mu = np.sqrt(6) / NOISE
    bound = 2 * ndtr(mu / 2) - 1
    assert found.interval.low <= bound
    assert found.interval.low > 0.5 * bound - 0.1 > 0


@pytest.mark.slow
def test_it_finds_nothing_where_there_is_nothing(small):
    """Of bits that the training knew nothing of, it is right as often as a coin."""
    config = small({"training.rounds": 3, "training.learning-rate": 0.2})
    training = _train(config, 400)
    coin = np.random.default_rng(1).permutation(training.worlds.numpy())
    found = estimators.advantage(coin, _score(config, training), 0.999)
    assert found.interval.low <= 0 <= found.interval.high


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"training.optimizer": "adam"}, "not a linear function"),
        ({"federation.clients": 4, "federation.tolerated-dropouts": 1}, "took part in which round"),
        ({"training.local-steps": 2, "federation.trust": "local"}, "clients take local steps"),
        (
            {"training.sampling-rate": 0.5, "privacy.noise-source": "system"}
            | {"audit.mode": "oracle"},
            "only the clients know",
        ),
    ],
)
def test_what_is_not_attacked_is_refused_as_the_configured_vantage(changes, reason, small):
    assert why_not(small()) is None
    everywhere = small(changes | {"audit.vantages": "all"})
    assert reason in (why_not(everywhere) or "")
    plan.check_possible(everywhere)
    with pytest.raises(InputError, match=reason) as refused:
        released_model.check_attackable(small(changes | {"federation.vantage": "released-model"}))
    assert "\n" not in str(refused.value)
