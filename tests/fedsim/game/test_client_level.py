"""A client's clipped update, and what an adversary makes of it."""

import itertools
import math
from fractions import Fraction
from html import unescape
from unittest.mock import patch

import numpy as np
import pytest
import torch
from flwr.app import Context, Message, RecordDict
from recorded import RecordingGrid
from scipy import stats
from torch import nn
from torch.nn import functional

from adversaries.attacks.posterior import log_odds
from fedsim import client_app, server_app
from fedsim.common.randomness import SERVER, gaussian_noise
from fedsim.configuration import to_run_config
from fedsim.federation.client import adversary_node, training_node
from fedsim.federation.protocol import messages
from fedsim.federation.runs.run_directory import RunDirectory
from fedsim.federation.runtimes.inprocess import FIRST_NODE
from fedsim.federation.server.plan import preflight
from fedsim.game import client, federation, local_training
from fedsim.game.known_round import KnownRound
from fedsim.game.local_training import (
    NOBODY,
    alike,
    challenge_contributions,
    clip,
    contribution,
    replacements,
    schedule,
    trained,
)
from fedsim.game.round_game import RoundGame
from fedsim.learning.training import models

CLIENT = {
    "privacy.unit": "client",
    "privacy.rho-beta": 0.0,
    "privacy.noise-multiplier": 1.5,
    "training.learning-rate": 1.0,
    "training.local-learning-rate": 0.3,
    "training.local-epochs": 2,
    "training.batch-size": 3,
}
"""Unequal numbers of records, 2 epochs of batches of 3: the last batch of a client is smaller."""

MODES = [
    {"federation.trust": trust, "privacy.neighbouring": neighbouring, "privacy.sensitivity": scale}
    for trust in ("central", "local")
    for neighbouring in ("add-remove", "replace")
    for scale in ("global", "local")
]

HALF = [
    pytest.param(mode, marks=pytest.mark.slow if index.bit_count() % 2 else ())
    for index, mode in enumerate(MODES)
]
"""Half of the modes, in which every two choices meet, by default; the others are slow tests."""


def _game(client, trials, round=1):
    return RoundGame(round, trials, 1.5, client, None, None)


def _federation(config, trials=4):
    known = federation.load(config)
    theta = models.initial_parameters(
        lambda: federation.build_model(config, known.split.dataset), 0, range(trials)
    )
    return known, theta


def _train(theta, features, labels, orders, rate):
    """Train one linear model as any PyTorch tutorial does; return how far it moved, downhill."""
    model = nn.Sequential(nn.Flatten(), nn.Linear(64, 10)).double()
    nn.utils.vector_to_parameters(theta.double(), model.parameters())
    optimizer = torch.optim.SGD(model.parameters(), lr=rate)
    for batch in orders:
        optimizer.zero_grad()
        functional.cross_entropy(model(features[batch].double()), labels[batch]).backward()
        optimizer.step()
    return theta.double() - nn.utils.parameters_to_vector(model.parameters()).detach()


@pytest.mark.parametrize("neighbouring", ["add-remove", "replace"])
@pytest.mark.parametrize("size", [0, 3, 100])
def test_the_update_is_that_of_plain_sgd_on_the_clients_records(size, neighbouring, small):
    changes = {"training.batch-size": size, "privacy.neighbouring": neighbouring}
    config = small(CLIENT | changes | {"training.clipping-norm": 0.1})
    known, theta = _federation(config)
    client, trials = 1, range(5, 9)
    positions = known.owned_by(client)
    found = challenge_contributions(KnownRound(config, known, _game(client, trials, 2), theta))
    plan = schedule(config.training, 0, trials, 2, client, len(positions))
    plan = np.broadcast_to(plan, (4, *plan.shape[1:]))
    worlds = [known.members(positions)]
    if neighbouring == "replace":
        worlds.append(known.pool(replacements(known, client)))
    for clipped, (features, labels) in zip(found, worlds, strict=False):
        for trial in range(4):
            mine = [step[step != NOBODY].tolist() for step in plan[trial]]
            update = _train(theta[trial], features, labels, mine, 0.3)
            assert update.norm() > 0.1
            expected = 0.1 * update / update.norm()
            torch.testing.assert_close(clipped[trial], expected, rtol=1e-4, atol=1e-7)
    if neighbouring == "add-remove":
        assert not found[1].any()


