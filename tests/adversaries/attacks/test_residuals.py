"""What the adversary cannot explain is noise of the claimed size, and tests of it hold their level.

Games with a known mechanism in which nothing but the null hypothesis is played, and single faults.
"""

import math

import numpy as np
import pytest
import torch
from scipy import stats

from adversaries.attacks import residuals
from adversaries.attacks.posterior import hypotheses
from adversaries.errors import InputError

T, P, K = 400, 12, 4


def _play(
    rate=1.0,
    replaced=False,
    noise=1.0,
    scale=1.0,
    shared=False,
    seed=0,
    shape=lambda normal: normal,
):
    """Return the statistics [T, K] of a game whose later steps depend on earlier ones."""
    generator = torch.Generator().manual_seed(seed)

    def draw(*shape):
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    std = torch.full((T,), 2.0, dtype=torch.float64)
    past, found, first = torch.zeros(T, P), [], draw(T, P)
    worlds = torch.arange(T) % 2 == 0
    for _ in range(K):
        # What is expected hangs on the noise so far, as gradients of a trained model do.
        known = 3 * draw(T, P) + past.double()
        present, absent = draw(T, P) + 0.1 * past.double(), draw(T, P)
        pair = hypotheses(known, present, absent if replaced else None, std, rate)
        joined = torch.rand(T, generator=generator) < rate
        other = absent if replaced else torch.zeros_like(absent)
        record = torch.where(worlds[:, None], present, other) * joined[:, None]
        drawn = shape(first if shared else draw(T, P))
        released = scale * known + record + noise * std[:, None] * drawn
        common = known + absent if replaced and rate == 1 else known
        statistics, past = residuals.residual(pair, common.float(), past, released)
        found.append(statistics)
    return {
        name: torch.stack([getattr(step, name) for step in found], dim=1).numpy()
        for name in ("squares", "freedoms", "repeats", "scales", "signals", "shapes")
    }


@pytest.mark.parametrize(
    ("rate", "replaced"), [(1.0, False), (1.0, True), (0.3, False), (0.3, True)]
)
def test_statistics_follow_their_laws_whatever_the_world(rate, replaced):
    found = _play(rate, replaced)
    freedoms = P - 2 if replaced and rate < 1 else P - 1
    assert (found["freedoms"] == freedoms).all()
    assert stats.kstest(found["squares"].ravel(), stats.chi2(freedoms).cdf).pvalue > 1e-3
    for name, first in (("repeats", 1), ("scales", 0)):
        assert stats.kstest(found[name][:, first:].ravel(), "norm").pvalue > 1e-3
    assert (found["repeats"][:, 0] == 0).all()  # nothing was before it
    # Steps of one trial are independent, though later ones depend on earlier ones.
    for name in ("squares", "scales"):
        assert stats.pearsonr(found[name][:, 1], found[name][:, 2]).pvalue > 1e-3


def test_the_residual_is_what_brute_force_projects():
    generator = torch.Generator().manual_seed(1)
    known, present, absent, released = torch.randn(4, 3, 7, generator=generator).double()
    std = torch.tensor([0.5, 1.0, 2.0], dtype=torch.float64)
    pair = hypotheses(known, present, absent, std, 0.4)
    found, past = residuals.residual(pair, known, torch.zeros(3, 7), released)
    for trial in range(3):
        span = np.stack([present[trial].numpy(), absent[trial].numpy()], axis=1)
        off = np.eye(7) - span @ np.linalg.pinv(span)
        left = off @ (released - known)[trial].numpy() / float(std[trial])
        expected = off @ known[trial].numpy()
        assert found.squares[trial] == pytest.approx(left @ left)
        assert found.scales[trial] == pytest.approx(left @ expected / np.linalg.norm(expected))
        np.testing.assert_allclose(past[trial], left, rtol=1e-5, atol=1e-6)


def test_a_step_without_noise_or_with_less_than_rounding_says_nothing():
    known = torch.full((3, 5), 100.0)
    std = torch.tensor([0.0, 1e-3, 1.0], dtype=torch.float64)
    pair = hypotheses(known.double(), torch.ones(3, 5).double(), None, std)
    found, _ = residuals.residual(pair, known, torch.zeros(3, 5), known + 0.5)
    assert found.freedoms.tolist() == [0, 0, 4]
    assert found.squares[:2].tolist() == [0, 0]


def test_a_round_in_which_the_worlds_agree_has_all_directions():
    known, zero = torch.ones(2, 5).double(), torch.zeros(2, 5).double()
    pair = hypotheses(known, zero, None, torch.ones(2).double())
    found, _ = residuals.residual(pair, known, torch.zeros(2, 5), known + 1)
    assert found.freedoms.tolist() == [5, 5]
    assert found.squares.tolist() == [5, 5]


