"""A participant that is itself sampled, against one that follows every round."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr.app import Message, RecordDict
from scipy import stats

from adversaries.errors import InputError
from fedsim import client_app, server_app
from fedsim.config import Config, to_run_config
from fedsim.federation.protocol import messages
from fedsim.federation.runs.run_directory import Arrays, RunDirectory
from fedsim.federation.runtimes.inprocess import InProcessGrid
from fedsim.federation.server.plan import preflight
from fedsim.privacy.accounting import PLD
from fedsim.privacy.mechanism import Mechanism
from fedsim.privacy.participation import sampling

Make = Callable[..., Config]
Run = Callable[[Config], Arrays]

RATE, ROUNDS = 0.5, 12
EVERY = {
    "privacy.unit": "client",
    "privacy.rho-beta": 0.0,
    "privacy.neighbouring": "add-remove",
    "privacy.noise-multiplier": 1.0,
    "federation.clients": 6,
    "federation.sampling-rate": RATE,
    "federation.adversary": 5,
    "challenge.client": 0,
    "training.local-learning-rate": 1.0,
    "training.learning-rate": 0.3,
    "training.clipping-norm": 0.1,
    "training.rounds": ROUNDS,
}
OWN = EVERY | {"federation.adversary-rounds": "own"}


def _own_rounds(trials: int) -> list[int]:
    """Return the rounds that the adversary takes part in, the last model's number besides."""
    drawn = [sampling.clients(0, range(trials), i, 6, RATE, 0)[0, 5] for i in range(1, ROUNDS + 1)]
    return [i for i, there in enumerate(drawn, start=1) if there] + [ROUNDS + 1]


@pytest.mark.slow
def test_rounds_in_a_row_are_the_exact_posterior_and_others_one_sum(small: Make, run: Run) -> None:
    every, own = run(small(EVERY)), run(small(OWN))
    # Who looks changes nothing of the training.
    np.testing.assert_array_equal(own["final_models"], every["final_models"])
    exact, seen = (np.diff(each["log_odds"], axis=1, prepend=0) for each in (every, own))
    begun, alone = 1, 0
    for next_model in _own_rounds(8):
        if next_model == begun:
            continue
        between = slice(begun - 1, next_model - 1)
        # All that the rounds between two models say stands in the last of them.
        assert not seen[:, between][:, :-1].any()
        if next_model == begun + 1:
            np.testing.assert_allclose(seen[:, begun - 1], exact[:, begun - 1], atol=1e-3)
            alone += 1
        else:
            lengths = np.sqrt(next_model - begun)
            np.testing.assert_allclose(own["noise_stds"][:, between], 0.1 * lengths, rtol=1e-6)
        begun = next_model
    assert 0 < alone < ROUNDS


@pytest.mark.parametrize("changes", [EVERY, OWN], ids=["every", "own"])
def test_nobody_is_sent_who_joined_and_who_sees_its_own_rounds_no_sum(
    changes: dict[str, Any], small: Make, tmp_path: Path
) -> None:
    config = small(changes)
    sent: list[RecordDict] = []

    class Watching(InProcessGrid):
        def execute(self, message: Message) -> Message:
            if message.metadata.message_type in ("train", "evaluate"):
                sent.append(message.content)
            return super().execute(message)

    grid = Watching(client_app.app, 6, to_run_config(config))
    server_app.carry_out(grid, preflight(config), RunDirectory.create(tmp_path / "run", config))
    assert not any(messages.PARTICIPANTS in content for content in sent)
    sums = [content for content in sent if messages.AGGREGATE in content]
    assert bool(sums) == (changes is EVERY)


def test_its_own_rounds_are_refused_where_no_one_is_sampled(small: Make) -> None:
    with pytest.raises(InputError, match=r"adversary-rounds is 'own'.*two models"):
        small({"federation.adversary-rounds": "own"})


@pytest.mark.slow
def test_it_is_right_less_often_than_who_sees_every_round_and_more_often_than_by_chance(
    small: Make, run: Run
) -> None:
    trials = {"trials.count": 1000, "trials.batch": 500}
    bound = PLD.delta(Mechanism.alike(1.0, ROUNDS, RATE), 0.0)
    own = run(small(OWN | trials))
    wins = int(((own["log_odds"][:, -1] > 0) == own["worlds"]).sum())
    assert stats.binomtest(wins, 1000, 0.5, "greater").pvalue < 1e-3
    assert stats.binomtest(wins, 1000, (1 + bound) / 2, "greater").pvalue > 1e-3
