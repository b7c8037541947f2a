"""What the figures show, read back from the artists on their axes."""

import gc
import re
import weakref
from dataclasses import replace
from itertools import pairwise
from xml.etree import ElementTree

import matplotlib as mpl
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from matplotlib._pylab_helpers import Gcf
from matplotlib.collections import LineCollection
from matplotlib.patches import StepPatch
from matplotlib.text import Text
from scipy.integrate import trapezoid
from scipy.special import expit
from scipy.stats import norm

from fedsim.audits.results.measured import RoundSeries
from fedsim.audits.results.theory import Density
from fedsim.report.figures import canvas, run_figures, training_figures
from fedsim.report.figures.run_figures import MeasuredCurve

TRIALS, ROUNDS, MU = 400, 30, 0.6535891631872568


@pytest.fixture(scope="module")
def game():
    random = np.random.default_rng(3)
    worlds = random.permutation(np.arange(TRIALS) % 2 == 0)
    step = MU / np.sqrt(ROUNDS)
    centre = np.where(worlds, 0.5, -0.5)[:, None] * step**2
    return worlds, np.cumsum(random.normal(centre, step, (TRIALS, ROUNDS)), axis=1)


def test_the_scores_of_both_worlds_are_densities_beside_their_threshold():
    random = np.random.default_rng(0)
    worlds = np.arange(200) % 2 == 0
    scores = random.normal(np.where(worlds, 1.0, 0.0))
    (axes,) = run_figures.poison_scores(worlds, scores, 0.4).get_axes()
    drawn = [patch for patch in axes.patches if isinstance(patch, StepPatch)]
    for patch in drawn:
        heights, edges, _ = patch.get_data()
        assert heights @ np.diff(edges) == pytest.approx(1)
    assert len(drawn) == 4
    assert [line.get_xdata()[0] for line in axes.get_lines()] == [0.4]


def lines(axes, label):
    return [line for line in axes.get_lines() if str(line.get_label()).startswith(label)]


def trajectories(axes):
    return [item for item in axes.collections if isinstance(item, LineCollection)]


class TestBeliefTrajectories:
    def test_shows_at_most_the_asked_number_of_trials_of_each_world(self, game):
        (axes,) = run_figures.belief_trajectories(*game, 0.9, lines=25).axes
        assert [len(world.get_segments()) for world in trajectories(axes)] == [25, 25]

    def test_the_trajectories_are_the_beliefs_of_the_first_trials(self, game):
        worlds, log_odds = game
        (axes,) = run_figures.belief_trajectories(worlds, log_odds, 0.9).axes
        for drawn, world in zip(trajectories(axes), (True, False), strict=True):
            beliefs = np.array(drawn.get_segments())
            np.testing.assert_array_equal(beliefs[0, :, 0], np.arange(1, ROUNDS + 1))
            np.testing.assert_allclose(beliefs[..., 1], expit(log_odds[worlds == world])[:100])

    def test_the_median_and_the_bound_stand_out(self, game):
        worlds, log_odds = game
        (axes,) = run_figures.belief_trajectories(worlds, log_odds, 0.9).axes
        for world, label in ((True, "trained on D"), (False, "trained on D′")):
            median = next(line for line in axes.get_lines() if line.get_label() == label)
            expected = np.median(expit(log_odds[worlds == world]), axis=0)
            np.testing.assert_allclose(median.get_ydata(), expected)
        (bound,) = lines(axes, "bound ρβ")
        assert set(bound.get_ydata()) == {0.9}
        assert bound.get_linestyle() == "--"

    def test_certain_beliefs_are_drawn_at_the_edge(self, game):
        worlds, log_odds = game
        certain = np.where(worlds[:, None], np.inf, -np.inf) + 0 * log_odds
        (axes,) = run_figures.belief_trajectories(worlds, certain, 1.0).axes
        (median,) = (line for line in axes.get_lines() if line.get_label() == "trained on D")
        assert set(median.get_ydata()) == {1.0}

    def test_a_world_without_trials_and_a_missing_bound_are_left_out(self, game):
        worlds, log_odds = game
        (axes,) = run_figures.belief_trajectories(worlds | True, log_odds, None).axes
        assert [line.get_label() for line in axes.get_lines()] == ["trained on D"]


