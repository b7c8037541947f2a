"""Numbers beside a source's: what agrees, what departs, and what cannot be told."""

import pytest
from scipy.stats import binomtest

from fedsim.studies.reproduction.findings import (
    Number,
    Reference,
    advantage_of_wins,
    agreement,
    printed,
)


def test_an_interval_that_overlaps_the_sources_agrees_and_one_apart_departs() -> None:
    recorded = advantage_of_wins(616, 993)
    wins = binomtest(616, 993).proportion_ci(0.95, "exact")
    assert recorded.range == pytest.approx((2 * wins.low - 1, 2 * wins.high - 1), abs=1e-9)
    near = Number("advantage", 0.17, (0.11, 0.23), 0.2562, (recorded,))
    assert agreement(near).kind == "agrees"
    assert agreement(near).text.endswith("theory's value lies outside of our interval")
    apart = Number("advantage", 0.1, (0.05, 0.15), None, (recorded,), "n is small")
    assert agreement(apart).kind == "departs"
    assert "departs from the recorded value because n is small" in agreement(apart).text


@pytest.mark.parametrize(
    ("ours", "kind"), [(0.1449, "agrees"), (0.1351, "agrees"), (0.146, "departs")]
)
def test_a_printed_number_stands_for_all_that_round_to_it(ours: float, kind: str) -> None:
    assert agreement(Number("rho_alpha", ours, references=(printed(0.14, 2),))).kind == kind


def test_a_number_that_differs_for_no_known_reason_says_so() -> None:
    found = agreement(Number("x", 2.0, references=(Reference(1.0, (1.0, 1.0)),)))
    assert found.text == "departs from the published value for an unknown reason"


def test_a_number_that_no_source_has_agrees_with_nothing() -> None:
    assert agreement(Number("x", 2.0, (1.0, 3.0), 2.5)).kind == "alone"
