"""Sampled clients: who takes part in a round, who is asked, and what an adversary makes of it."""

import itertools
from html import unescape

import dp_accounting
import numpy as np
import pytest
import torch
from dp_accounting import pld
from recorded import RecordingGrid
from scipy import stats

from adversaries.errors import InputError
from fedsim import server_app
from fedsim.common.randomness import SERVER, gaussian_noise
from fedsim.federation.protocol import messages
from fedsim.federation.runs.run_directory import RunDirectory
from fedsim.federation.server.plan import preflight
from fedsim.game import federation, local_training
from fedsim.game.known_round import KnownRound, coins_of
from fedsim.game.local_training import challenge_contributions
from fedsim.game.mechanisms import privacy
from fedsim.game.round_game import RoundGame
from fedsim.privacy.accounting import accountant
from fedsim.privacy.participation import sampling

RATE = 0.4

SAMPLED = {
    "federation.clients": 6,
    "federation.sampling-rate": RATE,
    "privacy.unit": "client",
    "privacy.neighbouring": "add-remove",
    "privacy.rho-beta": 0.0,
    "privacy.noise-multiplier": 1.5,
    "training.rounds": 3,
    "training.learning-rate": 1.0,
    "training.local-learning-rate": 0.3,
    "training.local-epochs": 2,
    "training.batch-size": 3,
    "challenge.client": 2,
}


def test_all_trials_share_the_coins_of_the_others_and_the_targets_are_their_own():
    rounds = [sampling.clients(3, range(400), round, 50, RATE, 7) for round in range(1, 41)]
    coins = np.stack([each for each in rounds if each is not None])
    others = np.delete(coins, 7, axis=2)
    assert (others == others[:, :1]).all()
    # Of 40 x 49 shared coins and 40 x 400 of the target: within 4 standard deviations.
    for drawn in (others[:, 0], coins[:, :, 7]):
        assert abs(drawn.mean() - RATE) < 4 * np.sqrt(RATE * (1 - RATE) / drawn.size)
    # A trial's coin depends neither on its batch nor on another client's being the target.
    part = sampling.clients(3, range(100, 200), 1, 50, RATE, 7)
    assert part is not None
    np.testing.assert_array_equal(part, coins[0, 100:200])
    other = sampling.clients(3, range(400), 1, 50, RATE, 8)
    assert other is not None
    np.testing.assert_array_equal(np.delete(other, [7, 8], 1), np.delete(coins[0], [7, 8], 1))
    assert sampling.clients(3, range(4), 1, 50, 1.0, 7) is None


def _recorded(config, path):
    grid, directory = RecordingGrid(config), RunDirectory.create(path, config)
    server_app.carry_out(grid, preflight(config), directory)
    facts = directory.read_json("facts.json")
    return grid, directory.read_arrays("transcript.npz"), facts["challenge"]["adversary"]


def test_only_the_sampled_are_asked_and_the_posterior_is_that_of_the_densities(small, tmp_path):
    """Round by round, by brute force: who is in the sum, its noise, and both worlds' mixtures."""
    config = small(SAMPLED)
    grid, transcript, adversary = _recorded(config, tmp_path / "run")
    known, trials, worlds = (
        federation.load(config),
        range(8),
        torch.tensor(transcript["worlds"]),
    )
    sent = grid.of_rounds(adversary)
    total = torch.zeros(8, dtype=torch.float64)
    for round, (before, after) in enumerate(itertools.pairwise(sent), start=1):
        game = RoundGame(round, trials, 1.5, 2, None, None)
        coins = coins_of(config, known, game)
        assert coins is not None
        there = set(coins[0].nonzero()[:, 0].tolist()) - {2}
        assert grid.asked[round] == there | {2, adversary}
        theta = torch.tensor(messages.only(before[messages.MODEL]))
        aggregate = torch.tensor(messages.only(after[messages.AGGREGATE])).double()
        rest = local_training.total(KnownRound(config, known, game, theta), there)
        present, absent = challenge_contributions(KnownRound(config, known, game, theta))
        assert not absent.any()
        std = 1.5 * config.training.clipping_norm
        noise = torch.from_numpy(gaussian_noise(0, trials, round, SERVER, theta.shape[1]))
        joined = (coins[:, 2] & worlds)[:, None]
        torch.testing.assert_close(
            aggregate, rest + joined * present + std * noise, rtol=1e-5, atol=2e-5
        )
        # D: of the target's two coins, each with its chance; D': it is never there.
        normal = torch.distributions.Normal(0.0, std)
        without = normal.log_prob(aggregate - rest).sum(1)
        with_it = normal.log_prob(aggregate - rest - present).sum(1)
        mixed = torch.logaddexp(np.log(RATE) + with_it, np.log1p(-RATE) + without)
        total += mixed - without
        np.testing.assert_allclose(
            transcript["log_odds"][:, round - 1], total, rtol=1e-4, atol=1e-4
        )
        # The sum is divided by the public q m, whoever was there.
        model = torch.tensor(messages.only(after[messages.MODEL]))
        stepped = theta.double() - aggregate / (RATE * 6)
        torch.testing.assert_close(model.double(), stepped, rtol=1e-6, atol=1e-6)


