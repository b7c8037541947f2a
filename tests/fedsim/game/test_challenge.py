"""The pair is chosen by dissimilarity or given, and the worlds are balanced."""

import numpy as np
import pytest

from adversaries.errors import InputError
from adversaries.neighbours.dissimilarity import euclidean
from fedsim.game import federation
from fedsim.game.challenge import choose, embed, initial_parameters, worlds


def test_add_remove_takes_the_record_farthest_from_all_others(small):
    config = small()
    features = federation.load(config).split.members_records.features
    chosen = choose(config)
    assert chosen.record == euclidean(features, features).sum(1).argmax()
    assert chosen.replacement is None


def test_replace_takes_the_farthest_pair(small):
    config = small({"privacy.neighbouring": "replace"})
    split = federation.load(config).split
    distances = euclidean(split.members_records.features, split.pool_records.features)
    chosen = choose(config)
    best = np.unravel_index(distances.argmax(), distances.shape)
    assert (chosen.record, chosen.replacement) == best
    assert chosen.distance == pytest.approx(distances.max())


def test_a_given_pair_is_taken(small):
    chosen = choose(
        small(
            {"privacy.neighbouring": "replace", "challenge.record": 5, "challenge.replacement": 7}
        )
    )
    assert (chosen.record, chosen.replacement, chosen.measure) == (5, 7, "given")


@pytest.mark.parametrize("neighbouring", ["add-remove", "replace"])
@pytest.mark.parametrize("client", range(3))
def test_with_a_given_client_its_own_records_alone_are_compared(client, neighbouring, small):
    config = small({"challenge.client": client, "privacy.neighbouring": neighbouring})
    known = federation.load(config)
    own = known.owned_by(client)
    features, pool = known.split.members_records.features[own], known.split.pool_records.features
    chosen = choose(config)
    assert chosen.client == client
    if neighbouring == "replace":
        distances = euclidean(features, pool)
        best = np.unravel_index(distances.argmax(), distances.shape)
        assert (chosen.record, chosen.replacement) == (own[best[0]], best[1])
    else:
        assert chosen.record == own[euclidean(features, features).sum(axis=1).argmax()]
        assert chosen.replacement is None


def test_in_the_embedding_the_farthest_pair_of_last_inputs_is_taken(small):
    config = small(
        {"challenge.space": "embedding", "privacy.neighbouring": "replace", "model.name": "mlp"}
    )
    known = federation.load(config)
    theta = initial_parameters(config, known)
    split = known.split
    distances = euclidean(
        *(
            embed(known, part.features, theta)
            for part in (split.members_records, split.pool_records)
        )
    )
    chosen = choose(config)
    best = np.unravel_index(distances.argmax(), distances.shape)
    assert (chosen.record, chosen.replacement) == best
    assert chosen.distance == pytest.approx(distances.max())


@pytest.mark.parametrize("measure", ["ssim", "hamming", "gower"])
def test_an_embedding_has_no_pixels_bits_or_columns(measure, small):
    with pytest.raises(InputError, match=r"space is \"embedding\".*choose euclidean"):
        choose(small({"challenge.space": "embedding", "challenge.dissimilarity": measure}))


def test_a_search_reports_its_progress_and_is_made_once(small):
    config = small({"data.seed": 11})
    done = []
    first = choose(config, done.append)
    assert done[-1] == 1
    done.clear()
    assert choose(config, done.append) is first
    assert choose(config) is first
    assert not done


@pytest.mark.parametrize("record", range(0, 24, 4))
def test_the_adversary_never_holds_the_challenge_record(record, small):
    chosen = choose(small({"challenge.record": record}))
    assert chosen.adversary != chosen.client


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        (
            {
                "privacy.neighbouring": "replace",
                "challenge.record": 1,
                "challenge.replacement": 30,
            },
            "pool has records 0 to 29",
        ),
        ({"challenge.dissimilarity": "euclid"}, "euclidean"),
    ],
)
def test_a_pair_that_does_not_exist_is_refused(changes, complaint, small):
    with pytest.raises(InputError, match=complaint):
        choose(small(changes))


@pytest.mark.parametrize("trials", [2, 10, 1000])
def test_half_of_the_trials_train_on_d(trials):
    bits = worlds(3, trials)
    assert bits.sum() == trials / 2
    np.testing.assert_array_equal(bits, worlds(3, trials))


def test_the_worlds_are_shuffled():
    bits = worlds(0, 1000)
    assert 400 < (bits[1:] != bits[:-1]).sum() < 600
    assert not np.array_equal(bits, worlds(1, 1000))


def test_a_single_training_is_on_d():
    assert worlds(0, 1).all()


CLIENT = {"privacy.unit": "client", "federation.partition": "dirichlet"}


def test_at_client_level_the_client_farthest_from_the_others_is_chosen(small):
    config = small(CLIENT)
    known = federation.load(config)
    features = known.split.members_records.features
    apart = euclidean(features, features)
    inside = known.client_of == np.arange(3)[:, None]
    means = [apart[own][:, ~own].mean() for own in inside]
    chosen = choose(config)
    assert chosen.client == np.argmax(means)
    assert chosen.distance == pytest.approx(means[chosen.client])
    assert (chosen.record, chosen.replacement) == (None, None)


@pytest.mark.parametrize("client", range(3))
def test_a_given_client_is_taken_and_is_not_the_adversary(client, small):
    chosen = choose(small(CLIENT | {"challenge.client": client}))
    assert (chosen.client, chosen.measure, chosen.distance) == (client, "given", None)
    assert chosen.adversary != client


def test_a_pool_too_small_to_replace_a_client_is_refused(small):
    replaced = CLIENT | {"privacy.neighbouring": "replace", "federation.partition": "iid"}
    assert choose(small(replaced | {"data.pool": 8})).replacement is None
    with pytest.raises(InputError, match="has 8 records, but the pool has 7"):
        choose(small(replaced | {"data.pool": 7}))
