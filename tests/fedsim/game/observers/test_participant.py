"""The adversary learns from its messages alone, and what it believes is the exact posterior."""

from contextlib import nullcontext
from dataclasses import replace
from unittest.mock import patch

import numpy as np
import pytest
import torch
from flwr.app import Context, Message, RecordDict
from recorded import RecordingGrid
from scipy import stats

from adversaries.attacks.posterior import hypotheses, log_odds
from fedsim import client_app, server_app
from fedsim.common.randomness import SERVER, gaussian_noise
from fedsim.configuration import from_run_config, to_run_config
from fedsim.federation.client import adversary_node, training_node
from fedsim.federation.protocol import messages
from fedsim.federation.runs.run_directory import RunDirectory
from fedsim.federation.runtimes.inprocess import FIRST_NODE
from fedsim.federation.server.plan import preflight
from fedsim.game import client, federation, pair
from fedsim.game.known_round import KnownRound
from fedsim.game.observers import participant
from fedsim.game.observers.memory import Memory
from fedsim.game.round_game import RoundGame
from fedsim.privacy.accounting import PLD
from fedsim.privacy.mechanism import Mechanism, Neighbouring
from fedsim.privacy.participation import sampling

MODES = [
    {"federation.trust": trust, "privacy.neighbouring": neighbouring, "privacy.sensitivity": scale}
    for trust in ("central", "local")
    for neighbouring in ("add-remove", "replace")
    for scale in ("global", "local")
]


LESS_NOISE = [
    {"federation.trust": trust, "federation.clients": 5, "training.rounds": 4, **less}
    for trust in ("central", "local", "distributed")
    for less in (
        {"privacy.neighbouring": "replace"},
        {"federation.colluding": 2},
        {
            "federation.tolerated-dropouts": 2,
            "federation.dropout-rate": 0.3,
            "federation.colluding": 1,
            "training.sampling-rate": 0.6,
        },
    )
]
"""Rounds in which fewer clients' noise hides the record than there are clients."""

HALF = [
    pytest.param(mode, marks=pytest.mark.slow if index.bit_count() % 2 else ())
    for index, mode in enumerate(MODES)
]
HALF_LESS_NOISE = [
    pytest.param(mode, marks=pytest.mark.slow if index % 2 else ())
    for index, mode in enumerate(LESS_NOISE)
]
"""Half of the modes, with every value of each choice, by default; the others are slow tests."""


def _name(mode):
    return "-".join(map(str, mode.values()))


def _record(config, directory, reported=False):
    """Return what each node received, the transcript and the adversary.

    One test of each mode writes a report, which takes as long as the federation.
    """
    grid = RecordingGrid(config)
    with nullcontext() if reported else patch("fedsim.reports.page.write_report"):
        server_app.carry_out(grid, preflight(config), directory)
    chosen = directory.read_json("facts.json")["challenge"]
    return grid, directory.read_arrays("transcript.npz"), chosen["adversary"]


def _only_round(grid, partition):
    """Return theta_0, the aggregate (float64) and theta_1 as a node of a one-round run saw them."""
    first = next(c for kind, c in grid.recorded[partition] if kind == "train")
    final = next(c for kind, c in grid.recorded[partition] if kind == "evaluate")
    theta, aggregate, model = (
        torch.tensor(messages.only(content.array_records[name]))
        for content, name in (
            (first, messages.MODEL),
            (final, messages.AGGREGATE),
            (final, messages.MODEL),
        )
    )
    return theta, aggregate.double(), model


@pytest.mark.parametrize(
    # Which other records take part is knowledge that would change with the seed.
    "mode",
    [*HALF, *(less | {"training.sampling-rate": 1.0} for less in LESS_NOISE)],
    ids=_name,
)
def test_the_posterior_is_a_function_of_the_messages(mode, small, tmp_path, monkeypatch):
    """Replayed into a node with another seed, the recorded messages give the same belief.

    Every source of randomness (the world bits, the server's noise, the other clients' noise) hangs
    on the seed, so a back channel to any of them would show. The one thing that the node is given
    back is its own noise under local trust, which it drew itself and sent.
    """
    config = small(mode)
    directory = RunDirectory.create(tmp_path / "run", config)
    grid, transcript, partition = _record(config, directory, reported=True)
    replayed = _replayed(config, grid.recorded[partition], partition, monkeypatch)
    np.testing.assert_array_equal(replayed, transcript["log_odds"])


