"""Blocks cover the work evenly, and their results come in order from any number of threads."""

import threading
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedsim.common.blocks import ThreadPool, even, run, slices


@given(st.integers(0, 50), st.integers(1, 60))
def test_slices_cover_a_length_once(length, step):
    parts = slices(length, step)
    assert [i for part in parts for i in range(part.start, part.stop)] == list(range(length))
    assert all(part.stop - part.start <= step for part in parts)


@given(st.integers(1, 1000), st.floats(0, 2000))
def test_even_parts_are_no_longer_than_asked_for_and_differ_little(length, most):
    step = even(length, most)
    assert 1 <= step <= max(1.0, most)
    # No fewer parts are possible, and the last is not much shorter than the others.
    parts = slices(length, step)
    assert len(parts) == len(slices(length, min(length, int(max(1.0, most)))))
    assert step - (parts[-1].stop - parts[-1].start) < len(parts)


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_results_come_in_order(threads):
    def work(part):
        time.sleep(0.001 * (part.start % 3))
        return part.start

    assert list(run(work, [(part,) for part in slices(20, 1)], threads)) == list(range(20))


def test_after_an_error_nothing_goes_on():
    started, finished = [], []

    def work(part):
        started.append(part.start)
        if part.start == 1:
            raise ValueError("broken")
        time.sleep(0.01)
        finished.append(part.start)

    with pytest.raises(ValueError, match="broken"):
        list(run(work, [(part,) for part in slices(100, 1)], 2))
    assert len(started) < 10
    assert len(finished) == len(started) - 1


def test_a_thing_is_lent_to_one_thread_at_a_time_and_kept():
    made = []

    def make():
        made.append(object())
        return made[-1]

    pool, barrier, seen = ThreadPool(make), threading.Barrier(2), []

    def borrow(_):
        with pool.lend() as thing:
            barrier.wait()  # both have one now
            seen.append(thing)

    for _ in range(3):
        list(run(borrow, [(part,) for part in slices(2, 1)], 2))
    assert len(made) == 2
    assert set(map(id, seen)) == set(map(id, made))


def test_what_was_lent_when_an_error_came_is_not_lent_again():
    pool = ThreadPool(object)
    with pytest.raises(ValueError, match="broken"), pool.lend() as first:
        raise ValueError("broken")
    with pool.lend() as second:
        assert second is not first
