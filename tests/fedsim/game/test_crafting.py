"""What is put into D is made as its kind says, takes one record's place, and nothing else moves."""

import numpy as np
import pytest
import torch

from fedsim.game import federation
from fedsim.game.challenge import choose
from fedsim.game.client import clean_sum
from fedsim.game.federation import initial_parameters
from fedsim.game.known_round import KnownRound
from fedsim.game.pair import challenge_gradients, common_part
from fedsim.game.round_game import RoundGame

MADE = ["clipbkd", "mislabelled"]
KINDS = [*MADE, "gradient"]


def _known(small, kind, **changes):
    config = small({"challenge.kind": kind} | {k.replace("_", "."): v for k, v in changes.items()})
    return config, federation.load(config)


def _pair(known, record):
    features, labels = known.members(np.asarray([record]))
    return features[0].numpy(), int(labels[0])


def _place(config):
    record = choose(config).record
    assert record is not None
    return record


@pytest.mark.parametrize("kind", MADE)
def test_one_record_of_d_is_replaced_and_no_other(kind, small):
    config, known = _known(small, kind)
    original = federation.load(small()).split.members_records
    record = choose(config).record
    changed = known.split.members_records
    others = np.delete(np.arange(24), [record])
    np.testing.assert_array_equal(changed.features[others], original.features[others])
    np.testing.assert_array_equal(changed.labels[others], original.labels[others])
    same = np.array_equal(changed.features[record], original.features[record])
    assert same == (kind == "mislabelled")
    if kind == "mislabelled":
        assert changed.labels[record] != original.labels[record]


def test_clipbkd_is_along_the_direction_that_the_records_use_least(small):
    config, known = _known(small, "clipbkd")
    point, label = _pair(known, _place(config))
    rows = federation.load(small()).split.members_records.features.reshape(24, -1)
    assert np.linalg.norm(point) == pytest.approx(np.linalg.norm(rows, axis=1).mean(), rel=1e-6)
    np.testing.assert_allclose(rows @ point.ravel(), 0, atol=1e-4)  # 24 records of 64 pixels
    theta = initial_parameters(config, known, range(1))
    logits = known.outputs(theta, torch.tensor(point)[None])[0, 0]
    assert label == int(logits.argmin())


def test_the_gradient_of_clipbkd_is_nearly_orthogonal_to_those_of_the_data(small):
    config, known = _known(small, "clipbkd")
    record = _place(config)
    theta = initial_parameters(config, known, range(1))
    gradients = known.clipper.clipped_gradients(theta, *known.members(np.arange(24)))[0]
    weights = torch.nn.functional.normalize(gradients[:, :640])  # of the layer, without its biases
    cosines = (weights @ weights[record]).abs()
    others = np.delete(np.arange(24), [record])
    assert float(cosines[others].max()) < 1e-5
    assert float((weights @ weights[others[0]]).abs()[others[1:]].median()) > 0.05


def test_a_mislabelled_record_has_the_class_that_the_first_model_likes_least(small):
    config, known = _known(small, "mislabelled", challenge_record=2)
    own = int(federation.load(small()).split.members_records.labels[2])
    point, label = _pair(known, 2)
    logits = known.outputs(initial_parameters(config, known, range(1)), torch.tensor(point)[None])
    others = [c for c in range(10) if c != own]
    assert label == min(others, key=lambda c: float(logits[0, 0, c]))


@pytest.mark.parametrize("kind", MADE)
def test_where_it_is_replaced_d_prime_has_the_original(kind, small):
    config, known = _known(small, kind, privacy_neighbouring="replace")
    original = federation.load(small()).split
    chosen = choose(config)
    assert chosen.replacement == len(original.pool)
    features, labels = known.pool([chosen.replacement])
    np.testing.assert_array_equal(features[0], original.members_records.features[_place(config)])
    assert int(labels[0]) == original.members_records.labels[_place(config)]