def _replayed(config, received, partition, monkeypatch):
    """Return the log-odds of a node with another seed that receives the same, but its own noise."""
    monkeypatch.setattr(
        training_node, "noise", lambda seed, *rest: client.noise(config.run.seed, *rest)
    )
    other = from_run_config(to_run_config(config) | {"run.seed": 12345})
    context = Context(
        run_id=1,
        node_id=FIRST_NODE + partition,
        node_config={"partition-id": partition},
        state=RecordDict(),
        run_config=to_run_config(other),
    )
    for kind, content in received:
        reply = client_app.app(Message(content, context.node_id, kind), context)
    memory = messages.arrays_of(reply.content.array_records[adversary_node.MEMORY])
    return log_odds(memory["ratios"])


@pytest.mark.parametrize("mode", MODES, ids=_name)
def test_world_bits_reach_the_target_client_only(mode, small, tmp_path):
    config = small(mode)
    directory = RunDirectory.create(tmp_path / "run", config)
    grid, _, _ = _record(config, directory)
    client = directory.read_json("facts.json")["challenge"]["client"]
    told = {
        partition
        for partition, received in grid.recorded.items()
        for _, content in received
        if messages.WORLDS in content
    }
    assert told == {client}


@pytest.mark.slow
@pytest.mark.parametrize("mode", HALF_LESS_NOISE, ids=_name)
def test_an_auditor_who_reads_the_noise_arrives_at_the_same_belief(mode, small, run):
    """Two ways to the same number: from messages and knowledge, and from the noise itself."""
    believed = run(small(mode))
    measured = run(small(mode | {"audit.mode": "oracle"}))
    for name in ("log_odds", "sensitivities", "noise_stds"):
        np.testing.assert_allclose(believed[name], measured[name], rtol=1e-4, atol=1e-4)
    if "federation.dropout-rate" in mode and mode["federation.trust"] != "central":
        assert len(np.unique(believed["noise_stds"])) > 1  # some client was missing in some round


def test_a_round_without_the_client_of_the_challenge_says_nothing(small):
    config = small({"federation.trust": "local", "federation.tolerated-dropouts": 1})
    known = federation.load(config)
    theta = torch.zeros(2, 650)
    ratios = []
    client = int(known.client_of[0])
    me, game = (client + 1) % 3, RoundGame(1, range(2), 1.0, client, 0, None)
    for missing in ((), (client,)):
        memory = Memory.empty(2)
        memory = participant.expect(
            *(memory, KnownRound(config, known, game, theta, None), me, theta.double()),
            missing=missing,
            unknown_shares=2 - len(missing),
        )
        ratios.append(participant.observe(memory, torch.ones(2, 650)).ratios)
    assert (ratios[0] != 0).all()
    assert (ratios[1] == 0).all()


@pytest.mark.parametrize("mode", HALF, ids=_name)
def test_the_log_odds_are_those_of_the_densities_of_everything_unknown(mode, small, tmp_path):
    """One round, by brute force: Gaussian densities of the aggregate minus the own message."""
    config = small(mode | {"training.rounds": 1})
    directory = RunDirectory.create(tmp_path / "run", config)
    grid, transcript, partition = _record(config, directory)
    facts = directory.read_json("facts.json")
    chosen, z = facts["challenge"], facts["noise_multiplier"]
    known = federation.load(config)
    theta, aggregate, _ = _only_round(grid, partition)

    def total(world):
        positions = np.arange(config.data.records)
        features, labels = known.members(positions)
        weights = torch.ones(len(theta), len(positions))
        weights[:, chosen["record"]] = float(world)
        f = known.clipper.clipped_sum(theta, features, labels, weights)
        if chosen["replacement"] is not None and not world:
            f += known.clipper.clipped_sum(theta, *known.pool([chosen["replacement"]]))
        return f

    f_d, f_d_prime = total(True), total(False)
    local_sensitivity = (f_d - f_d_prime).norm(dim=1)
    bound = config.training.clipping_norm * (
        2 if config.privacy.neighbouring is Neighbouring.REPLACE else 1
    )
    scale = local_sensitivity if mode["privacy.sensitivity"] == "local" else torch.tensor(bound)
    std = (z * scale).expand(len(theta))
    own_noise = torch.zeros_like(f_d)
    if mode["federation.trust"] == "local":
        standard = gaussian_noise(config.run.seed, range(len(theta)), 1, partition, f_d.shape[1])
        own_noise = std[:, None] * torch.from_numpy(standard)
        std = std * np.sqrt(config.federation.clients - 1)
    unknown = torch.distributions.Normal(0.0, std[:, None])
    densities = [unknown.log_prob(aggregate - own_noise - f).sum(1) for f in (f_d, f_d_prime)]
    np.testing.assert_allclose(
        transcript["log_odds"][:, 0], densities[0] - densities[1], rtol=1e-4, atol=1e-4
    )


