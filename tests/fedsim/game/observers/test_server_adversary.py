"""The curious server concludes from messages what the densities of everything unknown say."""

import numpy as np
import pytest
import torch
from scipy import stats

from fedsim.game import federation
from fedsim.game.known_round import KnownRound
from fedsim.game.observers.at_server import conclude
from fedsim.game.pair import challenge_gradients
from fedsim.game.round_game import RoundGame
from fedsim.learning.training import models
from fedsim.privacy.mechanism import effective_noise_multiplier
from fedsim.privacy.trust import Trust, Vantage

RECORD, NOISE, TRIALS = 5, 1.5, 6


def _concluded(config, noise, theta, message):
    """Return what the server concludes in a first round, from one message or from all."""
    known, clients = federation.load(config), range(config.federation.clients)
    target_client = int(known.client_of[RECORD])
    game = RoundGame(1, range(TRIALS), noise, target_client, RECORD, None)
    return conclude(
        KnownRound(config, known, game, theta, None),
        clients if config.federation.trust is Trust.DISTRIBUTED else [target_client],
        torch.full((TRIALS,), noise, dtype=torch.float64),
        message,
    )


@pytest.mark.parametrize("trust", [Trust.LOCAL, Trust.DISTRIBUTED])
def test_the_ratio_is_that_of_the_densities(trust, small):
    config = small({"federation.trust": trust.value})
    known = federation.load(config)
    theta = models.initial_parameters(
        lambda: federation.build_model(config, known.split.dataset), 0, range(TRIALS)
    )
    inside = known.client_of == known.client_of[RECORD]
    if trust is Trust.DISTRIBUTED:
        inside[:] = True
    with_record = known.clipped_sum(theta, np.flatnonzero(inside))
    inside[RECORD] = False
    without = known.clipped_sum(theta, np.flatnonzero(inside))
    std = effective_noise_multiplier(NOISE, trust, Vantage.SERVER, config.federation.clients)
    noise = torch.randn(
        theta.shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64
    )
    message = with_record + std * noise
    step = _concluded(config, std, theta, message)
    expected = [
        (stats.norm.logpdf(seen, present, std) - stats.norm.logpdf(seen, absent, std)).sum()
        for seen, present, absent in zip(
            message.numpy(), with_record.numpy(), without.numpy(), strict=True
        )
    ]
    np.testing.assert_allclose(step.ratios.numpy(), expected, rtol=1e-6, atol=1e-6)
    assert step.noise_stds.tolist() == [pytest.approx(NOISE)] * TRIALS


def test_a_clean_sum_betrays_the_world_but_not_a_difference_below_rounding(small):
    config = small()
    known = federation.load(config)
    theta = models.initial_parameters(
        lambda: federation.build_model(config, known.split.dataset), 0, range(TRIALS)
    )
    held = np.flatnonzero(known.client_of == known.client_of[RECORD])
    total = known.clipped_sum(theta, held)
    present, _ = challenge_gradients(known, theta, RECORD, None)
    for sent, sign in ((total, 1), (total - present, -1)):
        step = _concluded(config, 0.0, theta, sent.float())
        assert step.ratios.tolist() == [sign * np.inf] * TRIALS
    huge = torch.full_like(total, 1e7)
    step = _concluded(config, 0.0, theta, huge)
    assert step.ratios.tolist() == [0.0] * TRIALS