def test_an_update_shorter_than_the_norm_is_left_alone():
    update = torch.tensor([[3.0, 4.0], [0.3, 0.4], [0.0, 0.0]], dtype=torch.float64)
    expected = torch.tensor([[0.6, 0.8], [0.3, 0.4], [0.0, 0.0]], dtype=torch.float64)
    torch.testing.assert_close(clip(update, 1.0), expected)


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_a_diverged_update_is_refused(bad):
    with pytest.raises(FloatingPointError, match="local-learning-rate"):
        clip(torch.tensor([[1.0, bad]]), 1.0)


@pytest.mark.parametrize("exact", [False, True])
def test_a_clipped_update_is_never_longer_than_the_norm(exact):
    random = torch.Generator().manual_seed(0)
    update = torch.randn(2000, 50, generator=random, dtype=torch.float64)
    update *= 10.0 ** torch.linspace(-3, 306, 2000, dtype=torch.float64)[:, None]
    clipped = clip(update, 1.0, exact).tolist()
    squares = [sum(Fraction(x) ** 2 for x in row) for row in clipped]  # without rounding
    assert max(squares) <= 1
    assert min(squares[100:]) > 1 - 1e-12
    assert torch.equal(clip(update[:10], 1.0), update[:10])


def test_with_real_noise_an_update_that_is_not_finite_becomes_zero():
    bad = torch.tensor([[1.0, math.nan], [math.inf, 0], [3, 4], [0, 0]], dtype=torch.float64)
    expected = torch.tensor([[0.0, 0], [0, 0], [0.6, 0.8], [0, 0]], dtype=torch.float64)
    torch.testing.assert_close(clip(bad, 1.0, True), expected)


@pytest.mark.parametrize("norm", [0.01, 0.5])
def test_no_client_moves_the_sum_further_than_the_norm(norm, small):
    config = small(CLIENT | {"training.clipping-norm": norm, "training.local-learning-rate": 5.0})
    known, theta = _federation(config)
    for j in range(3):
        found = contribution(KnownRound(config, known, _game(0, range(4)), theta), j)
        assert float(found.norm(dim=1).max()) <= norm


def test_each_trial_sends_what_its_world_says(small):
    config = small(CLIENT | {"privacy.neighbouring": "replace"})
    known, theta = _federation(config)
    present, absent = challenge_contributions(KnownRound(config, known, _game(0, range(4)), theta))
    worlds = torch.tensor([True, False, True, False])
    found = contribution(KnownRound(config, known, _game(0, range(4)), theta), 0, worlds)
    for trial, world in enumerate(worlds):
        assert torch.equal(found[trial], present[trial] if world else absent[trial])
    assert not torch.allclose(present, absent)


def test_every_epoch_takes_every_record_once_in_an_order_of_its_own(small):
    training = small(CLIENT | {"training.local-epochs": 3}).training
    plan = schedule(training, 0, range(6), 1, 0, 8)
    assert (plan != NOBODY).sum(axis=2).tolist() == [[3, 3, 2] * 3] * 6
    epochs = plan.reshape(6, 3, -1)
    np.testing.assert_array_equal(np.sort(epochs)[:, :, 1:], np.tile(np.arange(8), (6, 3, 1)))
    assert len({tuple(epoch) for trial in epochs.tolist() for epoch in trial}) == 18


def test_an_order_depends_on_the_trials_number_and_not_on_its_batch(small):
    training = small(CLIENT).training
    whole, part = (schedule(training, 0, r, 1, 0, 8) for r in (range(6), range(4, 6)))
    np.testing.assert_array_equal(whole[4:], part)


def _sent(config, known, clients, theta):
    update = trained(KnownRound(config, known, _game(0, range(4)), theta), clients)
    return clip(update, config.training.clipping_norm)


