"""A study agrees with brute force: who is chosen, where it ranks, and what predicts it."""

import numpy as np
import pytest
import torch

from adversaries.errors import InputError
from adversaries.neighbours.dataset_sensitivity import rank_records
from adversaries.neighbours.dissimilarity import measure
from fedsim.federation.server import plan
from fedsim.game import challenge, federation
from fedsim.learning.training import models
from fedsim.studies.sensitivity import sensitivity_study
from fedsim.studies.sensitivity.gradient_sensitivity import pair_sensitivities
from fedsim.studies.sensitivity.sensitivity_study import follow

TRIALS, TOP = 4, 2
DATA = ("digits", "breast-cancer")
RELATIONS = ("add-remove", "replace")


def study(config, top, trials, progress=lambda done: None):
    """Return the study of a configuration, with as many trials in a batch as fit in memory."""
    batch = plan.fit_batch(config).trials.batch
    return sensitivity_study.study(config, batch, top, trials, progress)


CASES = [(data, relation) for data in DATA for relation in RELATIONS]


@pytest.fixture(scope="module", params=CASES, ids="-".join)
def found(request, small):
    data, relation = request.param
    changes = {"data.name": data, "privacy.neighbouring": relation, "training.clipping-norm": 6.0}
    return study(small(changes), TOP, TRIALS)


def first_model(known, config):
    build = lambda: federation.build_model(config, known.split.dataset)  # noqa: E731
    return models.initial_parameters(build, config.run.seed, range(1))


def every_pair(known, replace):
    others = range(len(known.split.pool)) if replace else [None]
    return [(i, j) for i in range(len(known.split.members)) for j in others]


def test_sensitivities_are_those_of_all_pairs_one_by_one(found):
    known, replace = found.loaded, found.candidates[0].pair.replacement is not None
    pairs = every_pair(known, replace)
    values = pair_sensitivities(known, first_model(known, found.config), pairs)[0]
    by_pair = dict(zip(pairs, values, strict=True))
    assert found.largest.pairs == len(pairs)
    assert found.largest.sensitivity == pytest.approx(values.max())
    for candidate in found.candidates:
        own = by_pair[candidate.pair.record, candidate.pair.replacement]
        assert candidate.first == pytest.approx(own, rel=1e-4)


def test_the_first_pair_is_the_challenge_and_others_follow_by_distance(found):
    config, split = found.config, found.loaded.split
    chosen, first = challenge.choose(config), found.candidates[0]
    assert (first.pair.record, first.pair.replacement) == (chosen.record, chosen.replacement)
    assert first.client == chosen.client
    name = config.challenge.dissimilarity
    if chosen.replacement is None:
        distances = rank_records(split.members_records.features, name)
    else:
        distances = measure(name)(split.members_records.features, split.pool_records.features)
    ranked = np.sort(distances.ravel())
    for choice, expected in (("max", ranked[::-1]), ("min", ranked)):
        got = [candidate.pair.distance for candidate in found.of(choice)]
        np.testing.assert_allclose(got, expected[:TOP])
    [worst] = found.of("worst")
    at = (worst.pair.record, worst.pair.replacement)
    assert worst.pair.distance == pytest.approx(distances[at if distances.ndim == 2 else at[0]])


def test_training_is_followed_and_stays_below_what_clipping_allows(found):
    for candidate in found.candidates:
        assert candidate.course.shape == (TRIALS, found.config.training.rounds)
        assert candidate.course.max() <= found.largest.bound * (1 + 1e-5)


@pytest.mark.parametrize(
    ("changes", "choice"),
    [
        ({}, "max"),
        ({"challenge.record": 5, "challenge.replacement": 7}, "given"),
    ],
)
def test_whatever_the_configuration_chooses_comes_first(small, changes, choice):
    config = small({"privacy.neighbouring": "replace"} | changes)
    first = study(config, 1, 2).candidates[0]
    chosen = challenge.choose(config)
    assert first.choice == choice
    assert (first.pair.record, first.pair.replacement) == (chosen.record, chosen.replacement)


@pytest.mark.parametrize(
    ("changes", "top"),
    [({}, 24), ({"challenge.record": 5}, 3)],
)
def test_places_are_those_of_the_ranking_though_a_pair_is_of_several(small, changes, top):
    config = small(changes)
    found = study(config, top, 1)
    features = found.loaded.split.members_records.features
    order = np.argsort(-rank_records(features, config.challenge.dissimilarity), kind="stable")
    for choice, expected in (("max", order[:top]), ("min", order[::-1][:top])):
        ranked = found.of(choice)
        assert [one.place for one in ranked] == list(range(1, top + 1))
        assert [one.pair.record for one in ranked] == expected.tolist()


