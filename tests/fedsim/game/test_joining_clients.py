"""Sampled clients where records are the unit: who joins is public, a record's own coin is not."""

import itertools

import numpy as np
import pytest
import torch
from flwr.app import RecordDict

from adversaries.errors import InputError
from fedsim import client_app, server_app
from fedsim.common.randomness import SERVER, gaussian_noise
from fedsim.configuration import to_run_config
from fedsim.federation.protocol import messages
from fedsim.federation.runs import ledger
from fedsim.federation.runs.run_directory import RunDirectory
from fedsim.federation.runtimes.inprocess import FIRST_NODE, InProcessGrid
from fedsim.federation.server.plan import preflight
from fedsim.game import federation
from fedsim.game.mechanisms import privacy
from fedsim.privacy.accounting import PLD
from fedsim.privacy.mechanism import Mechanism
from fedsim.privacy.participation import sampling
from fedsim.privacy.participation.histories import histories

JOINING, RATE = 0.5, 0.4
SAMPLED = {
    "federation.clients": 5,
    "federation.sampling-rate": JOINING,
    "training.sampling-rate": RATE,
    "training.rounds": 6,
    "privacy.neighbouring": "add-remove",
    "privacy.rho-beta": 0.0,
    "privacy.noise-multiplier": 1.2,
    "challenge.client": 0,
}


class RecordingGrid(InProcessGrid):
    """Keeps who was asked in which round, and the adversary's messages."""

    def __init__(self, config):
        super().__init__(client_app.app, config.federation.clients, to_run_config(config))
        self.asked: dict[int, set[int]] = {}
        self.received: list[RecordDict] = []

    def execute(self, message):
        partition = message.metadata.dst_node_id - FIRST_NODE
        if message.metadata.message_type in ("train", "evaluate"):
            round = messages.Request.from_content(message.content).round
            self.asked.setdefault(round, set()).add(partition)
            if partition == 4:
                self.received.append(message.content)
        return super().execute(message)


def test_rounds_are_of_those_who_joined_and_the_posterior_is_that_of_the_densities(small, tmp_path):
    config = small(SAMPLED)
    grid, directory = RecordingGrid(config), RunDirectory.create(tmp_path / "run", config)
    server_app.carry_out(grid, preflight(config), directory)
    transcript, known = directory.read_arrays("transcript.npz"), federation.load(config)
    record = directory.read_json("facts.json")["challenge"]["record"]
    assert known.client_of[record] == 0
    worlds, trials, records = torch.tensor(transcript["worlds"]), range(8), len(known.client_of)
    rows, total, joins = ledger.read(directory), np.zeros(8), 0
    for round, (before, after) in enumerate(itertools.pairwise(grid.received), start=1):
        there = sampling.joined(0, round, 5, JOINING)
        assert grid.asked[round] == {*np.flatnonzero(there).tolist(), 4}
        assert rows[round - 1].clients == tuple(np.flatnonzero(there))
        coins = sampling.participation(0, trials, round, records, RATE)
        assert coins is not None
        taken = torch.tensor(coins & there[known.client_of])
        own = taken[:, record].clone()
        taken[:, record] = False
        theta = torch.tensor(messages.only(messages.array_records(before)[messages.MODEL]))
        sent = messages.array_records(after)
        aggregate = torch.tensor(messages.only(sent[messages.AGGREGATE])).double()
        rest = known.clipped_sum(theta, np.arange(records), taken)
        gradient = known.clipper.clipped_gradients(theta, *known.members(np.array([record])))[:, 0]
        std = 1.2 * config.training.clipping_norm
        noise = torch.from_numpy(gaussian_noise(0, trials, round, SERVER, theta.shape[1]))
        expected = rest + (own & worlds)[:, None] * gradient + std * noise
        torch.testing.assert_close(aggregate, expected, rtol=1e-5, atol=2e-5)
        if there[0]:
            joins += 1
            normal = torch.distributions.Normal(0.0, std)
            without = normal.log_prob(aggregate - rest).sum(1)
            with_it = normal.log_prob(aggregate - rest - gradient).sum(1)
            mixed = torch.logaddexp(np.log(RATE) + with_it, np.log1p(-RATE) + without)
            total += (mixed - without).numpy()
        np.testing.assert_allclose(transcript["log_odds"][:, round - 1], total, atol=1e-4)
        # The sum is divided by the public expectation of its records.
        model = torch.tensor(messages.only(sent[messages.MODEL]))
        step = config.training.learning_rate / (JOINING * RATE * records)
        torch.testing.assert_close(model.double(), theta.double() - step * aggregate)
    assert 0 < joins < 6


def test_the_adversary_and_the_auditor_agree(small, run):
    participant, auditor = run(small(SAMPLED)), run(small(SAMPLED | {"audit.mode": "oracle"}))
    np.testing.assert_allclose(auditor["log_odds"], participant["log_odds"], rtol=0, atol=1e-6)


def test_canaries_among_sampled_clients_are_refused(small):
    with pytest.raises(InputError, match=r"federation\.sampling-rate is"):
        small(SAMPLED | {"canaries.count": 4})


def test_a_server_that_is_trusted_with_clean_sums_learns_what_they_say(small, run):
    """It sees no noise: rounds that the target's record is in prove the world, others hint."""
    found = run(small(SAMPLED | {"audit.vantages": "all"}))
    ratios = found["log_odds_server"]
    there = sampling.joined(0, 1, 5, JOINING)
    assert np.isinf(ratios).any()
    assert there[0] or (ratios[:, 0] == 0).all()
    assert (np.isposinf(ratios[:, -1]) <= found["worlds"]).all()


def test_the_budget_counts_the_rounds_that_a_client_joins(small):
    limited = small(SAMPLED | {"privacy.stop-at": 2.0, "training.rounds": 40})
    there = np.cumsum([sampling.joined(0, i, 5, JOINING) for i in range(1, 41)], axis=0)
    rounds = preflight(limited).rounds
    assert 1 < rounds < 40

    def spent(joined):
        return PLD.epsilon(Mechanism.alike(1.2, joined, RATE), limited.privacy.delta)

    assert spent(there[rounds - 1].max()) <= 2.0 < spent(there[rounds].max())


def test_a_target_whose_client_never_joins_is_refused(small):
    with pytest.raises(InputError, match="client 3, which holds the target, joins none of the 6"):
        preflight(small(SAMPLED | {"challenge.client": 3})).challenge()


@pytest.mark.parametrize("rate", [RATE, 1.0])
def test_the_noise_is_for_the_client_that_joins_most_rounds(rate, small):
    wanted = {"privacy.noise-multiplier": 0.0, "privacy.epsilon": 1.5, "training.rounds": 30}
    config = small(SAMPLED | wanted | {"training.sampling-rate": rate})
    there = [sampling.joined(0, i, 5, JOINING) for i in range(1, 31)]
    most = int(np.sum(there, axis=0).max())
    assert histories(config.participation, config.training.rounds) == (((5, most),),)
    assert most < 30
    mechanism = Mechanism.alike(privacy.noise_multiplier(config), most, rate)
    assert PLD.epsilon(mechanism, config.privacy.delta) == pytest.approx(1.5, rel=1e-5)
