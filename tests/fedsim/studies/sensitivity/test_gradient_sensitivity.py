"""Every record's and pair's local sensitivity, against gradients that are known beforehand."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from torch import nn
from torch.func import functional_call, grad, vmap

from adversaries.errors import InputError
from fedsim.game import federation
from fedsim.game.federation import Federation
from fedsim.learning.data import Dataset, Records, Split
from fedsim.learning.training import clipped_block, clipping, models
from fedsim.learning.training.clipping import Clipper
from fedsim.learning.training.tasks import per_example
from fedsim.privacy.mechanism import Neighbouring
from fedsim.studies.sensitivity import gradient_sensitivity
from fedsim.studies.sensitivity.gradient_sensitivity import (
    check_pairs,
    largest,
    pair_sensitivities,
    record_sensitivities,
)

ADD_REMOVE, REPLACE = Neighbouring.ADD_REMOVE, Neighbouring.REPLACE

TOY = np.array([[3.0, 4], [0, 1], [6, 8]])
"""Worked by hand: clipped to 3 they are (1.8, 2.4), (0, 1), (1.8, 2.4)."""


def known_gradients(members, pool, clipping_norm=3.0):
    """Return a federation whose records have these gradients [n, P] and [p, P] at the model 0.

    One logit <theta, x> of a record that is labelled 1 has the gradient -x/2 at theta = 0.
    """
    features = (-2 * np.concatenate([members, pool])).astype(np.float32)
    dataset = Dataset(
        "known", Records(features, np.ones(len(features), np.int64)), None, 2, "tabular"
    )
    count = len(members)
    held_out = np.empty(0, np.int64)
    split = Split(dataset, np.arange(count), held_out, np.arange(count, len(features)))
    model = nn.Linear(members.shape[1], 1, bias=False)
    clipper = Clipper(model, clipping_norm)
    return Federation(split, np.zeros(count, np.int64), model, clipper, torch.device("cpu"))


def clip(gradients, clipping_norm=3.0):
    norms = np.linalg.norm(gradients, axis=1, keepdims=True)
    within = clipping_norm * (1 - clipped_block.MARGIN)
    return gradients * np.minimum(1, within / np.maximum(norms, 1e-300))


def brute_force(members, pool):
    return np.array([[np.linalg.norm(g - h) for h in clip(pool)] for g in clip(members)])


ZERO = torch.zeros(1, 2)


class TestOfTheReferenceVectors:
    known = known_gradients(TOY, np.array([[-6.0, -8.0]]))

    def test_removal_of_the_third_moves_a_step_by_3(self):
        found = record_sensitivities(self.known, ZERO)
        np.testing.assert_allclose(found, [[3, 1, 3]], rtol=1e-5)

    def test_replacement_of_the_third_by_its_opposite_moves_it_by_6(self):
        found = pair_sensitivities(self.known, ZERO, [(2, 0), (1, 0)])
        np.testing.assert_allclose(found[0], [6, np.hypot(1.8, 3.4)], rtol=1e-5)

    def test_the_search_finds_the_first_of_two_that_are_equal(self):
        replaced = largest(self.known, ZERO[0], REPLACE)
        assert (replaced.record, replaced.replacement) == (0, 0)
        removed = largest(self.known, ZERO[0], ADD_REMOVE)
        assert (removed.record, removed.replacement) == (0, None)
        assert (removed.pairs, removed.bound, replaced.bound) == (3, 3, 6)


@pytest.mark.parametrize("neighbouring", [ADD_REMOVE, REPLACE])
def test_where_all_gradients_are_clipped_alike_the_first_comes_first(neighbouring, monkeypatch):
    monkeypatch.setitem(clipping.BLOCK_BYTES, "cpu", 2**13)
    members, pool = np.tile([[4.0, 0.0]], (300, 1)), np.tile([[0.0, 9.0]], (50, 1))
    known = known_gradients(members, pool)
    first = largest(known, ZERO[0], neighbouring)
    assert (first.record, first.replacement or 0) == (0, 0)


def test_the_gradient_of_a_linear_model_has_a_closed_form(small):
    """(p - y) x (x, 1) for softmax regression with a bias: |g| = |p - y| sqrt(|x|^2 + 1)."""
    config = small({"training.clipping-norm": 4.0})
    known = federation.load(config)
    theta = initial(config, known, 3)
    features, labels = known.members(np.arange(config.data.records))
    x = features.flatten(1).double()
    weights, bias = theta[:, : 64 * 10].unflatten(1, (10, 64)).double(), theta[:, 640:].double()
    errors = torch.softmax(x @ weights.mT + bias[:, None], dim=-1)
    errors -= nn.functional.one_hot(labels, 10)
    norms = errors.norm(dim=-1) * (x.square().sum(1) + 1).sqrt()
    assert norms.min() < 4.0 < norms.max()
    found = record_sensitivities(known, theta)
    np.testing.assert_allclose(found, norms.clamp(max=4.0), rtol=1e-5)


@pytest.mark.parametrize("name", ["mlp", "mnist-cnn"])
def test_all_pairs_equal_torch_func_record_by_record(name, small, monkeypatch):
    if name == "mnist-cnn":
        monkeypatch.setitem(models.MODELS, name, tiny_cnn)
    config = small({"model.name": name, "training.clipping-norm": 1.5})
    known = federation.load(config)
    theta = initial(config, known, 1)[0]
    everybody = [known.members(np.arange(24)), known.pool(list(range(30)))]
    ours, theirs = (reference(known.model, theta, *records, 1.5) for records in everybody)
    expected = torch.cdist(ours, theirs, compute_mode="donot_use_mm_for_euclid_dist").numpy()
    pairs = [(3, 4), (23, 29), (3, 0)]
    measured = pair_sensitivities(known, theta[None], pairs)[0]
    np.testing.assert_allclose(measured, [expected[pair] for pair in pairs], rtol=1e-5)
    truth = largest(known, theta, REPLACE)
    first = np.unravel_index(expected.argmax(), expected.shape)
    assert (truth.record, truth.replacement) == first


def tiny_cnn(shape, classes, hidden):
    """Layers of the kinds that mnist-cnn has, for images of 8x8."""
    return nn.Sequential(
        nn.Conv2d(1, 4, 3),
        nn.ReLU(),
        models.ChannelAffine(4),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(36, classes),
    )


def initial(config, known, trials):
    return models.initial_parameters(
        lambda: federation.build_model(config, known.split.dataset), 0, range(trials)
    )


def reference(model, theta, features, labels, clipping_norm):
    """Return the clipped gradients [n, P] in float64, as torch.func gives them."""
    values = models.unflatten(theta.double(), models.parameter_shapes(model))

    def loss(values, x, y):
        return per_example(functional_call(model, values, (x[None],)), y[None])[0]

    each = vmap(grad(loss), in_dims=(None, 0, 0))(values, features.double(), labels)
    gradients = torch.cat([part.flatten(1) for part in each.values()], dim=1)
    return gradients * (clipping_norm / gradients.norm(dim=1, keepdim=True)).clamp(max=1)


# Multiples of 1/8, which float32 holds: pairs are exactly equal, or differ by far more than 1e-6.
GRADIENTS = st.tuples(st.integers(1, 6), st.integers(1, 9)).flatmap(
    lambda sizes: st.tuples(
        *(
            arrays(np.float64, (size, 2), elements=st.integers(-40, 40).map(lambda x: x / 8))
            for size in sizes
        )
    )
)


@settings(max_examples=40)
@given(GRADIENTS, st.integers(1, 200))
def test_the_exhaustive_search_is_brute_force(gradients, rows_bytes):
    members, pool = gradients
    known, expected = known_gradients(members, pool), brute_force(members, pool)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gradient_sensitivity, "ROWS_BYTES", rows_bytes)
        truth = largest(known, ZERO[0], REPLACE)
    first = np.argwhere(expected > expected.max() - 3e-6)[0].tolist()
    assert [truth.record, truth.replacement] == first
    assert truth.sensitivity == pytest.approx(expected.max(), abs=1e-5)
    assert truth.pairs == expected.size


@settings(max_examples=20)
@given(GRADIENTS)
def test_no_local_sensitivity_exceeds_what_clipping_allows(gradients):
    known = known_gradients(*gradients)
    assert record_sensitivities(known, ZERO).max() <= 3 * (1 + 1e-6)
    assert largest(known, ZERO[0], REPLACE).sensitivity <= 6 * (1 + 1e-6)


@pytest.fixture(scope="module")
def normal():
    random = np.random.default_rng(4)
    members, pool = random.normal(size=(40, 5)), random.normal(size=(90, 5))
    return known_gradients(members, pool, 2.0), np.linalg.norm(
        clip(members, 2.0)[:, None] - clip(pool, 2.0)[None], axis=2
    )


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("block", [1, 2**13, 2**25])
def test_neither_blocks_nor_threads_matter(block, threads, normal, monkeypatch):
    known, expected = normal
    monkeypatch.setitem(clipping.BLOCK_BYTES, "cpu", block)
    monkeypatch.setattr(gradient_sensitivity, "ROWS_BYTES", 700)
    monkeypatch.setattr(gradient_sensitivity, "BLOCK_PAIRS", 100)
    model = known.model
    known = replace(known, clipper=Clipper(model, 2.0, threads))
    models_of_trials = torch.zeros(9, 5)
    pairs = [(0, 3), (39, 89), (2, 3)]
    found = pair_sensitivities(known, models_of_trials, pairs)
    np.testing.assert_allclose(found, [[expected[p] for p in pairs]] * 9, rtol=1e-5)
    reports = []
    truth = largest(known, models_of_trials[0], REPLACE, reports.append)
    assert (reports, reports[-1]) == (sorted(reports), 1)
    first = np.unravel_index(expected.argmax(), expected.shape)
    assert (truth.record, truth.replacement) == first


def test_an_unclipped_gradient_is_a_broken_promise(normal, monkeypatch):
    known, _ = normal
    monkeypatch.setattr(
        clipped_block,
        "clipping_factors",
        lambda norms, _: torch.ones(norms.shape),
    )
    for measure in (
        lambda: record_sensitivities(known, torch.zeros(1, 5)),
        lambda: largest(known, torch.zeros(5), REPLACE),
    ):
        with pytest.raises(RuntimeError, match="clipping is broken"):
            measure()


@pytest.mark.parametrize(
    ("neighbouring", "of", "message"),
    [
        (REPLACE, [(0, None)], "a pair has no replacement"),
        (ADD_REMOVE, [(0, 1)], "a pair has a replacement"),
        (REPLACE, [(40, 0)], "the record is 40, but D has 40 records; give 0 to 39"),
        (REPLACE, [(0, -1)], "the replacement is -1, but the pool has 90 records"),
    ],
)
def test_what_is_no_pair_is_refused(neighbouring, of, message, normal):
    with pytest.raises(InputError, match=message):
        check_pairs(normal[0], of, neighbouring)


def test_an_empty_pool_and_unclipped_gradients_are_refused():
    with pytest.raises(InputError, match="the pool has no record"):
        largest(known_gradients(TOY, np.empty((0, 2))), ZERO[0], REPLACE)
    with pytest.raises(InputError, match=r"set training\.clipping = true"):
        largest(known_gradients(TOY, TOY, np.inf), ZERO[0], REPLACE)