@pytest.mark.parametrize("partition", ["iid", "dirichlet"])
def test_clients_train_together_as_each_does_alone(partition, small):
    changes = {"federation.partition": partition, "federation.clients": 5, "data.records": 40}
    config = small(CLIENT | changes)
    known, theta = _federation(config)
    sizes = [len(known.owned_by(j)) for j in range(5)]
    groups = list(alike(known, range(5), theta))
    assert sorted(client for group in groups for client in group) == list(range(5))
    alone = [_sent(config, known, [j], theta)[0] for j in range(5)]
    for group in groups:
        assert len({sizes[j] for j in group}) == 1
        for j, found in zip(group, _sent(config, known, group, theta), strict=True):
            torch.testing.assert_close(found, alone[j], rtol=1e-4, atol=1e-6)
    total = local_training.total(KnownRound(config, known, _game(0, range(4)), theta), range(5))
    torch.testing.assert_close(total, torch.stack(alone).sum(0), rtol=1e-4, atol=1e-6)


def test_one_process_trains_the_clients_that_are_asked_together(small, monkeypatch):
    config = small(CLIENT | {"federation.clients": 6, "data.records": 60})
    known, theta = _federation(config)
    alone = [
        contribution(KnownRound(config, known, _game(0, range(4)), theta), j) for j in range(6)
    ]
    batches = []
    original = local_training.trained

    def watched(*arguments):
        batches.append(list(arguments[1]))
        return original(*arguments)

    monkeypatch.setattr(local_training, "trained", watched)
    with local_training.played([0, 2, 3, 5]):
        found = [
            contribution(KnownRound(config, known, _game(0, range(4)), theta), j)
            for j in (0, 2, 3, 5)
        ]
        # Another model than that which the others trained from is trained from by itself.
        other = contribution(KnownRound(config, known, _game(0, range(4)), theta + 1), 0)
    assert [sorted(each) for each in batches] == [[0, 2, 3, 5], [0]]
    for j, sent in zip((0, 2, 3, 5), found, strict=True):
        torch.testing.assert_close(sent, alone[j], rtol=1e-4, atol=1e-6)
    assert not torch.allclose(other, alone[0])


def test_a_client_that_diverges_fails_alone(small, monkeypatch):
    config = small(CLIENT | {"federation.clients": 6, "data.records": 60})
    known, theta = _federation(config)
    original = local_training.trained

    def diverging(*arguments):
        found = original(*arguments)
        found[[client == 3 for client in arguments[1]]] = float("nan")
        return found

    monkeypatch.setattr(local_training, "trained", diverging)
    seen = KnownRound(config, known, _game(0, range(4)), theta)
    with local_training.played(range(6)):
        for j in (0, 1, 2, 4, 5):
            assert (
                contribution(KnownRound(config, known, _game(0, range(4)), theta), j)
                .isfinite()
                .all()
            )
        with pytest.raises(FloatingPointError, match="its own training diverged"):
            contribution(seen, 3)


@pytest.mark.parametrize("mode", HALF, ids=lambda mode: "-".join(mode.values()))
def test_the_adversary_and_the_auditor_agree(mode, small, run):
    config = small(CLIENT | mode | {"training.momentum": 0.5})
    disclosed_noise = config.model_copy(
        update={"audit": config.audit.model_copy(update={"mode": "oracle"})}
    )
    participant, auditor = run(config), run(disclosed_noise)
    # The residuals are the participant's alone.
    left = ("residual_", "batch_sizes")
    assert set(auditor) == {name for name in participant if not name.startswith(left)}
    np.testing.assert_allclose(auditor["log_odds"], participant["log_odds"], rtol=0, atol=1e-6)
    assert np.abs(participant["log_odds"]).max() > 0.1
    for name in ("final_models", "worlds", "true_positive_rate", "challenge_is_member"):
        np.testing.assert_array_equal(auditor[name], participant[name])
    for name in ("sensitivities", "noise_stds", "present_norms", "absent_norms"):
        np.testing.assert_allclose(auditor[name], participant[name], rtol=1e-6, err_msg=name)