@pytest.mark.parametrize("mode", HALF, ids=_name)
def test_the_aggregate_is_the_sum_of_the_world_plus_exactly_the_claimed_noise(
    mode, small, tmp_path
):
    """The mechanism itself, not what the adversary believes of it: every share, rebuilt."""
    config = small(mode | {"training.rounds": 1})
    directory = RunDirectory.create(tmp_path / "run", config)
    grid, transcript, partition = _record(config, directory)
    facts = directory.read_json("facts.json")
    chosen, z = facts["challenge"], facts["noise_multiplier"]
    known = federation.load(config)
    theta, aggregate, model = _only_round(grid, partition)
    worlds = torch.tensor(transcript["worlds"]).double()[:, None]
    weights = torch.ones(len(theta), config.data.records)
    weights[:, chosen["record"]] = 0
    rest = known.clipper.clipped_sum(theta, *known.members(np.arange(24)), weights)
    present, absent = pair.challenge_gradients(
        known, theta, chosen["record"], chosen["replacement"]
    )
    expected = rest + worlds * present + (1 - worlds) * absent
    scale = torch.full((len(theta),), config.training.clipping_norm, dtype=torch.float64)
    if mode["privacy.neighbouring"] == "replace":
        scale *= 2
    if mode["privacy.sensitivity"] == "local":
        scale = (present - absent).norm(dim=1)
    sources = [SERVER] if mode["federation.trust"] == "central" else [0, 1, 2]
    for source in sources:
        standard = gaussian_noise(config.run.seed, range(len(theta)), 1, source, rest.shape[1])
        expected += z * scale[:, None] * torch.from_numpy(standard)
    np.testing.assert_allclose(aggregate, expected.float().numpy(), rtol=1e-5, atol=2e-5)
    step = config.training.learning_rate / config.data.records
    stepped = theta.double() - step * aggregate
    np.testing.assert_array_equal(model, stepped.float().numpy())


@pytest.mark.parametrize(("trust", "unknown"), [("central", 1), ("local", 2)])
def test_every_step_of_every_trial_records_its_sensitivity_and_the_noise_scaled_to_it(
    trust, unknown, small, run
):
    """Under local trust every one of three clients scales its noise; the adversary knows its
    own."""
    config = small(
        {"federation.trust": trust, "privacy.sensitivity": "local", "privacy.rho-beta": 0.0}
        | {"privacy.neighbouring": "replace", "privacy.noise-multiplier": 0.5}
    )
    transcript = run(config)
    norms = transcript["sensitivities"]
    assert norms.shape == (config.trials.count, config.training.rounds)
    assert len(np.unique(norms)) == norms.size
    np.testing.assert_allclose(transcript["noise_stds"], 0.5 * np.sqrt(unknown) * norms, rtol=1e-6)


