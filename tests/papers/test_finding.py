"""Numbers beside a source's: what agrees, what departs, and what cannot be told."""

import numpy as np
import pytest
from scipy.stats import binomtest, chi2

from papers.findings import (
    Number,
    Reference,
    advantage_of_wins,
    agreement,
    printed,
    table_agreement,
    together,
)


def test_a_difference_that_chance_explains_agrees_and_another_departs():
    recorded = advantage_of_wins(616, 993)
    wins = binomtest(616, 993).proportion_ci(0.95, "exact")
    assert recorded.range == pytest.approx((2 * wins.low - 1, 2 * wins.high - 1), abs=1e-9)
    near = Number("advantage", 0.17, (0.11, 0.23), 0.2562, (recorded,))
    assert agreement(near).kind == "agrees"
    assert agreement(near).text.endswith("theory's value lies outside of our interval")
    apart = Number("advantage", 0.1, (0.05, 0.15), None, (recorded,), "n is small")
    assert agreement(apart).kind == "departs"
    assert "departs from the published value because n is small" in agreement(apart).text
    # The two intervals overlap, but the difference is twice its standard error or more.
    reference = Reference(0.3, (0.24, 0.36), sampled=True)
    assert agreement(Number("x", 0.2, (0.14, 0.26), None, (reference,))).kind == "departs"
    assert agreement(Number("x", 0.22, (0.16, 0.28), None, (reference,))).kind == "agrees"


def test_cells_that_agree_one_by_one_may_depart_together():
    reference = Reference(0.3, (0.24, 0.36), sampled=True)
    cells = [Number(name, 0.22, (0.16, 0.28), None, (reference,)) for name in "abcd"]
    assert {agreement(one).kind for one in cells} == {"agrees"}
    # Each is 1.85 standard errors off.
    squares = 4 * (0.08 / (0.06 * 2**0.5 / 1.96)) ** 2
    assert together(cells) == pytest.approx(chi2.sf(squares, 4), rel=1e-3)
    assert "All cells together depart from the published ones" in table_agreement(cells)
    assert together(cells[:1]) is None


def test_true_values_depart_together_as_often_as_the_confidence_says():
    random, said = np.random.default_rng(0), 0
    for _ in range(400):
        ours, theirs = random.normal(0, 1, (2, 6))
        cells = [
            Number("x", a, (a - 1.96, a + 1.96), None, (Reference(b, (b - 1.96, b + 1.96), True),))
            for a, b in zip(ours, theirs, strict=True)
        ]
        said += table_agreement(cells).startswith("All cells together depart")
    # Binomial(400, .05) lies outside of these less than once in 10,000 times.
    assert 6 <= said <= 41


@pytest.mark.parametrize(
    ("ours", "kind"), [(0.1449, "agrees"), (0.1351, "agrees"), (0.146, "departs")]
)
def test_a_printed_number_stands_for_all_that_round_to_it(ours, kind):
    assert agreement(Number("rho_alpha", ours, references=(printed(0.14, 2),))).kind == kind


def test_a_number_that_differs_for_no_known_reason_says_so():
    found = agreement(Number("x", 2.0, references=(Reference(1.0, (1.0, 1.0)),)))
    assert found.text == "departs from the published value for an unknown reason"


def test_a_number_that_no_source_has_agrees_with_nothing():
    assert agreement(Number("x", 2.0, (1.0, 3.0), 2.5)).kind == "alone"