class TestLogOddsHistogram:
    def test_each_world_is_a_density_over_its_own_prediction(self, game):
        worlds, log_odds = game
        final = log_odds[:, -1]
        (axes,) = run_figures.log_odds_histogram(worlds, final, np.full(TRIALS, MU), 2.197).axes
        for patch in axes.patches:
            heights, edges, _ = patch.get_data()
            assert (heights * np.diff(edges)).sum() == pytest.approx(1)
        assert len(axes.patches) == 4
        for label, sign in (("predicted for D", 1), ("predicted for D′", -1)):
            (curve,) = (line for line in axes.get_lines() if line.get_label() == label)
            x, density = curve.get_data()
            np.testing.assert_allclose(density, norm.pdf(x, sign * MU**2 / 2, MU))
            assert trapezoid(density, x) == pytest.approx(1, abs=5e-3)

    def test_epsilon_and_the_decision_threshold_are_marked(self, game):
        worlds, log_odds = game
        (axes,) = run_figures.log_odds_histogram(worlds, log_odds[:, -1], None, 1.25).axes
        verticals = [line.get_xdata()[0] for line in axes.get_lines()]
        assert verticals == [0, 1.25]

    def test_no_closed_form_means_no_curve(self, game):
        worlds, log_odds = game
        for mu in (None, np.full(TRIALS, np.inf)):
            (axes,) = run_figures.log_odds_histogram(worlds, log_odds[:, -1], mu, None).axes
            assert lines(axes, "predicted") == []

    def test_a_simulated_density_takes_the_place_of_the_curves(self, game):
        worlds, log_odds = game
        density = Density([-40.0, 0.0, 50.0], [0.01, 0.012], [0.012, 0.01])
        (axes,) = run_figures.log_odds_histogram(
            worlds, log_odds[:, -1], np.full(TRIALS, MU), None, density=density
        ).axes
        drawn = {
            patch.get_label(): patch.get_data()
            for patch in axes.patches
            if isinstance(patch, StepPatch)
        }
        for world, label in (("world_d", "predicted for D"), ("world_d_prime", "predicted for D′")):
            assert list(drawn[label].values) == getattr(density, world)
            assert list(drawn[label].edges) == density.edges
        assert lines(axes, "predicted") == []
        assert axes.get_xlim() == (-40, 50)

    def test_infinite_log_odds_are_counted_in_words(self, game):
        worlds, log_odds = game
        final = np.where(np.arange(TRIALS) < 30, np.inf, log_odds[:, -1])
        (axes,) = run_figures.log_odds_histogram(worlds, final, None, None).axes
        assert any("30 of 400 trials ended certain" in text.get_text() for text in axes.texts)
        all_certain = np.where(worlds, np.inf, -np.inf)
        (axes,) = run_figures.log_odds_histogram(worlds, all_certain, None, None).axes
        assert any("400 of 400 trials" in text.get_text() for text in axes.texts)


class TestPredictedDensity:
    @settings(max_examples=50)
    @given(
        st.lists(st.floats(0.05, 4), min_size=1, max_size=20),
        st.booleans(),
    )
    def test_is_a_density_with_the_mean_of_the_mixture(self, mu, world):
        mu = np.array(mu)
        x = np.linspace(-40, 40, 40_001)
        density = run_figures.predicted_density(x, mu, world)
        assert trapezoid(density, x) == pytest.approx(1, abs=1e-6)
        sign = 1 if world else -1
        assert trapezoid(x * density, x) == pytest.approx(sign * np.mean(mu**2) / 2, abs=1e-5)

    def test_the_two_worlds_mirror_each_other_and_differ_by_the_log_odds(self):
        x, mu = np.linspace(-3, 3, 61), np.array([0.4, 0.9])
        on_d = run_figures.predicted_density(x, mu, True)
        on_d_prime = run_figures.predicted_density(x, mu, False)
        np.testing.assert_allclose(on_d, on_d_prime[::-1])
        np.testing.assert_allclose(np.log(on_d / on_d_prime), x, atol=1e-9)

    def test_a_trial_that_says_nothing_has_no_density(self):
        x = np.linspace(-10, 10, 4001)
        density = run_figures.predicted_density(x, np.array([0.0, 1.0, 1.0, 0.0]), True)
        assert trapezoid(density, x) == pytest.approx(0.5)

    def test_many_trials_draw_the_curve_of_all_of_them(self):
        mu = np.random.default_rng(0).gamma(4, 0.2, 20_000)
        x = np.linspace(-8, 8, 101)
        exact = norm.pdf(x[:, None], mu**2 / 2, mu).mean(axis=1)
        np.testing.assert_allclose(run_figures.predicted_density(x, mu, True), exact, atol=2e-3)