@pytest.mark.parametrize(
    ("trust", "neighbouring"),
    [
        ("central", "add-remove"),
        ("local", "replace"),
        pytest.param("central", "replace", marks=pytest.mark.slow),
        pytest.param("local", "add-remove", marks=pytest.mark.slow),
    ],
)
def test_a_whole_federation_plays_the_game_that_theory_predicts(trust, neighbouring, small, run):
    config = small(
        {"federation.trust": trust, "privacy.neighbouring": neighbouring}
        | {"privacy.sensitivity": "local", "privacy.rho-beta": 0.0, "training.rounds": 4}
        | {"privacy.noise-multiplier": 2.0, "trials.count": 600, "trials.batch": 300}
        | {"federation.partition": "dirichlet", "run.seed": 5}
    )
    transcript = run(config)
    effective = 2.0 * (np.sqrt(2) if trust == "local" else 1.0)
    mu = np.sqrt(4) / effective
    final, worlds = transcript["log_odds"][:, -1], transcript["worlds"]
    assert stats.kstest(final[worlds], stats.norm(mu**2 / 2, mu).cdf).pvalue > 1e-3
    assert stats.kstest(final[~worlds], stats.norm(-(mu**2) / 2, mu).cdf).pvalue > 1e-3
    wins = int(((final > 0) == worlds).sum())
    assert stats.binomtest(wins, 600, stats.norm.cdf(mu / 2)).pvalue > 1e-3


SAMPLED = {"training.sampling-rate": 0.4, "privacy.rho-beta": 0.0, "privacy.noise-multiplier": 1.0}


@pytest.mark.parametrize("neighbouring", ["add-remove", "replace"])
@pytest.mark.parametrize("trust", ["central", "local"])
def test_the_sampled_posterior_looks_at_everybodys_coins_but_the_challenges(
    trust, neighbouring, small, tmp_path, monkeypatch
):
    """As above, in a node with another seed, which knows the other records' coins alone."""
    mode = {"federation.trust": trust, "privacy.neighbouring": neighbouring}
    config = small(SAMPLED | mode)
    directory = RunDirectory.create(tmp_path / "run", config)
    grid, transcript, partition = _record(config, directory)
    record = directory.read_json("facts.json")["challenge"]["record"]

    drawn = sampling.participation

    def background_knowledge(_, trials, *rest):
        coins = drawn(config.run.seed, trials, *rest)
        coins[:, record] ^= True
        return coins

    monkeypatch.setattr(sampling, "participation", background_knowledge)
    replayed = _replayed(config, grid.recorded[partition], partition, monkeypatch)
    np.testing.assert_array_equal(replayed, transcript["log_odds"])


@pytest.mark.parametrize("neighbouring", ["add-remove", "replace"])
@pytest.mark.parametrize("trust", ["central", "local"])
def test_the_sampled_log_odds_are_those_of_the_mixtures_of_densities(
    trust, neighbouring, small, tmp_path
):
    """One round, by brute force: log of q N(with the record) + (1 - q) N(without)."""
    mode = {"federation.trust": trust, "privacy.neighbouring": neighbouring}
    config = small(SAMPLED | mode | {"training.rounds": 1})
    directory = RunDirectory.create(tmp_path / "run", config)
    grid, transcript, partition = _record(config, directory)
    chosen = directory.read_json("facts.json")["challenge"]
    known, q = federation.load(config), config.training.sampling_rate
    theta, aggregate, model = _only_round(grid, partition)
    coins = sampling.participation(config.run.seed, range(len(theta)), 1, 24, q)
    weights = torch.from_numpy(coins).float()
    weights[:, chosen["record"]] = 0
    rest = known.clipper.clipped_sum(theta, *known.members(np.arange(24)), weights)
    present, absent = pair.challenge_gradients(
        known, theta, chosen["record"], chosen["replacement"]
    )
    std = 1.0 * (2.0 if neighbouring == "replace" else 1.0)
    if trust == "local":
        standard = gaussian_noise(config.run.seed, range(len(theta)), 1, partition, rest.shape[1])
        rest += std * torch.from_numpy(standard)
        std *= np.sqrt(config.federation.clients - 1)

    def log_mixture(gradient):
        unknown = torch.distributions.Normal(0.0, std)
        with_it = unknown.log_prob(aggregate - rest - gradient).sum(1)
        without = unknown.log_prob(aggregate - rest).sum(1)
        return torch.logaddexp(np.log(q) + with_it, np.log(1 - q) + without)

    np.testing.assert_allclose(
        transcript["log_odds"][:, 0], log_mixture(present) - log_mixture(absent), atol=1e-4
    )
    # n is the expected number of records in a step, not how many happened to take part.
    step = config.training.learning_rate / (q * 24)
    np.testing.assert_array_equal(model, (theta.double() - step * aggregate).float().numpy())


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["participant", pytest.param("oracle", marks=pytest.mark.long)])
def test_a_sampled_federation_reaches_the_total_variation_and_no_more(mode, small, run):
    """Noise scaled to |g| makes every step the same game, whose advantage theory knows."""
    trials, rate, rounds = 2000, 0.1, 50
    config = small(
        {"training.sampling-rate": rate, "training.rounds": rounds, "audit.mode": mode}
        | {"privacy.sensitivity": "local", "privacy.rho-beta": 0.0}
        | {"privacy.noise-multiplier": 1.0, "trials.count": trials, "trials.batch": 1000}
        | {"training.schedule": "cosine", "training.momentum": 0.9, "run.seed": 5}
    )
    transcript = run(config)
    bound = PLD.delta(Mechanism.alike(1.0, rounds, rate), 0.0)
    wins = int(((transcript["log_odds"][:, -1] > 0) == transcript["worlds"]).sum())
    assert stats.binomtest(wins, trials, (1 + bound) / 2).pvalue > 1e-3