def test_beliefs_do_not_depend_on_the_size_of_the_batch(small, run):
    whole, parts = run(small(CLIENT)), run(small(CLIENT | {"trials.batch": 3}))
    np.testing.assert_allclose(parts["log_odds"], whole["log_odds"], rtol=1e-5, atol=1e-5)


def _record(config, path):
    grid, directory = RecordingGrid(config), RunDirectory.create(path, config)
    with patch("fedsim.reports.page.write_report"):  # which the tests of `run` write
        server_app.carry_out(grid, preflight(config), directory)
    facts = directory.read_json("facts.json")
    return grid, directory.read_arrays("transcript.npz"), facts["challenge"]


@pytest.mark.parametrize("mode", HALF, ids=lambda mode: "-".join(mode.values()))
def test_the_posterior_is_a_function_of_the_messages_and_the_public_order(
    mode, small, tmp_path, monkeypatch
):
    """Replayed into a node with another seed, the recorded messages give the same belief."""
    config = small(CLIENT | mode)
    grid, transcript, chosen = _record(config, tmp_path / "run")
    assert chosen["record"] is None
    original = local_training.schedule
    monkeypatch.setattr(
        local_training, "schedule", lambda training, seed, *rest: original(training, 0, *rest)
    )
    monkeypatch.setattr(training_node, "noise", lambda seed, *rest: client.noise(0, *rest))
    partition = chosen["adversary"]
    context = Context(
        run_id=1,
        node_id=FIRST_NODE + partition,
        node_config={"partition-id": partition},
        state=RecordDict(),
        run_config=to_run_config(config) | {"run.seed": 12345},
    )
    for kind, content in grid.recorded[partition]:
        assert messages.WORLDS not in content
        reply = client_app.app(Message(content, context.node_id, kind), context)
    replayed = messages.arrays_of(reply.content.array_records[adversary_node.MEMORY])
    np.testing.assert_array_equal(log_odds(replayed["ratios"]), transcript["log_odds"])


@pytest.mark.parametrize("mode", HALF, ids=lambda mode: "-".join(mode.values()))
def test_the_log_odds_are_those_of_the_densities_of_everything_unknown(mode, small, tmp_path):
    """One round, by brute force: the mechanism share by share, and what its densities say."""
    config = small(CLIENT | mode | {"training.rounds": 1, "data.records": 27})
    grid, transcript, chosen = _record(config, tmp_path / "run")
    partition, target_client, trials = chosen["adversary"], chosen["client"], range(8)
    received = dict(grid.recorded[partition])
    theta = torch.tensor(messages.only(received["train"].array_records[messages.MODEL]))
    final = received["evaluate"].array_records
    aggregate = torch.tensor(messages.only(final[messages.AGGREGATE])).double()
    known = federation.load(config)
    game = _game(target_client, trials)
    rest = sum(
        contribution(KnownRound(config, known, game, theta), j)
        for j in range(3)
        if j != target_client
    )
    present, absent = challenge_contributions(KnownRound(config, known, game, theta))
    scale = torch.full((8,), 2.0 if mode["privacy.neighbouring"] == "replace" else 1.0)
    if mode["privacy.sensitivity"] == "local":
        scale = (present - absent).norm(dim=1)
    std = 1.5 * scale.double()[:, None]
    local = mode["federation.trust"] == "local"
    noises = {
        source: std * torch.from_numpy(gaussian_noise(0, trials, 1, source, theta.shape[1]))
        for source in ([0, 1, 2] if local else [SERVER])
    }
    worlds = torch.tensor(transcript["worlds"])[:, None]
    expected = rest + torch.where(worlds, present, absent) + sum(noises.values())
    torch.testing.assert_close(aggregate, expected, rtol=1e-5, atol=2e-5)
    unknown = torch.distributions.Normal(0.0, std * (2**0.5 if local else 1))
    seen = aggregate - rest - noises.get(partition, torch.zeros(1))
    densities = [unknown.log_prob(seen - f).sum(1) for f in (present, absent)]
    np.testing.assert_allclose(
        transcript["log_odds"][:, 0], densities[0] - densities[1], rtol=1e-4, atol=1e-4
    )
    # The sum is divided by the public number of clients, whatever their sizes.
    model = messages.only(final[messages.MODEL])
    step = config.training.learning_rate / 3
    np.testing.assert_array_equal(model, (theta.double() - step * aggregate).float().numpy())


