"""The chosen pair is the one that Eq. 18 and Eq. 20 name, by exhaustive search."""

import itertools
import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from skimage.metrics import structural_similarity

from adversaries.errors import InputError
from adversaries.neighbours import search
from adversaries.neighbours.dataset_sensitivity import (
    Pair,
    rank_clients,
    rank_records,
    select,
    select_one,
)
from fedsim.learning.data import load

IMAGES = load("digits").train.features[:40]
D, POOL = IMAGES[:15], IMAGES[15:]


def one_minus_ssim(x, y):
    x, y = x[0].astype(np.float64), y[0].astype(np.float64)
    return 1 - float(structural_similarity(x, y, data_range=1.0))


def absolute_differences(x, y):
    return float(np.abs(x.astype(np.float64) - y).sum())


SINGLE = {"ssim": one_minus_ssim, "manhattan": absolute_differences}


def sums(measure):
    """Eq. 18 as it is written."""
    n = range(len(D))
    return [sum(SINGLE[measure](D[i], D[j]) for j in n if j != i) for i in n]


def pairs(measure):
    """Every pair of Eq. 20, in the order of positions."""
    every = itertools.product(range(len(D)), range(len(POOL)))
    return [(SINGLE[measure](D[i], POOL[j]), i, j) for i, j in every]


@pytest.mark.parametrize("measure", sorted(SINGLE))
def test_a_record_is_ranked_by_its_distances_to_all_others(measure):
    np.testing.assert_allclose(rank_records(D, measure), sums(measure), rtol=1e-12)


@pytest.mark.parametrize("measure", sorted(SINGLE))
def test_under_add_remove_the_most_dissimilar_record_of_d_is_removed(measure):
    expected = sums(measure)
    [pair] = select(D, None, measure, "add-remove")
    assert (pair.record, pair.replacement) == (int(np.argmax(expected)), None)
    assert pair.distance == pytest.approx(max(expected))
    assert pair.measure == measure


@pytest.mark.parametrize("measure", sorted(SINGLE))
def test_under_replace_the_most_dissimilar_pair_is_exchanged(measure):
    distance, record, replacement = max(pairs(measure))
    [pair] = select(D, POOL, measure, "replace")
    assert (pair.record, pair.replacement) == (record, replacement)
    assert pair.distance == pytest.approx(distance)
    assert pair.measure == measure


@pytest.mark.parametrize("top", [1, 3, 15])
def test_the_top_records_come_best_first(top):
    order = np.argsort(sums("ssim"))
    largest = select(D, None, "ssim", "add-remove", choice="max", top=top)
    smallest = select(D, None, "ssim", "add-remove", choice="min", top=top)
    assert [pair.record for pair in largest] == order[::-1][:top].tolist()
    assert [pair.record for pair in smallest] == order[:top].tolist()


@pytest.mark.parametrize("measure", ["ssim", "manhattan", "euclidean", "cosine"])
def test_of_equal_distances_the_lowest_positions_win(measure):
    record, far, near = D[0], D[1], D[0]
    members, pool = np.stack([record] * 40), np.stack([near, *[far] * 40])
    [pair] = select(members, pool, measure, "replace")
    assert (pair.record, pair.replacement) == (0, 1)
    chosen = select(members, pool, measure, "replace", top=41)
    assert [(p.record, p.replacement) for p in chosen[:40]] == [(0, j) for j in range(1, 41)]
    assert (chosen[40].record, chosen[40].replacement) == (1, 1)
    [pair] = select(members, None, measure, "add-remove")
    assert pair.record == 0


@pytest.mark.parametrize("block", [1, 7, 100])
def test_the_choice_does_not_depend_on_the_blocks_and_progress_ends_at_1(monkeypatch, block):
    whole = select(D, POOL, "ssim", "replace", top=3)
    whole_sums = rank_records(D, "ssim")
    monkeypatch.setattr(search, "BLOCK_PAIRS", block)
    done = []
    blocked = select(D, POOL, "ssim", "replace", top=3, progress=done.append)
    assert [(p.record, p.replacement) for p in blocked] == [
        (p.record, p.replacement) for p in whole
    ]
    assert done == sorted(set(done))
    assert done[-1] == 1
    done.clear()
    np.testing.assert_allclose(rank_records(D, "ssim", done.append), whole_sums, rtol=1e-12)
    assert done[-1] == 1


def test_a_lone_record_has_nobody_to_differ_from():
    assert select(D[:1], None, "euclidean", "add-remove") == [Pair(0, None, 0.0, "euclidean")]


@pytest.mark.parametrize("pool", [None, POOL[:0]])
def test_replace_without_a_pool_is_refused(pool):
    with pytest.raises(InputError, match="the pool has no record left"):
        select(D, pool, "ssim", "replace")