LOCAL_STEPS = {
    "federation.trust": "local",
    "federation.clients": 2,
    "training.local-steps": 3,
    "training.local-learning-rate": 1.0,
    "privacy.rho-beta": 0.0,
}


@pytest.mark.parametrize("neighbouring", ["add-remove", "replace"])
def test_the_replay_of_local_steps_predicts_the_aggregate_but_for_the_noise(
    neighbouring, small, tmp_path
):
    """With next to no noise, the aggregate lies where the hypothesis that is true puts it."""
    tiny = {"privacy.noise-multiplier": 1e-3, "privacy.neighbouring": neighbouring}
    config = small(LOCAL_STEPS | tiny | {"training.rounds": 1, "federation.clients": 3})
    directory = RunDirectory.create(tmp_path / "run", config)
    grid, transcript, partition = _record(config, directory)
    chosen = directory.read_json("facts.json")["challenge"]
    known = federation.load(config)
    theta, aggregate, _ = _only_round(grid, partition)
    worlds = torch.tensor(transcript["worlds"])
    sums = []
    for j in range(3):
        pair = (chosen["record"], chosen["replacement"], worlds) if j == chosen["client"] else ()
        sums.append(
            client.local_steps(
                lambda model, _, j=j, pair=pair: client.clean_sum(known, j, model, *pair),
                theta,
                3,
                client.local_step_size(config, 1),
            )
        )
    # Each client adds three times N(0, (z Delta)^2); the effect on later steps is of second order.
    bound = 2.0 if neighbouring == "replace" else 1.0
    residual = (aggregate - torch.stack(sums).sum(0)) / (1e-3 * bound * np.sqrt(3 * 3))
    assert float(residual.std()) == pytest.approx(1.0, abs=0.1)
    # Against such noise the pair is told apart without fail.
    assert (np.sign(transcript["log_odds"][:, 0]) == np.where(worlds, 1, -1)).all()
    np.testing.assert_allclose(transcript["noise_stds"], 1e-3 * bound * np.sqrt(3 * 2))


def test_over_local_steps_a_pair_may_move_the_sum_by_more_than_one_steps_sensitivity(small, run):
    transcript = run(small(LOCAL_STEPS | {"privacy.noise-multiplier": 1.0}))
    assert transcript["sensitivities"].max() > 1.0
    np.testing.assert_array_equal(transcript["present_norms"], transcript["sensitivities"])
    assert not transcript["absent_norms"].any()


SAMPLED_STEPS = LOCAL_STEPS | {
    "training.sampling-rate": 0.4,
    "privacy.neighbouring": "add-remove",
    "training.local-learning-rate": 0.1,
}
"""Local DP-SGD, as an Opacus loop in a client does it."""


