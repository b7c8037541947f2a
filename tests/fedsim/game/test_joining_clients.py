"""Sampled clients that are no secret: who joins is public, and so is the noise that they add."""

import itertools
import json

import dp_accounting
import numpy as np
import pytest
import torch
from dp_accounting import pld
from recorded import RecordingGrid
from scipy import stats

from adversaries.errors import InputError
from fedsim import client_app, server_app
from fedsim.common.randomness import SERVER, gaussian_noise
from fedsim.configuration import to_run_config
from fedsim.federation.protocol import messages
from fedsim.federation.runs import ledger, spending
from fedsim.federation.runs.ledger import planned_kind
from fedsim.federation.runs.run_directory import RunDirectory
from fedsim.federation.runtimes.inprocess import InProcessGrid
from fedsim.federation.server.plan import preflight
from fedsim.game import federation, local_training
from fedsim.game.known_round import KnownRound
from fedsim.game.mechanisms import fixed_point, privacy
from fedsim.game.round_game import RoundGame
from fedsim.privacy.accounting import PLD, accountant
from fedsim.privacy.mechanism import Mechanism
from fedsim.privacy.participation import sampling
from fedsim.privacy.participation.histories import histories
from fedsim.privacy.trust import Vantage

CLIENTS, JOINING, RATE, Z = 6, 0.5, 0.4, 1.5
TARGET, ADVERSARY = 0, 5
BY_CLIENT = {
    "privacy.unit": "client",
    "federation.clients": CLIENTS,
    "federation.sampling-rate": JOINING,
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
CENTRAL = BY_RECORD | {"federation.trust": "central"}
SECAGG = {"federation.trust": "distributed", "federation.secure-aggregation": "secagg+"}
DROPOUTS = {"federation.tolerated-dropouts": 2, "federation.dropout-rate": 0.25}


def _sums(config, there, round, theta, record):
    """Return what those who joined add besides the target, and what the target does."""
    known, trials = federation.load(config), range(8)
    if config.privacy.unit == "client":
        game = RoundGame(round, trials, Z, TARGET, None, None)
        rest = local_training.total(KnownRound(config, known, game, theta), there - {TARGET})
        return (
            rest,
            local_training.contribution(KnownRound(config, known, game, theta), TARGET),
            None,
        )
    coins = sampling.participation(0, trials, round, len(known.client_of), RATE)
    assert coins is not None
    taken = torch.tensor(coins & np.isin(known.client_of, sorted(there)))
    own = taken[:, record].clone()
    taken[:, record] = False
    rest = known.clipped_sum(theta, np.arange(len(known.client_of)), taken)
    gradient = known.clipper.clipped_gradients(theta, *known.members(np.array([record])))[:, 0]
    return rest, gradient, own


@pytest.mark.parametrize(
    ("unit", "trust", "dropouts"),
    [
        pytest.param("client", "distributed", DROPOUTS, marks=pytest.mark.slow),
        pytest.param("client", "local", {}, marks=pytest.mark.slow),
        pytest.param("record", "distributed", {}, marks=pytest.mark.slow),
        pytest.param("record", "local", DROPOUTS, marks=pytest.mark.slow),
        ("record", "central", {}),
    ],
)
def test_rounds_are_of_those_who_joined_and_the_posterior_is_that_of_the_densities(
    unit, trust, dropouts, small, tmp_path
):
    """Round by round, by brute force: sum, noise of whom, both worlds' densities, the ledger."""
    config = small(UNITS[unit] | dropouts | {"federation.trust": trust})
    grid, directory = RecordingGrid(config), RunDirectory.create(tmp_path / "run", config)
    server_app.carry_out(grid, preflight(config), directory)
    transcript = directory.read_arrays("transcript.npz")
    record = directory.read_json("facts.json")["challenge"]["record"]
    worlds, total, kinds = torch.tensor(transcript["worlds"]), torch.zeros(8).double(), set()
    rows = ledger.read(directory)
    for round, (before, after) in enumerate(itertools.pairwise(grid.of_rounds(ADVERSARY)), start=1):
        joined = set(np.flatnonzero(sampling.joined(0, round, CLIENTS, JOINING)).tolist())
        assert grid.asked[round] == joined | {ADVERSARY}
        there = grid.sent.get(round, set())
        assert there <= joined if dropouts else there == joined
        assert rows[round - 1].clients == tuple(sorted(joined))
        if trust != "central":  # where the server's noise needs no client
            assert rows[round - 1].kind.participants == max(1, len(there))
        theta = torch.tensor(messages.only(before[messages.MODEL]))
        aggregate = torch.tensor(messages.only(after[messages.AGGREGATE])).double()
        rest, own, coin = _sums(config, there, round, theta, record)
        # Each adds the whole noise, or its share of what as many as are expected add.
        grid_of = fixed_point.agreed(config, Z, theta.shape[1]) if trust == "distributed" else None
        std = Z * config.training.clipping_norm
        if grid_of is not None:
            std = Z * grid_of.sensitivity / np.sqrt(JOINING * CLIENTS)
        drawn = {
            client: std
            * torch.from_numpy(gaussian_noise(0, range(8), round, client, len(theta[0])))
            for client in (there if trust != "central" else {SERVER})
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
            hidden = len({*drawn} - {ADVERSARY})
            spread = torch.distributions.Normal(0.0, std * np.sqrt(hidden))
            without = spread.log_prob(clear).sum(1)
            ratio = spread.log_prob(clear - own).sum(1) - without
            if coin is not None:
                ratio = torch.logaddexp(np.log(RATE) + ratio, torch.full((8,), np.log1p(-RATE)))
            total += ratio
        np.testing.assert_allclose(
            transcript["log_odds"][:, round - 1], total, rtol=1e-3, atol=5e-3
        )
        # The sum is divided by its public expectation.
        model = torch.tensor(messages.only(after[messages.MODEL]))
        stepped = (
            theta.double()
            - config.training.learning_rate * aggregate / config.participation.divisor
        )
        torch.testing.assert_close(model.double(), stepped, rtol=1e-6, atol=1e-6)
    assert len(kinds) > 1
    if trust != "central":
        assert bool(dropouts) == any(row.kind.participants != len(row.clients) for row in rows[1:])
    assert config.participation.divisor == JOINING * (CLIENTS if unit == "client" else RATE * 24)


@pytest.mark.parametrize(
    ("unit", "trust"), [("client", "local"), ("record", "distributed"), ("record", "central")]
)
def test_the_adversary_the_server_and_the_auditor_agree(unit, trust, small, run):
    changes = UNITS[unit] | {"federation.trust": trust, "audit.vantages": "all"}
    found = run(small(changes))
    audited = run(small(changes | {"audit.mode": "oracle"}))
    if trust == "central":
        # The server sees no noise: rounds that the record is in prove the world, others hint.
        ratios = found["log_odds_server"]
        assert np.isinf(ratios).any()
        assert (np.isposinf(ratios[:, -1]) <= found["worlds"]).all()
    seen = ("log_odds", "log_odds_server")[: 1 + (trust != "central")]
    for name in (*seen, "log_odds_released_model"):
        np.testing.assert_allclose(audited[name], found[name], rtol=1e-3, atol=2e-3)
        assert np.abs(found[name]).max() > 0.05
    # Rounds that the target does not join say nothing to anybody.
    absent = [TARGET not in small(changes).participation.participants(i) for i in range(1, 8)]
    for ending in (name.removeprefix("log_odds") for name in seen):
        ratios = np.diff(found[f"log_odds{ending}"], axis=1, prepend=0.0)
        assert (ratios[:, absent] == 0).all()
        assert (ratios[:, ~np.array(absent)] != 0).all()


@pytest.mark.parametrize(
    ("unit", "trust", "vantage"),
    [
        pytest.param("client", "local", "participant", marks=pytest.mark.slow),
        ("client", "distributed", "server"),
        pytest.param("record", "distributed", "participant", marks=pytest.mark.slow),
    ],
)
def test_noise_is_for_the_client_who_is_worst_off(unit, trust, vantage, small):
    """Against dp-accounting, of every client's rounds by the shares that were there."""
    wanted = {"privacy.noise-multiplier": 0.0, "privacy.epsilon": 1.5, "training.rounds": 20}
    place = {"federation.trust": trust, "federation.vantage": vantage}
    config = small(UNITS[unit] | wanted | place)
    nominal, delta = privacy.noise_multiplier(config), config.privacy.delta
    rounds = [np.flatnonzero(sampling.joined(0, i, CLIENTS, JOINING)) for i in range(1, 21)]
    spent = []
    for client in range(CLIENTS):
        steps = pld.PLDAccountant()
        for there in rounds:
            if client in there:
                seen = len(there) - (vantage == "participant")
                sources = max(1, seen if (trust, vantage) != ("local", "server") else 1)
                share = 1.0 if trust == "local" else np.sqrt(JOINING * CLIENTS)
                step = dp_accounting.GaussianDpEvent(nominal * np.sqrt(sources) / share)
                rate = config.training.sampling_rate
                steps.compose(dp_accounting.PoissonSampledDpEvent(rate, step))
        spent.append(steps.get_epsilon(delta))
    assert max(spent) == pytest.approx(1.5, rel=4e-3)
    described = privacy.describe(config, nominal)
    found = accountant("pld").epsilon(described.towards(Vantage(vantage)), delta)
    assert found == pytest.approx(1.5, rel=1e-6)


def test_the_budget_is_planned_by_the_coins_and_the_ledger_keeps_it(small, tmp_path):
    config = small(BY_CLIENT | {"federation.trust": "distributed", "training.rounds": 30})
    vantage, nominal = config.federation.vantage, Z

    def spent(rounds):
        return max(
            privacy.epsilon_of(
                config,
                privacy.Counts(
                    planned_kind(config.training, config.participation, nominal, round)
                    for round in range(1, rounds + 1)
                    if client in config.participation.participants(round)
                ),
                vantage,
            )
            for client in range(CLIENTS)
        )

    limit = (spent(9) + spent(30)) / 2
    limited = small(
        BY_CLIENT
        | {"federation.trust": "distributed", "training.rounds": 30, "privacy.stop-at": limit}
    )
    directory = RunDirectory.create(tmp_path / "run", limited)
    plan = preflight(limited)
    assert 9 <= plan.rounds < 30
    assert spent(plan.rounds) <= limit < spent(plan.rounds + 1)
    grid = InProcessGrid(client_app.app, CLIENTS, to_run_config(limited))
    server_app.carry_out(grid, plan, directory)
    rows = ledger.read(directory)
    assert len(rows) == plan.rounds
    worst = spending.describe(limited, nominal, rows).towards(vantage)
    assert PLD.epsilon(worst, limited.privacy.delta) == pytest.approx(spent(plan.rounds))
    said = json.loads(directory.path.joinpath("report.json").read_text())["details"]["budget"]
    assert said["rounds_run"] == plan.rounds


@pytest.mark.slow
@pytest.mark.parametrize("trust", [pytest.param("local", marks=pytest.mark.long), "distributed"])
def test_the_advantage_is_that_of_the_noise_that_was_there(trust, small, run):
    """A target whose update is always clipped: 6000 trials and the closed form."""
    changes = {"audit.mode": "oracle", "trials.count": 6000, "trials.batch": 2000}
    changes |= {"training.clipping-norm": 1e-3, "training.batch-size": 0, "run.seed": 11}
    changes |= {"federation.trust": trust, "data.records": 12, "audit.vantages": "all"}
    found = run(small(BY_CLIENT | changes | {"privacy.noise-multiplier": 2.5}))
    config = small(BY_CLIENT | changes)
    own = 2.5 / (np.sqrt(JOINING * CLIENTS) if trust == "distributed" else 1.0)
    for vantage in (Vantage.PARTICIPANT, Vantage.SERVER):
        square = 0.0
        for round in range(1, 8):
            there = set(config.participation.participants(round))
            if TARGET in there:
                others = there - ({ADVERSARY} if vantage is Vantage.PARTICIPANT else set())
                alone = trust == "local" and vantage is Vantage.SERVER
                square += 1 / (own**2 * (1 if alone else len(others)))
        advantage = 2 * stats.norm.cdf(np.sqrt(square) / 2) - 1
        ending = "" if vantage is Vantage.PARTICIPANT else "_server"
        wins = int(((found[f"log_odds{ending}"][:, -1] > 0) == found["worlds"]).sum())
        assert stats.binomtest(wins, 6000, (1 + advantage) / 2).pvalue > 1e-3


def test_the_budget_counts_the_rounds_that_a_client_joins(small):
    limited = small(CENTRAL | {"privacy.stop-at": 2.0, "training.rounds": 40})
    there = np.cumsum([sampling.joined(0, i, CLIENTS, JOINING) for i in range(1, 41)], axis=0)
    rounds = preflight(limited).rounds
    assert 1 < rounds < 40

    def spent(joined):
        return PLD.epsilon(Mechanism.alike(Z, joined, RATE), limited.privacy.delta)

    assert spent(there[rounds - 1].max()) <= 2.0 < spent(there[rounds].max())


def test_a_target_whose_client_never_joins_is_refused(small):
    with pytest.raises(InputError, match="client 3, which holds the target, joins none of the 6"):
        preflight(small(CENTRAL | {"challenge.client": 3, "training.rounds": 6})).challenge()


@pytest.mark.parametrize("rate", [RATE, 1.0])
def test_the_noise_is_for_the_client_that_joins_most_rounds(rate, small):
    wanted = {"privacy.noise-multiplier": 0.0, "privacy.epsilon": 1.5, "training.rounds": 30}
    config = small(CENTRAL | wanted | {"training.sampling-rate": rate})
    there = [sampling.joined(0, i, CLIENTS, JOINING) for i in range(1, 31)]
    most = int(np.sum(there, axis=0).max())
    assert histories(config.participation, config.training.rounds) == (((CLIENTS, most),),)
    assert most < 30
    mechanism = Mechanism.alike(privacy.noise_multiplier(config), most, rate)
    assert PLD.epsilon(mechanism, config.privacy.delta) == pytest.approx(1.5, rel=1e-5)
