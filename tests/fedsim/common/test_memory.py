"""Peak memory is measured, and is what the footprint of a block says it is."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fedsim.common.memory import footprint, peak_bytes, readable, spare

CPU = torch.device("cpu")
KIB = 1024


def _hold(kib):
    return torch.zeros(kib, KIB, dtype=torch.uint8)


def test_the_peak_is_what_is_held_at_once():
    def run():
        a = _hold(8)
        b = a + 1
        del a
        _hold(4)
        del b
        _hold(15)

    assert peak_bytes(run, CPU) == 16 * KIB


def test_a_view_costs_nothing_and_neither_does_what_was_there_before():
    before = _hold(8)
    assert peak_bytes(lambda: before.view(-1)[5:].reshape(-1, 1), CPU) == 0
    assert peak_bytes(lambda: before * 2, CPU) == 8 * KIB


def test_what_autograd_keeps_counts():
    x = torch.ones(KIB, requires_grad=True)
    # sin keeps nothing but x; its result lives until the sum is taken.
    assert peak_bytes(lambda: x.exp().exp(), CPU) == 8 * KIB


@given(st.tuples(*[st.integers(0, 9)] * 3, st.integers(1, 9)))
def test_a_footprint_is_recovered(kib):
    fixed, trial, record, example = kib

    def run(trials, records):
        _hold(fixed + trials * trial + records * record + trials * records * example)

    found = footprint(run, CPU)
    expected = fixed + 5 * trial + 7 * record + 35 * example
    assert found.bytes(5, 7) == pytest.approx(expected * KIB)


def test_some_memory_is_to_spare():
    assert spare(CPU) > 2**20


def test_few_bytes_are_not_told_as_0_mib():
    sizes = {0: "0 bytes", 10239: "10239 bytes", 10240: "10 KiB", 2**30: "1024 MiB"}
    assert {size: readable(size) for size in sizes} == sizes