@pytest.mark.slow
def test_sampled_local_steps_draw_a_batch_for_each_step_and_know_the_others_coins(small, tmp_path):
    """With next to no noise: the sum is that of the records whose coins say so, step by step."""
    tiny = {"privacy.noise-multiplier": 1e-3, "training.rounds": 1, "federation.clients": 3}
    config = small(SAMPLED_STEPS | tiny)
    directory = RunDirectory.create(tmp_path / "run", config)
    grid, transcript, partition = _record(config, directory)
    chosen = directory.read_json("facts.json")["challenge"]
    known = federation.load(config)
    theta, aggregate, _ = _only_round(grid, partition)
    worlds, trials = torch.tensor(transcript["worlds"]), range(len(theta))
    coins = [
        torch.tensor(sampling.participation(0, trials, step, len(known.client_of), 0.4))
        for step in (1, 2, 3)
    ]
    assert not torch.equal(coins[0], coins[1])
    expected, drawn = torch.zeros_like(aggregate).double(), torch.zeros(len(theta))
    for j in range(3):
        inside = torch.tensor(known.client_of == j)
        model = theta
        for each in coins:
            taken = each & inside
            if j == chosen["client"]:
                taken[:, chosen["record"]] &= worlds
                drawn += taken[:, chosen["record"]]
            everybody = np.arange(len(known.client_of))
            step = known.clipped_sum(model, everybody, taken)
            # The learning rate over the expected number of records that one client takes.
            model = (model.double() - 0.1 * 3 / (0.4 * config.data.records) * step).float()
            expected += step
    residual = (aggregate - expected) / (1e-3 * np.sqrt(3 * 3))
    assert float(residual.std()) == pytest.approx(1.0, abs=0.1)
    # The record is noticed wherever it was drawn, and its absence is no proof that it is missing.
    assert (transcript["log_odds"][:, 0] > 0).tolist() == (drawn > 0).tolist()
    absent = transcript["log_odds"][(drawn == 0).numpy(), 0]
    np.testing.assert_allclose(absent, 3 * np.log(0.6), rtol=0.05)


@pytest.mark.slow
@pytest.mark.parametrize("mode", [LOCAL_STEPS, SAMPLED_STEPS], ids=["full", "sampled"])
def test_local_steps_are_attacked_beyond_chance_and_within_the_bound(mode, small, run):
    trials, rounds, z = 1000, 2, 2.5 * mode.get("training.sampling-rate", 1.0)
    config = small(
        mode
        | {"privacy.noise-multiplier": z, "training.rounds": rounds, "run.seed": 3}
        | {"trials.count": trials, "trials.batch": 500}
    )
    transcript = run(config)
    wins = int(((transcript["log_odds"][:, -1] > 0) == transcript["worlds"]).sum())
    # The bound takes every local step for released, under the client's own noise.
    bound = PLD.delta(Mechanism.alike(z, rounds * 3, config.participation.rate), 0.0)
    assert stats.binomtest(wins, trials, 0.5, "greater").pvalue < 1e-3
    assert stats.binomtest(wins, trials, (1 + bound) / 2, "greater").pvalue > 1e-3


def test_a_lost_state_is_an_error_and_not_a_wrong_belief():
    memory = Memory.empty(2)
    with pytest.raises(RuntimeError, match="start the adversary did not see"):
        participant.observe(memory, torch.zeros(2, 3))


def test_memory_survives_its_arrays():
    memory = Memory.empty(2)
    back = Memory.from_arrays(memory.to_arrays(), torch.device("cpu"))
    assert back.pending is None
    assert back.ratios.shape == (2, 0)


@pytest.mark.parametrize("rate", [0.3, 1.0])
@pytest.mark.parametrize("replaced", [False, True])
def test_pending_hypotheses_survive_their_arrays(replaced, rate):
    known, present, absent, aggregate = torch.randn(
        4, 2, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64
    )
    pending = hypotheses(known, present, absent if replaced else None, torch.ones(2).double(), rate)
    memory = replace(Memory.empty(2), pending=pending)
    back = Memory.from_arrays(memory.to_arrays(), torch.device("cpu"))
    for one, other in zip(
        participant.observe(memory, aggregate).to_arrays().items(),
        participant.observe(back, aggregate).to_arrays().items(),
        strict=True,
    ):
        assert one[0] == other[0]
        np.testing.assert_array_equal(one[1], other[1])