def test_the_record_given_is_the_first_of_the_ranking_as_well(small):
    farthest = study(small(), 1, 1).candidates[0].pair.record
    found = study(small({"challenge.record": farthest}), 2, 1)
    assert [(one.choice, one.place) for one in found.candidates[:3]] == [
        ("given", 1),
        ("max", 1),
        ("max", 2),
    ]
    assert found.candidates[1].pair.record == farthest


@pytest.mark.parametrize("relation", RELATIONS)
def test_of_one_client_its_own_records_alone_are_ranked(small, relation):
    config = small({"challenge.client": 1, "privacy.neighbouring": relation})
    found = study(config, TOP, 2)
    chosen = challenge.choose(config)
    first = found.candidates[0].pair
    assert (first.record, first.replacement) == (chosen.record, chosen.replacement)
    assert first.distance == pytest.approx(chosen.distance)
    ranked = found.of("max") + found.of("min")
    assert {candidate.client for candidate in ranked} == {1}


def test_a_study_repeats_itself_whatever_the_batch(small):
    one, other = (study(small({"trials.batch": batch}), 1, 4) for batch in (1, 4))
    for a, b in zip(one.candidates, other.candidates, strict=True):
        assert a.pair == b.pair
        np.testing.assert_allclose(a.course, b.course, rtol=1e-5)


@pytest.mark.parametrize(
    ("changes", "top", "trials", "message"),
    [
        ({}, 1, 0, "trials is 0"),
        ({"privacy.neighbouring": "replace"}, 721, 2, "give 1 to 720"),
        ({"privacy.neighbouring": "replace", "challenge.client": 0}, 241, 2, "give 1 to 240"),
        (
            {
                "privacy.neighbouring": "replace",
                "challenge.record": 0,
                "challenge.replacement": 30,
            },
            1,
            2,
            "the pool has records 0 to 29",
        ),
    ],
)
def test_what_cannot_be_studied_is_refused_before_the_work(small, changes, top, trials, message):
    begun = []
    with pytest.raises(InputError, match=message):
        study(small(changes), top, trials, begun.append)
    assert not begun


REPLACE = {"privacy.neighbouring": "replace"}
MODES = [
    {"privacy.sensitivity": "local"},
    REPLACE,
    REPLACE | {"privacy.sensitivity": "local", "federation.trust": "local"},
    {
        "training.optimizer": "adam",
        "training.schedule": "cosine",
        "training.learning-rate": 0.05,
        "federation.trust": "local",
        "model.name": "mlp",
    },
    REPLACE | {"training.momentum": 0.9, "trials.batch": 3},
]


@pytest.mark.parametrize("mode", MODES, ids=lambda mode: "-".join(map(str, mode.values())))
def test_it_is_what_a_run_records_in_the_world_of_d(mode, small, run):
    """With little noise, and clipping that leaves some gradients as they are."""
    keys = {
        "privacy.rho-beta": 0.0,
        "privacy.noise-multiplier": 0.1,
        "training.clipping-norm": 5.0,
    }
    config = small(keys | mode)
    transcript, chosen = run(config), challenge.choose(config)
    assert chosen.record is not None
    pair, batch = (chosen.record, chosen.replacement), plan.fit_batch(config).trials.batch
    measured = follow(config, batch, [pair], config.trials.count)
    on_d = transcript["worlds"]
    assert 0 < on_d.sum() < len(on_d)
    recorded = transcript["sensitivities"]
    np.testing.assert_allclose(measured[on_d, :, 0], recorded[on_d], rtol=1e-5)
    # In the other world the models are others, from the second round on.
    assert (np.abs(measured[~on_d, 1:, 0] / recorded[~on_d, 1:] - 1) > 1e-4).any()


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_a_gpu_measures_the_same(small):
    config, on_gpu = (small(REPLACE | {"run.device": name}) for name in ("cpu", "cuda"))
    expected, found = (
        follow(c.config, plan.fit_batch(c).trials.batch, [(0, 0), (3, 5)], 3)
        for c in (config, on_gpu)
    )
    np.testing.assert_allclose(found, expected, rtol=1e-4)