class TestAdvantages:
    MEASURED = (
        MeasuredCurve("adversary of\nthis report", 0.25, (0.19, 0.31)),
        MeasuredCurve("Yeom", 0.02, (-0.01, 0.05)),
        MeasuredCurve("Yeom on the record", 0.1, None),
    )

    def test_shows_every_attack_with_its_interval(self):
        (axes,) = run_figures.advantages(
            self.MEASURED, bound=None, prediction=None, theorem2=None
        ).axes
        assert [label.get_text() for label in axes.get_xticklabels()] == [
            "adversary of\nthis report",
            "Yeom",
            "Yeom on the record",
        ]
        assert [bar.get_height() for bar in axes.patches] == [0.25, 0.02, 0.1]
        whiskers = [list(line.get_ydata()) for line in axes.get_lines()[0:6:2]]
        assert whiskers == [[0.19, 0.31], [-0.01, 0.05], [0.1, 0.1]]
        assert axes.get_ylim()[0] < -0.01

    def test_names_what_is_a_bound_and_what_is_not(self):
        (axes,) = run_figures.advantages(
            self.MEASURED, bound=0.2562, prediction=0.2561, theorem2=0.2763
        ).axes
        labels = {text.get_text().replace("\n", " "): text for text in axes.texts}
        assert "bound ρα 0.256" in labels
        assert "prediction 0.256" in labels
        assert "Theorem 2 of Bernau et al. (not a valid limit): 0.276" in labels
        horizontals = {line.get_ydata()[0] for line in axes.get_lines() if len(line.get_xdata())}
        assert {0.2562, 0.2561, 0.2763} <= horizontals

    def test_the_labels_of_equal_levels_do_not_overlap(self):
        figure = run_figures.advantages(
            self.MEASURED, bound=0.2562, prediction=0.2562, theorem2=0.2562
        )
        figure.draw_without_rendering()
        (axes,) = figure.axes
        boxes = sorted(
            (
                Text.get_window_extent(text)  # the words alone, without their line
                for text in axes.texts
                if text.get_text().startswith(("bound", "prediction", "Theorem"))
            ),
            key=lambda box: box.y0,
        )
        assert len(boxes) == 3
        assert all(low.y1 <= high.y0 for low, high in pairwise(boxes))

    def test_an_attack_that_always_wins_fits(self):
        perfect = (MeasuredCurve("DI adversary", 1.0, (0.99, 1.0)),)
        (axes,) = run_figures.advantages(perfect, bound=1.0, prediction=None, theorem2=None).axes
        assert axes.get_ylim()[1] > 1


def test_curves_of_attacks_are_four_lines_at_most_and_differ_without_colour():
    rates = [0.001, 0.1, 1.0]
    attacks = {name: (rates, [0.002, 0.2, 1.0]) for name in ("a", "b", "c")}
    (axes,) = training_figures.roc(attacks, (rates, rates)).axes
    lines = axes.get_lines()
    assert len(lines) == 4
    shapes = {(line.get_linestyle(), line.get_linewidth()) for line in lines}
    assert len(shapes) == 4


def test_utility_shows_accuracy_and_loss_side_by_side():
    mean = [0.1, 0.5, 0.8]
    series = RoundSeries(mean, [0.0, 0.4, 0.7], [0.2, 0.6, 0.9])
    losses = replace(series, mean=[2.0, None, 1.0])
    left, right = training_figures.utility([0, 1, 2], series, losses).axes
    assert (left.get_title(loc="left"), right.get_title(loc="left")) == ("Accuracy", "Loss")
    np.testing.assert_array_equal(left.get_lines()[0].get_ydata(), mean)
    np.testing.assert_array_equal(right.get_lines()[0].get_ydata(), [2.0, np.nan, 1.0])
    assert len(left.collections) == 1