@pytest.mark.parametrize(("new", "directions"), [(0.0, 1), (1e-7, 1), (1e-5, 2)])
def test_a_direction_that_is_hardly_new_is_none(new, directions):
    """What is left of two that are nearly parallel is rounding: it would cut away noise."""
    present, other = torch.randn(2, 2, 5, generator=torch.Generator().manual_seed(2)).double()
    other -= (
        torch.linalg.vecdot(other, present)[:, None] / present.square().sum(1)[:, None] * present
    )
    absent = 3 * (present + new * other * present.norm() / other.norm())
    pair = hypotheses(torch.ones(2, 5).double(), present, absent, torch.ones(2).double(), 0.5)
    known = torch.ones(2, 5)
    found, _ = residuals.residual(pair, known, torch.zeros(2, 5), known + present)
    assert found.freedoms.tolist() == [5 - directions] * 2


def test_each_fault_is_found_by_its_own_test():
    def judge(**fault):
        found = _play(**fault)
        noise = residuals.noise_test(found["squares"], found["freedoms"], 0.99)
        repeats = residuals.direction_test(found["repeats"], found["squares"])
        scale = residuals.direction_test(found["scales"], found["squares"])
        assert noise is not None and repeats is not None and scale is not None
        return noise, repeats.p_value, scale.p_value

    noise, repeats, scale = judge()
    assert min(noise.p_value, repeats, scale) > 1e-3
    assert noise.interval.low < 1 < noise.interval.high
    noise, repeats, scale = judge(noise=0.9)
    assert noise.p_value < 1e-9
    assert noise.ratio == pytest.approx(0.9, abs=0.02)
    assert noise.by_step == pytest.approx([0.9] * K, abs=0.04)
    assert min(repeats, scale) > 1e-3
    assert judge(shared=True)[1] < 1e-9
    assert judge(scale=1.1)[2] < 1e-9


def test_noise_that_one_step_has_and_others_lack_is_noticed_at_the_level_that_is_stated():
    found = _play()
    uneven = np.sqrt([1.2, 0.9, 1.0, 0.9])
    judged = residuals.noise_test(found["squares"] * uneven**2, found["freedoms"], 0.99)
    assert judged is not None
    assert judged.ratio == pytest.approx(1, abs=0.02)
    assert judged.by_step == pytest.approx(uneven, abs=0.04)
    assert judged.uneven and judged.p_value < 1e-4
    generator, freedoms = np.random.default_rng(0), np.full((3, K), 11.0)
    tests = [
        residuals.noise_test(generator.chisquare(11, (3, K)), freedoms, 0.99) for _ in range(2000)
    ]
    p_values = [test.p_value for test in tests if test]
    for level in (0.05, 0.01):
        accused = sum(p_value < level for p_value in p_values)
        assert stats.binomtest(accused, 2000, level, "greater").pvalue > 1e-3
        assert accused > 2000 * level / 3


SHAPES = {
    "uniform": lambda normal: math.sqrt(12) * (torch.special.ndtr(normal) - 0.5),
    "Laplace": lambda normal: (
        -normal.sign() * torch.log(2 * torch.special.ndtr(-normal.abs())) / math.sqrt(2)
    ),
    "cut at two deviations": lambda normal: (
        torch.special.ndtri(0.0228 + 0.9545 * torch.special.ndtr(normal)) / 0.8796
    ),
}


@pytest.mark.parametrize("shape", SHAPES)
def test_noise_of_another_shape_and_the_right_variance_is_noticed(shape):
    found = _play(shape=SHAPES[shape])
    noise = residuals.noise_test(found["squares"], found["freedoms"], 0.99)
    judged = residuals.shape_test(found["shapes"], found["freedoms"])
    assert noise is not None and judged is not None
    assert noise.ratio == pytest.approx(1, abs=0.02)
    assert judged.p_value < 1e-6
    assert (judged.ratio < judged.normal) is (shape == "Laplace")


@pytest.mark.parametrize(
    ("rate", "replaced"), [(1.0, False), (1.0, True), (0.3, False), (0.3, True)]
)
def test_normal_noise_is_accused_of_its_shape_no_more_often_than_stated(rate, replaced):
    """Though one direction or two are cut out of it, which of few coordinates are much."""
    found = [_play(rate, replaced, seed=seed) for seed in range(25)]
    every = np.concatenate([game["shapes"] for game in found])
    assert abs(every.mean()) < 4 / math.sqrt(every.size)
    assert every.std() == pytest.approx(1, abs=0.02)
    parts = [
        residuals.shape_test(game["shapes"][trials], game["freedoms"][trials])
        for game in found
        for trials in np.split(np.arange(T), 10)
    ]
    p_values = [part.p_value for part in parts if part]
    assert len(p_values) == 250
    assert stats.kstest(p_values, "uniform").pvalue > 1e-3