def test_every_round_has_noise_of_its_own_and_of_the_stated_size(small, tmp_path):
    """What is left of each round's aggregate, share by share, is the seed tree's noise."""
    config = small(CLIENT | {"privacy.sensitivity": "local", "federation.partition": "dirichlet"})
    grid, transcript, chosen = _record(config, tmp_path / "run")
    known, target_client, trials = federation.load(config), chosen["client"], range(8)
    received = grid.of_rounds(chosen["adversary"])
    assert len(received) == config.training.rounds + 1
    worlds = torch.tensor(transcript["worlds"])[:, None]
    for round, (before, after) in enumerate(itertools.pairwise(received), start=1):
        theta = torch.tensor(messages.only(before[messages.MODEL]))
        aggregate = torch.tensor(messages.only(after[messages.AGGREGATE])).double()
        game = _game(target_client, trials, round)
        rest = local_training.total(
            KnownRound(config, known, game, theta), {0, 1, 2} - {target_client}
        )
        pair = challenge_contributions(KnownRound(config, known, game, theta))
        noise = aggregate - rest - torch.where(worlds, *pair)
        std = 1.5 * (pair[0] - pair[1]).norm(dim=1, keepdim=True)
        drawn = torch.from_numpy(gaussian_noise(0, trials, round, SERVER, theta.shape[1]))
        torch.testing.assert_close(noise, std * drawn, rtol=1e-5, atol=2e-5)


@pytest.mark.slow
def test_scores_are_standard_normal_over_seeds(small, run):
    """(Lambda -+ mu^2/2) / mu ~ N(0, 1), from 5 seeds of 2000 trials: mean, variance and law."""
    rounds, multiplier, mu = 4, 2.0, 1.0
    changes = {"privacy.sensitivity": "local", "privacy.noise-multiplier": multiplier}
    changes |= {"data.records": 9, "training.rounds": rounds, "audit.mode": "oracle"}
    changes |= {"training.local-epochs": 1, "training.batch-size": 2}
    changes |= {"trials.count": 2000, "trials.batch": 2000}
    runs = [run(small(CLIENT | changes | {"run.seed": seed})) for seed in range(3001, 3006)]
    steps = np.concatenate([np.diff(each["log_odds"], axis=1, prepend=0.0) for each in runs])
    towards = np.where(np.concatenate([each["worlds"] for each in runs]), 1, -1)
    scores = (towards[:, None] * steps - 0.5 / multiplier**2) * multiplier
    count, total = len(scores), scores.sum(axis=1) / np.sqrt(rounds)
    assert np.abs(scores.mean(axis=0)).max() < 4 / np.sqrt(count)
    assert abs(total.mean()) < 3.3 / np.sqrt(count)
    assert abs(total.var() - 1) < 3.3 * np.sqrt(2 / count)
    assert stats.kstest(total, "norm").pvalue > 1e-3
    apart = np.corrcoef(scores.T)[np.triu_indices(rounds, 1)]
    assert np.abs(apart).max() < 4 / np.sqrt(count)
    wins = int((total > -mu / 2).sum())
    assert stats.binomtest(wins, count, stats.norm.cdf(mu / 2)).pvalue > 1e-3