def test_the_adversary_the_server_and_the_auditor_agree(small, run):
    participant = run(small(SAMPLED))
    auditor = run(small(SAMPLED | {"audit.mode": "oracle"}))
    np.testing.assert_allclose(auditor["log_odds"], participant["log_odds"], rtol=0, atol=1e-6)
    assert np.abs(participant["log_odds"]).max() > 0.05


def test_beliefs_do_not_depend_on_the_size_of_the_batch(small, run):
    whole, parts = run(small(SAMPLED)), run(small(SAMPLED | {"trials.batch": 3}))
    np.testing.assert_allclose(parts["log_odds"], whole["log_odds"], rtol=1e-5, atol=1e-5)


@pytest.mark.slow
def test_the_mixture_is_calibrated_and_one_that_ignores_the_coin_is_not(small, run):
    """E[exp(Lambda)] is 1 on D' and E[exp(-Lambda)] is 1 on D: of 2000 trials, 4 errors."""
    changes = {"audit.mode": "oracle", "trials.count": 2000, "trials.batch": 2000, "run.seed": 4}
    found = run(small(SAMPLED | changes | {"training.batch-size": 0, "data.records": 12}))
    final, worlds = found["log_odds"][:, -1], found["worlds"]
    for ratio in (np.exp(final[~worlds]), np.exp(-final[worlds])):
        assert abs(ratio.mean() - 1) < 4 * ratio.std() / np.sqrt(len(ratio))
    # As if the target always took part: on D' the same, on D its belief is too low or too high.
    shift = found["sensitivities"] / found["noise_stds"]
    mixed = np.diff(found["log_odds"], axis=1, prepend=0)
    inner = np.log(np.clip((np.exp(mixed) - (1 - RATE)) / RATE, 1e-300, None))
    unmixed = np.exp(-inner.sum(axis=1))[worlds]
    assert unmixed.mean() - 1 > 4 * unmixed.std() / np.sqrt(len(unmixed))
    assert (shift > 0).all()


def test_a_clients_guarantee_is_that_of_sampled_gaussian_steps(small):
    config = small(SAMPLED | {"training.rounds": 30})
    step = dp_accounting.PoissonSampledDpEvent(RATE, dp_accounting.GaussianDpEvent(1.5))
    theirs = pld.PLDAccountant().compose(step, 30).get_epsilon(1e-3)
    ours = accountant("pld").epsilon(privacy.mechanism(config, 1.5), 1e-3)
    # Both are upper bounds, of other grids.
    assert ours == pytest.approx(theirs, rel=2e-3)


@pytest.mark.slow
def test_the_advantage_is_the_total_variation_of_sampled_steps(small, run):
    """A target whose update is always clipped: 6000 trials against the loss distribution."""
    changes = {"audit.mode": "oracle", "trials.count": 6000, "trials.batch": 2000}
    changes |= {"training.clipping-norm": 1e-3, "training.batch-size": 0, "run.seed": 11}
    config = small(SAMPLED | changes | {"data.records": 12, "training.rounds": 10})
    found = run(config)
    assert (found["sensitivities"] > 0.999e-3).all()
    wins = int(((found["log_odds"][:, -1] > 0) == found["worlds"]).sum())
    mechanism = privacy.mechanism(config, 1.5)
    advantage = accountant("pld").delta(mechanism, 0.0)
    # The threshold 0 attains the total variation: a win has probability 1/2 + TV/2.
    assert stats.binomtest(wins, 6000, (1 + advantage) / 2).pvalue > 1e-3


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"privacy.neighbouring": "replace"}, "privacy.neighbouring"),
        ({"federation.tolerated-dropouts": 1}, "federation.tolerated-dropouts"),
        ({"privacy.noise-source": "system"}, "privacy.noise-source"),
    ],
)
def test_what_sampled_clients_do_not_go_with_is_refused(changes, said, small):
    with pytest.raises(InputError, match=said):
        small(SAMPLED | changes)


def test_the_report_says_who_was_asked_and_what_is_secret(small, tmp_path):
    config = small(SAMPLED)
    _recorded(config, tmp_path / "run")
    page = " ".join((tmp_path / "run" / "report.html").read_text(encoding="utf-8").split())
    assert "sampling rate 0.4" in unescape(page)
    assert "it stays secret whether the target took part in a round" in unescape(page)
    assert "measurements are conditional on these coins" in unescape(page)
    assert "its participation is no secret" not in unescape(page)


def test_no_message_names_the_clients_that_joined(small, tmp_path):
    grid, _, adversary = _recorded(small(SAMPLED), tmp_path / "run")
    contents = [content for each in grid.recorded.values() for _, content in each]
    assert messages.AGGREGATE in grid.of_rounds(adversary)[-1]
    assert not any(messages.PARTICIPANTS in content for content in contents)
