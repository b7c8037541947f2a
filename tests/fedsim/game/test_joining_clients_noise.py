"""Sampled clients that add the noise themselves: who joins is public, and so is how much it is."""

import itertools
import json
from collections.abc import Callable
from pathlib import Path

import dp_accounting
import numpy as np
import pytest
import torch
from dp_accounting import pld
from flwr.app import Message, RecordDict
from scipy import stats

from adversaries.errors import InputError
from fedsim import client_app
from fedsim.campaign import ledger, spending
from fedsim.campaign.ledger_row import planned_kind
from fedsim.campaign.run_directory import Arrays, RunDirectory
from fedsim.common.randomness import gaussian_noise
from fedsim.config import Config, to_run_config
from fedsim.game import client_level, federation
from fedsim.game.round_game import RoundGame
from fedsim.mechanisms import composition, fixed_point, joining, privacy
from fedsim.privacy.accounting import PLD, accountant
from fedsim.protocol import messages
from fedsim.runtimes.inprocess import FIRST_NODE, InProcessGrid
from fedsim.server import server_app
from fedsim.server.plan import preflight, prepare
from fedsim.training import sampling
from fedsim.trust.model import Vantage

Make = Callable[..., Config]
Run = Callable[[Config], Arrays]

CLIENTS, JOINING, RATE, Z = 6, 0.5, 0.4, 1.5
TARGET, ADVERSARY = 0, 4
BY_CLIENT = {
    "privacy.unit": "client",
    "federation.clients": CLIENTS,
    "federation.sampling-rate": JOINING,
    "federation.adversary": ADVERSARY,
    "challenge.client": TARGET,
    "privacy.neighbouring": "add-remove",
    "privacy.rho-beta": 0.0,
    "privacy.noise-multiplier": Z,
    "training.rounds": 7,
    "training.learning-rate": 1.0,
    "training.local-learning-rate": 0.3,
    "training.batch-size": 3,
}
BY_RECORD = BY_CLIENT | {
    "privacy.unit": "record",
    "training.sampling-rate": RATE,
    "training.local-learning-rate": 0.0,
    "training.batch-size": 0,
}
UNITS = {"client": BY_CLIENT, "record": BY_RECORD}
SECAGG = {"federation.trust": "distributed", "federation.secure-aggregation": "secagg+"}
DROPOUTS = {"federation.tolerated-dropouts": 2, "federation.dropout-rate": 0.25}


class RecordingGrid(InProcessGrid):
    """Keeps who sent a sum in which round, and the adversary's messages."""

    def __init__(self, config: Config) -> None:
        super().__init__(client_app.app, config.federation.clients, to_run_config(config))
        self.asked: dict[int, set[int]] = {}
        self.sent: dict[int, set[int]] = {}
        self.received: list[RecordDict] = []

    def execute(self, message: Message) -> Message:
        partition = message.metadata.dst_node_id - FIRST_NODE
        reply = super().execute(message)
        if message.metadata.message_type in ("train", "evaluate"):
            round = messages.Request.from_content(message.content).round
            self.asked.setdefault(round, set()).add(partition)
            if not reply.has_error() and messages.REPLY in reply.content:
                self.sent.setdefault(round, set()).add(partition)
            if partition == ADVERSARY:
                self.received.append(message.content)
        return reply


def _sums(
    config: Config, there: set[int], round: int, theta: torch.Tensor, record: int
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor | None]:
    """Return what those who joined add besides the target, and what the target does."""
    known, trials = federation.load(config), range(8)
    if config.privacy.unit == "client":
        game = RoundGame(round, trials, Z, TARGET, None, None)
        rest = client_level.total(config, known, there - {TARGET}, theta, game)
        return rest, client_level.contribution(config, known, TARGET, theta, game), None
    coins = sampling.participation(0, trials, round, len(known.client_of), RATE)
    assert coins is not None
    taken = torch.tensor(coins & np.isin(known.client_of, sorted(there)))
    own = taken[:, record].clone()
    taken[:, record] = False
    rest = known.clipped_sum(theta, np.arange(len(known.client_of)), taken)
    gradient = known.clipper.clipped_gradients(theta, *known.members(np.array([record])))[:, 0]
    return rest, gradient, own


