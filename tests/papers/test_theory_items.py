"""Items that train nothing, held against closed forms and what was printed."""

import math

import numpy as np
import pytest
import torch
from scipy import integrate, stats

from fedsim.privacy.accounting import accountant
from fedsim.privacy.mechanism import Mechanism, Steps
from papers.abadi import accuracies, composition
from papers.bernau import norms, scores
from papers.findings import Means, Scale, agreement
from papers.xiao import means


@pytest.fixture
def smoke(tmp_path):
    return Means(Scale.SMOKE, tmp_path, say=lambda what: None)


def _number(finding, name):
    return next(one for one in finding.numbers if one.name == name)


def test_the_decision_changes_midway_and_errs_as_often_as_the_normal_law_says(smoke):
    assert scores.boundary(smoke).numbers[0].ours == pytest.approx(0.5, abs=1e-9)
    for number in scores.errors(smoke).numbers:
        assert number.interval is not None
        assert number.closed_form is not None
        # Four standard errors: a fixed seed, and room for another generator.
        half = 2 * (number.interval[1] - number.interval[0]) / 1.96
        assert abs(number.ours - number.closed_form) < half
    # Of sigma = sqrt(2 ln(1.25e6))/6: 2 Phi(1/(2 sigma)) - 1.
    assert scores.errors(smoke).numbers[0].closed_form == pytest.approx(0.428719, abs=1e-6)


def test_every_number_of_table_2b_is_the_one_that_was_printed(smoke):
    numbers = scores.settings(smoke).numbers
    assert len(numbers) == 24
    assert {agreement(one).kind for one in numbers if one.references} == {"agrees"}


def test_theorem_2_lies_below_what_a_tightly_calibrated_mechanism_allows(smoke):
    assert 0.05 < scores.curves(smoke).numbers[0].ours < 0.2


def test_compositions_are_in_their_order_and_the_moments_are_those_of_abadi_et_al(smoke):
    found = composition.compared(smoke)
    at_100 = {one.name.partition(", ")[2]: one for one in found.numbers}
    order = ["basic", "basic, amplified", "strong (Azuma), amplified", "moments", "Rényi"]
    order.append("privacy loss distribution")
    values = [at_100[name].ours for name in order]
    assert values == sorted(values, reverse=True)
    assert at_100["moments"].ours == pytest.approx(1.26, abs=0.005)
    # Ticks of a logarithmic axis are numbers, and no mathematics that the style would leave.
    assert "mathdefault" not in found.pictures[0].svg
    # What Abadi et al. plot for strong composition.
    assert at_100["strong (Azuma), amplified"].ours == pytest.approx(9.35, abs=0.02)


def test_the_mean_tells_of_a_record_what_the_closed_form_says(smoke):
    for number in means.estimated(smoke).numbers:
        assert number.interval is not None
        assert number.closed_form is not None
        half = 2 * (number.interval[1] - number.interval[0]) / 1.96
        assert abs(number.ours - number.closed_form) < half


def test_the_law_of_a_sum_of_laplace_records_is_a_density_with_their_variance():
    def moment(power, count):
        def weighed(at):
            density = means._log_laplace(np.array([at]), count)[0]
            return float(at**power * np.exp(density))

        return 2 * float(integrate.quad(weighed, 0, 200, limit=400, points=(1.0, 10.0))[0])

    for count in (1, 3, 20):
        assert moment(0, count) == pytest.approx(1, rel=1e-6)
        assert moment(2, count) == pytest.approx(2 * count, rel=1e-6)
    one = means._log_laplace(np.array([0.3]), 1)[0]
    assert one == pytest.approx(stats.laplace.logpdf(0.3), rel=1e-9)


def test_a_private_median_is_near_the_median_and_private():
    lengths = np.random.default_rng(1).gamma(4.0, 1.0, 1000)
    found = [
        norms.private_median(lengths, 1.0, 100.0, np.random.default_rng(seed)) for seed in range(50)
    ]
    assert np.abs(np.median(lengths) - found).max() < 0.2
    # Two neighbours of three records, in cells of 1: no cell is more likely by more than e^epsilon.
    draws = [
        np.floor([norms.private_median(np.array(one), 1.0, 4.0, draw) for _ in range(20_000)])
        for one, draw in (
            ([1.0, 2.0, 3.0], np.random.default_rng(2)),
            ([1.0, 2.0, 1.0], np.random.default_rng(3)),
        )
    ]
    shares = [np.array([(one == cell).mean() for cell in range(4)]) for one in draws]
    assert np.abs(np.log(shares[0] / shares[1])).max() < 1.1


def test_noisy_components_span_the_data_and_less_of_it_with_more_noise():
    draw = np.random.default_rng(5)
    # Records in a plane of eighty dimensions.
    plane = np.linalg.qr(draw.standard_normal((80, 2)))[0]
    records = torch.from_numpy((draw.standard_normal((500, 2)) @ plane.T).astype(np.float32))
    kept = [
        np.linalg.norm(plane.T @ accuracies.components(records, noise, draw))
        for noise in (0.0, 1.0, 1e4)
    ]
    assert kept[0] == pytest.approx(math.sqrt(2), abs=1e-6)
    assert kept[1] > 0.99 * math.sqrt(2) > kept[2]


def test_all_steps_and_the_components_together_have_the_wanted_epsilon():
    noise = accuracies.spent(2.0, 300, reduced=True)
    assert noise.components == 7.0
    both = Mechanism((Steps(7.0, 1), Steps(noise.step, 300, 0.01)))
    assert 2.0 - 1e-4 < accountant("rdp-classic").epsilon(both, 1e-5) <= 2.0
    # Whoever gives no components away has more left for the steps.
    assert accuracies.spent(2.0, 300, reduced=False).step < noise.step