def test_everybody_who_forms_d_makes_the_same(small):
    config, known = _known(small, "clipbkd")
    federation.recent.clear()
    again = federation.load(config.with_batch(3))
    assert again is not known
    for mine, theirs in zip(
        (known.split.members_records.features, known.split.members_records.labels),
        (again.split.members_records.features, again.split.members_records.labels),
        strict=True,
    ):
        np.testing.assert_array_equal(mine, theirs)


@pytest.mark.parametrize("kind", KINDS)
def test_its_place_is_the_clients_that_is_asked_for_and_never_the_adversarys(kind, small):
    for client in range(3):
        chosen = choose(_known(small, kind, challenge_client=client)[0])
        assert chosen.client == client != chosen.adversary


@pytest.mark.parametrize("neighbouring", ["add-remove", "replace"])
@pytest.mark.parametrize("kind", ["clipbkd", "gradient", "record"])
def test_the_worlds_differ_by_the_target_and_by_nothing_else(kind, neighbouring, small):
    config, known = _known(small, kind, privacy_neighbouring=neighbouring)
    chosen = choose(config)
    theta = initial_parameters(config, known, range(2))
    with_it, without = (
        clean_sum(
            known,
            chosen.client,
            theta,
            chosen.record,
            chosen.replacement,
            torch.full((2,), world),
        )
        for world in (True, False)
    )
    present, absent = challenge_gradients(known, theta, _place(config), chosen.replacement)
    torch.testing.assert_close(with_it - without, present - absent, rtol=1e-5, atol=1e-6)
    game = RoundGame(1, range(2), 1.0, chosen.client, chosen.record, chosen.replacement)
    rest = common_part(KnownRound(config, known, game, theta), [chosen.client])
    torch.testing.assert_close(with_it, rest + present, rtol=1e-5, atol=1e-6)
    if kind == "record":
        (one,) = known.clipper.clipped_gradients(
            theta[:1], *known.members(np.asarray([chosen.record]))
        )
        torch.testing.assert_close(present[0], one[0])


def test_the_vector_is_of_the_clipping_norm_and_opposed_where_it_is_replaced(small):
    for neighbouring, sign in (("add-remove", 0), ("replace", -1)):
        changes = {
            "challenge.kind": "gradient",
            "training.clipping-norm": 2.5,
            "privacy.neighbouring": neighbouring,
        }
        config = small(changes)
        known = federation.load(config)
        theta = initial_parameters(config, known, range(2))
        present, absent = challenge_gradients(known, theta, _place(config), None)
        torch.testing.assert_close(present.norm(dim=1), torch.full((2,), 2.5, dtype=present.dtype))
        torch.testing.assert_close(present[0], present[1])
        torch.testing.assert_close(absent, sign * present)


def test_without_a_coordinate_the_vector_has_a_random_direction(small):
    _, known = _known(small, "gradient")
    assert known.direction is not None
    assert float(known.direction.norm()) == pytest.approx(1)
    assert float(known.direction.abs().max()) < 0.2


def test_a_fixed_first_model_is_that_of_the_first_trial(small):
    random, fixed = small(), small({"model.initialisation": "fixed"})
    drawn = initial_parameters(random, federation.load(random), range(3))
    held = initial_parameters(fixed, federation.load(fixed), range(1, 3))
    assert not torch.equal(drawn[0], drawn[1])
    assert torch.equal(held, drawn[:1].expand(2, -1))


def test_the_worst_first_model_leaves_a_gradient_to_the_challenge_alone(small):
    config, known = _known(small, "mislabelled", model_initialisation="worst-case")
    record = _place(config)
    theta = initial_parameters(config, known, range(2))
    assert torch.equal(theta[0], theta[1])
    norms = known.clipper.clipped_gradients(theta[:1], *known.members(np.arange(24)))[0].norm(dim=1)
    others = np.delete(np.arange(24), [record])
    assert float(norms[record]) == pytest.approx(1.0, rel=1e-5)  # clipped
    assert float(norms[others].max()) < 0.5