@pytest.mark.parametrize("dropouts", [{}, DROPOUTS], ids=["all answer", "some drop out"])
@pytest.mark.parametrize("trust", ["local", "distributed"])
@pytest.mark.parametrize("unit", UNITS)
def test_rounds_are_of_those_who_joined_and_the_posterior_is_that_of_the_densities(
    unit: str, trust: str, dropouts: dict[str, float], small: Make, tmp_path: Path
) -> None:
    """Round by round, by brute force: sum, noise of whom, both worlds' densities, the ledger."""
    config = small(UNITS[unit] | dropouts | {"federation.trust": trust})
    grid, directory = RecordingGrid(config), RunDirectory.create(tmp_path / "run", config)
    server_app.carry_out(grid, preflight(config), directory)
    transcript = directory.read_arrays("transcript.npz")
    record = directory.read_json("facts.json")["challenge"]["record"]
    worlds, total, kinds = torch.tensor(transcript["worlds"]), torch.zeros(8).double(), set()
    rows = [row for row in ledger.read(directory) if not row.provisional]
    for round, (before, after) in enumerate(itertools.pairwise(grid.received), start=1):
        joined = set(np.flatnonzero(sampling.joined(0, round, CLIENTS, JOINING)).tolist())
        assert grid.asked[round] == joined | {ADVERSARY}
        there = grid.sent.get(round, set())
        assert there <= joined if dropouts else there == joined
        assert rows[round - 1].participants == tuple(sorted(joined))
        assert rows[round - 1].kind.participants == max(1, len(there))
        theta = torch.tensor(messages.only(messages.array_records(before)[messages.MODEL]))
        sent = messages.array_records(after)
        aggregate = torch.tensor(messages.only(sent[messages.AGGREGATE])).double()
        rest, own, coin = _sums(config, there, round, theta, record)
        # Each adds the whole noise, or its share of what as many as are expected add.
        grid_of = fixed_point.agreed(config, Z, theta.shape[1]) if trust == "distributed" else None
        std = Z * config.training.clipping_norm
        if grid_of is not None:
            std = Z * grid_of.sensitivity / np.sqrt(JOINING * CLIENTS)
        drawn = {
            client: std * torch.from_numpy(gaussian_noise(0, range(8), round, client, len(theta[0])))
            for client in there
        }
        present = worlds & (TARGET in there)
        present = present if coin is None else present & coin
        expected = rest + present[:, None] * own + sum(drawn.values())
        # Integers differ by the rounding of each client's sum and noise.
        atol = 2e-5 if grid_of is None else CLIENTS * grid_of.step + 2e-5
        torch.testing.assert_close(aggregate, expected + 0.0, rtol=1e-5, atol=atol)
        if TARGET in there:
            kinds.add(len(there))
            clear = aggregate - rest - drawn.get(ADVERSARY, 0.0)
            spread = torch.distributions.Normal(0.0, std * np.sqrt(len(there - {ADVERSARY})))
            without = spread.log_prob(clear).sum(1)
            ratio = spread.log_prob(clear - own).sum(1) - without
            if coin is not None:
                ratio = torch.logaddexp(np.log(RATE) + ratio, torch.full((8,), np.log1p(-RATE)))
            total += ratio
        np.testing.assert_allclose(
            transcript["log_odds"][:, round - 1], total, rtol=1e-3, atol=5e-3
        )
        # The sum is divided by its public expectation.
        model = torch.tensor(messages.only(sent[messages.MODEL]))
        stepped = theta.double() - config.training.learning_rate * aggregate / config.normaliser
        torch.testing.assert_close(model.double(), stepped, rtol=1e-6, atol=1e-6)
    assert len(kinds) > 1
    assert config.normaliser == JOINING * (CLIENTS if unit == "client" else RATE * 24)