def test_unknown_options_are_refused():
    with pytest.raises(InputError, match=r"'unbounded'; give add-remove or replace"):
        select(D, POOL, "ssim", "unbounded")
    with pytest.raises(InputError, match=r"'largest'; give one of max, min$"):
        select(D, POOL, "ssim", "replace", choice="largest")
    with pytest.raises(InputError, match=r"'sim'.*did you mean 'ssim'"):
        select(D, POOL, "sim", "replace")


@pytest.mark.parametrize("top", [0, 16])
def test_more_pairs_than_there_are_or_none_are_refused(top):
    with pytest.raises(InputError, match=f"top is {top}, but only 15"):
        select(D, None, "manhattan", "add-remove", top=top)


@pytest.mark.parametrize("measure", sorted(SINGLE))
def test_a_client_is_ranked_by_the_mean_distance_of_its_records_to_all_others(measure, monkeypatch):
    monkeypatch.setattr(search, "BLOCK_PAIRS", 4 * len(D))  # several blocks
    client_of = np.array([0, 2, 1, 0, 0, 2, 1, 0, 0, 0, 2, 2, 0, 1, 0])
    expected = [
        np.mean(
            [
                SINGLE[measure](D[i], D[j])
                for i in np.flatnonzero(client_of == client)
                for j in np.flatnonzero(client_of != client)
            ]
        )
        for client in range(3)
    ]
    np.testing.assert_allclose(rank_clients(D, client_of, measure), expected, rtol=1e-12)


def test_the_farthest_or_nearest_one_is_chosen():
    values = np.array([2.0, 5.0, 1.0, 5.0, 3.0])
    assert [select_one(values, choice) for choice in ("max", "min")] == [1, 2]
    with pytest.raises(InputError, match="choice is 'mean'"):
        select_one(values, "mean")


def brute_force(distances, choice, top):
    """Every pair sorted by cost, then by position; distances that are exact need no rounding."""
    cost = {"max": -distances, "min": distances}[choice]
    order = np.argsort(cost, axis=None, kind="stable")[:top]
    return [(int(k) // distances.shape[1], int(k) % distances.shape[1]) for k in order]


RECORDS = hnp.arrays(np.int64, st.tuples(st.integers(1, 9), st.just(2)), elements=st.integers(0, 6))
"""Few records of two small numbers, many of them alike."""


@pytest.mark.parametrize("choice", ["max", "min"])
@settings(max_examples=25)
@given(
    values=RECORDS,
    pool=RECORDS,
    block=st.integers(1, 90),
    threads=st.integers(1, 3),
    data=st.data(),
)
def test_a_search_in_tiles_finds_what_sorting_all_pairs_does(
    choice, values, pool, block, threads, data
):
    # Eighths and quarters are exact, and so full of ties.
    a, b = (values / 8).astype(np.float32), (pool / 4).astype(np.float32)
    distances = np.abs(a[:, None].astype(float) - b).sum(axis=2)
    top = data.draw(st.integers(1, distances.size))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(search, "BLOCK_PAIRS", block)
        found = select(a, b, "manhattan", "replace", choice=choice, top=top, threads=threads)
    expected = brute_force(distances, choice, top)
    assert [(p.record, p.replacement) for p in found] == expected
    assert [p.distance for p in found] == [distances[pair] for pair in expected]


def test_a_search_does_not_keep_the_distances():
    rng = np.random.default_rng(0)
    a, b = rng.random((600, 2), dtype=np.float32), rng.random((20_000, 2), dtype=np.float32)
    tracemalloc.start()
    try:
        select(a, b, "euclidean", "replace", top=3)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 8 * len(a) * len(b) / 2  # 96 MB if they were kept


def test_columns_reach_the_measure():
    # A number, and one category of three: another category differs more than 0.9 of the range.
    members = np.array([[0.0, 1, 0, 0]], dtype=np.float32)
    pool = np.array([[0.9, 1, 0, 0], [0.0, 0, 1, 0]], dtype=np.float32)
    columns = np.array([0, 1, 1, 1])
    [pair] = select(members, pool, "gower", "replace", columns=columns)
    assert (pair.replacement, pair.distance) == (1, 0.5)
    together = np.concatenate([members, pool])
    np.testing.assert_allclose(
        rank_records(together, "gower", columns=columns), [0.95, 1.4, 1.45], rtol=1e-6
    )
    np.testing.assert_allclose(
        rank_clients(together, np.array([0, 1, 1]), "gower", columns=columns),
        [0.475, 0.475],
        rtol=1e-6,
    )
