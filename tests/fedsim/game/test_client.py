"""A client sums its own records, and nobody else's."""

import numpy as np
import pytest
import torch

from fedsim.game import federation
from fedsim.game.client import clean_sum, local_step_size, local_steps, noise
from fedsim.game.pair import challenge_gradients
from fedsim.learning.training import clipped_block, models


def _federation(config):
    known = federation.load(config)
    theta = models.initial_parameters(
        lambda: federation.build_model(config, known.split.dataset), 0, range(4)
    )
    return known, theta


@pytest.mark.parametrize("scheme", ["iid", "dirichlet"])
def test_the_clients_sums_add_up_to_the_sum_over_d(scheme, small):
    known, theta = _federation(small({"federation.partition": scheme}))
    whole = known.clipper.clipped_sum(theta, *known.members(np.arange(24)))
    parts = torch.stack([clean_sum(known, client, theta) for client in range(3)])
    torch.testing.assert_close(parts.sum(0), whole, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("replacement", [None, 5])
def test_the_two_worlds_differ_by_the_challenge_and_nothing_else(replacement, small):
    known, theta = _federation(small({"privacy.neighbouring": "replace"} if replacement else {}))
    record = 7
    client = int(known.client_of[record])
    sums = [
        clean_sum(known, client, theta, record, replacement, torch.full((4,), world))
        for world in (True, False)
    ]
    torch.testing.assert_close(sums[0], clean_sum(known, client, theta), rtol=1e-5, atol=1e-6)
    present, absent = challenge_gradients(known, theta, record, replacement)
    torch.testing.assert_close(sums[0] - sums[1], present - absent, rtol=1e-5, atol=1e-6)
    assert bool((absent == 0).all()) == (replacement is None)


def test_each_trial_trains_on_its_own_world(small):
    known, theta = _federation(small())
    theta[:] = theta[0]
    worlds = torch.tensor([True, False, True, False])
    sums = clean_sum(known, int(known.client_of[7]), theta, 7, None, worlds)
    torch.testing.assert_close(sums[0], sums[2])
    torch.testing.assert_close(sums[1], sums[3])
    assert not torch.allclose(sums[0], sums[1])


@pytest.mark.parametrize("replacement", [None, 5])
def test_a_sampled_sum_is_that_of_the_records_that_take_part(replacement, small):
    known, theta = _federation(small({"privacy.neighbouring": "replace"} if replacement else {}))
    record = 7
    client = int(known.client_of[record])
    taking_part = torch.rand(4, 24, generator=torch.Generator().manual_seed(0)) < 0.5
    taking_part[:, record] = torch.tensor([True, True, False, False])
    worlds = torch.tensor([True, False, True, False])
    sums = clean_sum(known, client, theta, record, replacement, worlds, taking_part)
    for trial in range(4):
        expected = torch.zeros(theta.shape[1], dtype=torch.float64)
        for position in known.owned_by(client):
            if not taking_part[trial, position]:
                continue
            # The replacement takes part where the record that it replaces would.
            if worlds[trial] or position != record:
                records = known.members(np.asarray([position]))
            elif replacement is not None:
                records = known.pool([replacement])
            else:
                continue
            expected += known.clipper.clipped_sum(theta[trial : trial + 1], *records)[0]
        torch.testing.assert_close(sums[trial], expected, rtol=1e-5, atol=1e-6)


def test_sampling_every_record_changes_nothing(small):
    known, theta = _federation(small())
    everyone = torch.ones(4, 24, dtype=torch.bool)
    torch.testing.assert_close(
        clean_sum(known, 0, theta, participation=everyone), clean_sum(known, 0, theta)
    )


def test_a_gradient_longer_than_the_clipping_norm_stops_everything(small, monkeypatch):
    known, theta = _federation(small())
    too_long = lambda norms, clipping_norm: 1.01 * clipping_norm / norms  # noqa: E731
    monkeypatch.setattr(clipped_block, "clipping_factors", too_long)
    with pytest.raises(RuntimeError, match="clipping is broken"):
        challenge_gradients(known, theta, 7, None)


def _plain_client(config, known, client, theta, noise):
    """Train one client's copy by autograd, record by record; return its last model and R."""
    model = federation.build_model(config, known.split.dataset)
    torch.nn.utils.vector_to_parameters(theta.clone(), model.parameters())
    features, labels = known.members(known.owned_by(client))
    sent = torch.zeros(len(theta), dtype=torch.float64)
    for drawn in noise:
        released = drawn.clone()
        for feature, label in zip(features, labels, strict=True):
            loss = torch.nn.functional.cross_entropy(model(feature[None]), label[None])
            gradients = torch.autograd.grad(loss, list(model.parameters()))
            gradient = torch.cat([g.flatten() for g in gradients])
            released += gradient * min(1.0, config.training.clipping_norm / float(gradient.norm()))
        sent += released
        rate = config.training.local_learning_rate
        clients, records = config.federation.clients, config.data.records
        before = torch.nn.utils.parameters_to_vector(model.parameters()).detach()
        after = before - rate * released / (records / clients)
        torch.nn.utils.vector_to_parameters(after.float(), model.parameters())
    last = torch.nn.utils.parameters_to_vector(model.parameters()).detach()
    return last, sent


def test_local_steps_are_those_of_a_plain_loop_and_the_server_averages_the_models(small):
    """At equal rates: theta - eta sum_j R_j / n is the mean of the clients' models (FedAvg)."""
    steps = {"training.local-steps": 4, "training.local-learning-rate": 0.5}
    config = small({"federation.trust": "local"} | steps)
    known, theta = _federation(config)
    generator = torch.Generator().manual_seed(1)
    noises = 0.1 * torch.randn(3, 4, *theta.shape, generator=generator, dtype=torch.float64)
    models, sent = [], []
    for client in range(3):
        total = local_steps(
            lambda model, _, client=client: clean_sum(known, client, model),
            theta,
            4,
            local_step_size(config, 1),
            lambda step, client=client: noises[client, step - 1],
        )
        model, expected = _plain_client(config, known, client, theta[2], noises[client, :, 2])
        torch.testing.assert_close(total[2], expected, rtol=1e-4, atol=1e-5)
        models.append(model)
        sent.append(total[2])
    stepped = theta[2] - config.training.learning_rate * torch.stack(sent).sum(0) / 24
    torch.testing.assert_close(stepped.float(), torch.stack(models).mean(0), rtol=1e-4, atol=1e-5)


def test_one_local_step_sends_the_noisy_sum_itself(small):
    known, theta = _federation(small())
    drawn = torch.ones(theta.shape, dtype=torch.float64)
    sent = local_steps(lambda model, _: clean_sum(known, 0, model), theta, 1, 9.0, lambda _: drawn)
    assert torch.equal(sent, clean_sum(known, 0, theta) + drawn)


def test_the_local_rate_is_the_servers_unless_given_and_follows_the_schedule(small):
    local = {"federation.trust": "local", "training.local-steps": 2, "training.learning-rate": 0.8}
    halved = {"training.schedule": "linear", "training.rounds": 2}
    given = {"training.local-learning-rate": 0.2}
    per_record = 3 / 24
    assert local_step_size(small(local), 2) == pytest.approx(0.8 * per_record)
    assert local_step_size(small(local | halved), 2) == pytest.approx(0.4 * per_record)
    assert local_step_size(small(local | halved | given), 2) == pytest.approx(0.1 * per_record)


@pytest.mark.parametrize("steps", [1, 4])
def test_no_two_local_steps_share_their_noise(steps, small):
    config = small({"federation.trust": "local", "training.local-steps": steps})
    number = config.participation.step_number
    rounds = [number(i, j) for i in range(1, 6) for j in range(1, steps + 1)]
    assert rounds == list(range(1, 5 * steps + 1))


def test_noise_has_the_standard_deviation_of_its_trial():
    std = torch.tensor([0.0, 2.0, 5.0], dtype=torch.float64)
    drawn = noise(0, range(3), 1, 0, std, 20_000)
    # The standard deviation of n normals is known to 1/sqrt(2n): 0.5 %, here 4 of them.
    torch.testing.assert_close(drawn.std(1), std, rtol=0.02, atol=0.0)