@pytest.mark.parametrize("coordinates", [8, 50, 10**6])
def test_the_moments_of_gearys_ratio_are_those_of_chi(coordinates):
    chi = stats.chi(coordinates).mean() / math.sqrt(coordinates)
    mean, deviation = residuals.geary(coordinates)
    assert mean == pytest.approx(math.sqrt(2 / math.pi) / chi, rel=2e-6)
    assert deviation == pytest.approx(math.sqrt((1 - 3 / math.pi) / coordinates), rel=0.13)


def test_no_residuals_are_no_tests():
    nothing = np.zeros((3, 2))
    assert residuals.noise_test(nothing, nothing, 0.95) is None
    assert residuals.direction_test(nothing, nothing) is None
    assert residuals.shape_test(nothing, nothing) is None
    assert residuals.shape_test(np.ones((3, 2)), np.full((3, 2), 9.0)) is None
    with pytest.raises(InputError, match="confidence is 2"):
        residuals.noise_test(nothing, nothing, 2)


@pytest.mark.slow
@pytest.mark.parametrize(("records", "rate"), [(29, 0.02), (29, 0.2), (999, 0.001), (99, 0.99)])
def test_poisson_batches_are_accused_no_more_often_than_stated(records, rate):
    """The fewer and smaller the batches, the further their squares are from any smooth law."""
    generator, repeats, level = np.random.default_rng(0), 150, 1e-3
    for batches in (2, 6, 20, 100):
        sizes = generator.binomial(records, rate, (repeats, batches)).astype(float)
        accused = sum(
            residuals.sampling_test(each, records, rate).p_value < level for each in sizes
        )
        assert stats.binomtest(accused, repeats, level, "greater").pvalue > 1e-3


@pytest.mark.parametrize(("records", "rate", "batches"), [(5, 0.3, 3), (3, 0.9, 4), (40, 0.02, 2)])
def test_the_tails_of_the_squares_are_those_of_all_samples(records, rate, batches):
    sizes = np.indices((records + 1,) * batches).reshape(batches, -1)
    chances = stats.binom.pmf(sizes, records, rate).prod(axis=0)
    squares = np.square(sizes - round(records * rate)).sum(axis=0)
    for sample in np.random.default_rng(0).integers(0, records + 1, (5, batches)):
        found = residuals.tails_of_squares(sample.astype(float), records, rate)
        seen = np.square(sample - round(records * rate)).sum()
        expected = chances[squares <= seen].sum(), chances[squares >= seen].sum()
        np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-14)


def test_where_the_law_of_the_squares_is_cut_or_replaced_its_tails_are_the_same(monkeypatch):
    sizes = np.random.default_rng(0).binomial(400, 0.1, 300).astype(float)
    for shift in (0.0, 1.0):
        found = []
        for values, spread in ((2**22, 64), (2**18, 30), (1, 64)):
            monkeypatch.setattr(residuals, "VALUES", values)
            monkeypatch.setattr(residuals, "SPREAD", spread)
            found.append(residuals.tails_of_squares(sizes + shift, 400, 0.1))
        np.testing.assert_allclose(found[1], found[0], rtol=1e-9)
        np.testing.assert_allclose(found[2], found[0], rtol=0.05)


def test_a_test_of_batches_pays_for_both_of_its_looks():
    """All records in both batches: their number and their squares have the chance q^10 each."""
    found = residuals.sampling_test(np.full((1, 2), 5.0), 5, 0.3)
    assert found.p_value == pytest.approx(2 * 2 * 0.3**10, rel=1e-6)


def test_batches_of_one_size_and_of_another_rate_are_accused():
    fixed = residuals.sampling_test(np.full((10, 5), 20.0), 100, 0.2)
    assert fixed.p_value < 1e-9
    assert (fixed.dispersion, fixed.rate) == (0, 0.2)
    more = np.random.default_rng(0).binomial(100, 0.25, (10, 5)).astype(float)
    assert residuals.sampling_test(more, 100, 0.2).p_value < 1e-9


@pytest.mark.parametrize("rate", [0.0, 1.0, 1.5, -0.1, math.nan])
def test_batches_that_are_no_samples_are_refused(rate):
    with pytest.raises(InputError, match="between 0 and 1"):
        residuals.sampling_test(np.full((2, 3), 20.0), 100, rate)


def test_batches_of_no_records_are_refused():
    for sizes, records in ((np.zeros((2, 3)), 0), (np.zeros((0, 3)), 100)):
        with pytest.raises(InputError, match="at least one of each"):
            residuals.sampling_test(sizes, records, 0.1)
