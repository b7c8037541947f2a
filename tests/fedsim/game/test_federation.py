"""A federation is its configuration's: the run's seed, batches of trials and noise do not change
the data."""

import numpy as np
import pytest
import torch

from adversaries.errors import InputError
from fedsim.federation.server import plan
from fedsim.game import federation


@pytest.mark.parametrize(
    "change", [{"run.seed": 9}, {"trials.batch": 2}, {"privacy.rho-beta": 0.6}]
)
def test_the_same_records_belong_to_the_same_clients(change, small):
    one, other = federation.load(small()), federation.load(small(change))
    np.testing.assert_array_equal(one.split.members, other.split.members)
    np.testing.assert_array_equal(one.client_of, other.client_of)


def test_another_data_seed_is_another_federation(small):
    one, other = (
        federation.load(small()),
        federation.load(small({"data.seed": 1})),
    )
    assert not np.array_equal(one.split.members, other.split.members)


def test_every_record_has_one_client(small):
    known = federation.load(small())
    owned = np.concatenate([known.owned_by(client) for client in range(3)])
    assert sorted(owned.tolist()) == list(range(24))


def test_nobody_trains_on_held_out_records_or_the_pool(small):
    split = federation.load(small()).split
    parts = [set(part.tolist()) for part in (split.members, split.held_out, split.pool)]
    assert sum(map(len, parts)) == len(set.union(*parts))


def test_records_come_as_tensors_of_the_dataset(small):
    known = federation.load(small())
    features, labels = known.members(np.array([3, 1]))
    expected = known.split.dataset.train.take(known.split.members[[3, 1]])
    np.testing.assert_array_equal(features.numpy(), expected.features)
    np.testing.assert_array_equal(labels.numpy(), expected.labels)


def test_frozen_values_are_the_seeds_and_not_the_processs(small):
    config = small({"model.name": "mlp", "model.trainable": "3"})
    federation.recent.clear()
    one = federation.load(config).model.get_parameter("1.weight")
    torch.rand(1)
    federation.recent.clear()
    assert torch.equal(one, federation.load(config).model.get_parameter("1.weight"))
    assert federation.load(config).clipper.model.get_parameter("3.weight").requires_grad


def test_a_network_for_other_records_is_refused_before_anything_is_sent(small):
    config = small({"model.name": "torchvision:squeezenet1_1"})
    with pytest.raises(InputError, match=r"torchvision:squeezenet1_1, which does not take records"):
        federation.load(config)


def test_a_batch_shrinks_to_half_of_the_memory_and_takes_the_rest_of_the_experiment_along(small):
    config = small({"trials.count": 1000, "trials.batch": 1000})
    parameters = sum(p.numel() for p in federation.load(config).model.parameters())
    trial = parameters * (160 + 16 * config.federation.clients)
    limited = config.model_copy(
        update={"run": config.run.model_copy(update={"max_memory": str(20 * trial)})}
    )
    assert plan.fit_batch(limited) == limited.with_batch(10)
    assert plan.fit_batch(config) == config  # which has room here
    # The other half is for gradients, whatever the batch of trials is.
    assert federation.load(limited).clipper.max_memory == 10 * trial


def test_memory_for_not_even_one_trial_is_refused_in_words(small):
    with pytest.raises(InputError, match=r"one trial of this model takes .* \(run\.max-memory\)"):
        plan.fit_batch(small({"run.max-memory": "1kB"}))


def test_blocks_of_sampled_records_are_known_before_a_run(small):
    known = federation.load(small())
    whole, sampled = known.cut(4, sampled=False), known.cut(4, sampled=True)
    # A trial's own records are copies of its own.
    assert sampled.bytes > whole.bytes


def test_kept_federations_are_bounded_by_their_bytes(small, monkeypatch):
    experiments = [small({"data.seed": seed}) for seed in range(5)]
    federation.recent.clear()
    for experiment in experiments:  # each makes a copy of its pool, all share one dataset
        federation.load(experiment).pool([0])
    first, second, *_ = (each.sizes() for each in federation.recent.values())
    shared = sum(first[each] for each in first.keys() & second.keys())
    own = sum(first.values()) - shared
    assert len(federation.recent) == 5
    monkeypatch.setattr(federation, "MOST_BYTES", shared + 7 * own // 2)
    federation.load(experiments[1])
    assert [each for each, _ in federation.recent] == [experiments[i] for i in (3, 4, 1)]
    monkeypatch.setattr(federation, "MOST_BYTES", 0)
    federation.load(experiments[2])
    assert [each for each, _ in federation.recent] == [experiments[i] for i in (1, 2)]


def test_free_memory_cuts_no_sum_that_real_noise_protects(small, monkeypatch):
    """It depends on the records, and another number of rows moves others' gradients."""
    cut = []
    for free in (2**16, 2**34):
        monkeypatch.setattr(federation, "spare", lambda _, free=free: free)
        # Another seed: a federation is kept.
        real = {"privacy.noise-source": "system", "data.seed": free % 1000}
        cut.append(federation.load(small(real)).cut(1, sampled=True).records)
    assert cut[0] == cut[1] >= 64