def test_epsilons_are_drawn_round_by_round_and_what_is_infinite_is_left_out():
    spent = {"Bayesian": [0.1, 0.2, 0.4], "each": [0.2, None, 0.6], "DP": [None, None, None]}
    figure = run_figures.epsilons([1, 5, 10], spent)
    (axes,) = figure.axes
    assert [line.get_label() for line in axes.lines] == ["Bayesian", "each"]
    assert list(axes.lines[0].get_xdata()) == [1, 5, 10]
    assert axes.get_ylim()[0] == 0
    assert axes.get_ylim()[1] > 0.6


def test_sensitivities_stay_under_their_bound():
    sensitivity = np.random.default_rng(0).uniform(1, 3, (50, ROUNDS))
    (axes,) = training_figures.sensitivities(sensitivity, 6.0).axes
    (median,) = lines(axes, "median")
    np.testing.assert_allclose(median.get_ydata(), np.median(sensitivity, axis=0))
    (bound,) = lines(axes, "clipping allows 6")
    assert set(bound.get_ydata()) == {6.0}
    assert axes.get_ylim()[1] > 6


@pytest.mark.parametrize("trials", [2, 5])
def test_one_round_of_few_trials_is_drawn(trials):
    worlds = np.arange(trials) % 2 == 0
    log_odds = np.linspace(-1, 1, trials)[:, None]
    for figure in (
        run_figures.belief_trajectories(worlds, log_odds, 0.9),
        run_figures.log_odds_histogram(worlds, log_odds[:, 0], np.ones(trials), 2.0),
        training_figures.sensitivities(np.zeros((trials, 1)), None),
    ):
        assert "<svg" in canvas.to_svg(figure)


def test_the_budget_is_drawn_against_its_limit():
    (axes,) = run_figures.epsilons([1, 2, 3], {"ε spent": [0.5, 0.8, 1.0]}, 1.2).axes
    (spent,) = lines(axes, "ε spent")
    np.testing.assert_array_equal(spent.get_xydata(), [[1, 0.5], [2, 0.8], [3, 1.0]])
    (limit,) = lines(axes, "privacy.stop-at")
    assert set(limit.get_ydata()) == {1.2}
    assert axes.get_ylim()[0] == 0
    assert axes.get_ylim()[1] > 1.2
    (axes,) = run_figures.epsilons(
        [1], {"ε spent": [None]}
    ).axes  # no noise, no limit: nothing to draw
    assert not lines(axes, "privacy.stop-at")
    assert canvas.to_svg(run_figures.epsilons([1], {"ε spent": [2.0]}))


def test_svg_is_reproducible_keeps_its_text_and_tells_no_date(game):
    documents = [canvas.to_svg(run_figures.belief_trajectories(*game, 0.9)) for _ in range(2)]
    assert documents[0] == documents[1]
    root = ElementTree.fromstring(documents[0])
    texts = {element.text for element in root.iter("{http://www.w3.org/2000/svg}text")}
    assert {"round", "belief that D was used", "bound ρβ = 0.9"} <= texts
    assert not {"dc:date", "dc:creator"} & set(re.findall(r"dc:\w+", documents[0]))


def test_png_is_sharp_enough_for_print(game):
    png = canvas.to_png(run_figures.belief_trajectories(*game, 0.9))
    assert png.startswith(b"\x89PNG")
    assert int.from_bytes(png[16:20], "big") == pytest.approx(200 * canvas.WIDTH, abs=1)


def test_figures_leave_no_global_state_behind(game):
    before = dict(mpl.rcParams)
    figure = run_figures.belief_trajectories(*game, 0.9)
    canvas.to_svg(figure)
    assert dict(mpl.rcParams) == before
    assert Gcf.get_all_fig_managers() == []
    alive = weakref.ref(figure)
    del figure
    gc.collect()
    assert alive() is None