@pytest.mark.parametrize(
    ("trust", "neighbouring"), [("central", "add-remove"), ("local", "replace")]
)
def test_with_noise_scaled_to_what_a_client_changes_the_game_is_the_one_that_theory_predicts(
    trust, neighbouring, small, run
):
    config = small(
        CLIENT
        | {"federation.trust": trust, "privacy.neighbouring": neighbouring, "run.seed": 5}
        | {"privacy.sensitivity": "local", "privacy.noise-multiplier": 2.0, "training.rounds": 4}
        | {"trials.count": 600, "trials.batch": 300, "federation.partition": "dirichlet"}
        | {"audit.mode": "oracle", "training.batch-size": 0}
    )
    transcript = run(config)
    mu = np.sqrt(4) / (2.0 * (np.sqrt(2) if trust == "local" else 1.0))
    final, worlds = transcript["log_odds"][:, -1], transcript["worlds"]
    assert stats.kstest(final[worlds], stats.norm(mu**2 / 2, mu).cdf).pvalue > 1e-3
    assert stats.kstest(final[~worlds], stats.norm(-(mu**2) / 2, mu).cdf).pvalue > 1e-3
    wins = int(((final > 0) == worlds).sum())
    assert stats.binomtest(wins, 600, stats.norm.cdf(mu / 2)).pvalue > 1e-3


@pytest.mark.slow
def test_under_global_noise_the_realised_norms_predict_the_advantage(small, run):
    config = small(
        CLIENT
        | {"training.local-learning-rate": 0.2, "privacy.noise-multiplier": 1.0, "run.seed": 5}
        | {"training.rounds": 4, "trials.count": 600, "trials.batch": 300}
        | {"audit.mode": "oracle", "training.batch-size": 0}
    )
    transcript = run(config)
    norms = transcript["sensitivities"]
    assert 0.1 < norms.min() < norms.max() <= 1 + 1e-12
    np.testing.assert_array_equal(transcript["noise_stds"], np.ones_like(norms))
    wins = ((transcript["log_odds"][:, -1] > 0) == transcript["worlds"]).sum()
    chances = stats.norm.cdf(np.sqrt((norms**2).sum(1)) / 2)
    # Wins are a sum of independent coins, each with a chance of its own: 3.3 deviations, p = 1e-3.
    assert abs(wins - chances.sum()) < 3.3 * np.sqrt((chances * (1 - chances)).sum())
    assert chances.mean() > 0.6


def test_the_membership_attack_goes_by_the_mean_loss_of_the_clients_records(small, tmp_path):
    config = small(CLIENT)
    grid, transcript, chosen = _record(config, tmp_path / "run")
    final = dict(grid.recorded[chosen["adversary"]])["evaluate"].array_records[messages.MODEL]
    known, theta = federation.load(config), torch.tensor(messages.only(final))
    losses, _ = known.evaluate(theta, *known.members(np.arange(24)))
    inside = known.client_of == chosen["client"]
    expected = losses[:, inside].mean(1) <= losses[:, ~inside].mean(1)
    np.testing.assert_array_equal(transcript["challenge_is_member"], expected)
    threshold = losses[:, ~inside].mean(1, keepdim=True)
    rate = (losses[:, ~inside] <= threshold).double().mean(1)
    np.testing.assert_allclose(transcript["true_positive_rate"], rate)


def test_the_report_names_the_client_and_its_data(small, tmp_path):
    config = small(CLIENT | {"federation.partition": "dirichlet", "challenge.client": 1})
    directory = RunDirectory.create(tmp_path / "run", config)
    server_app.carry_out(RecordingGrid(config), preflight(config), directory)
    report = directory.read_json("report.json")
    size = int((federation.load(config).client_of == 1).sum())
    assert report["unit"] == "client"
    details = report["details"]
    target = {"client": 1, "records": size, "record": None}
    assert target.items() <= details["challenge"].items()
    assert details["empirical"]["sensitivity_bound"] == 1.0
    page = " ".join(unescape(directory.path.joinpath("report.html").read_text()).split())
    assert "tell whether one client's data were used" in page
    assert f"with all {size} records of client 1 or on D′, where the client has no records" in page
    assert details["config"]["training.local-epochs"] == 2
    assert details["config"]["training.batch-size"] == 3
    assert "if the noise were secret" in page
    assert "replace neighbours at noise multiplier 0.750" in page
    assert "about the target record" not in page
