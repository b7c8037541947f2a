"""A plot keeps the arrays that it shows, and draws them the same way each time."""

import gc
import re
import weakref
from xml.etree import ElementTree

import matplotlib as mpl
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from matplotlib._pylab_helpers import Gcf
from scipy.integrate import trapezoid
from scipy.special import expit
from scipy.stats import norm

from fedsim.reports.figures import canvas, drawings
from fedsim.reports.figures.plot import Curve, Level, Panel, Plot

TRIALS, ROUNDS, MU = 400, 30, 0.6535891631872568


@pytest.fixture(scope="module")
def game():
    random = np.random.default_rng(3)
    worlds = random.permutation(np.arange(TRIALS) % 2 == 0)
    step = MU / np.sqrt(ROUNDS)
    centre = np.where(worlds, 0.5, -0.5)[:, None] * step**2
    return worlds, np.cumsum(random.normal(centre, step, (TRIALS, ROUNDS)), axis=1)


def of(drawn):
    """The series of a plot by panel and name."""
    return {(one.panel, one.name): one for one in drawn.series}


def curve(drawn, name, panel=0):
    return next(each for each in drawn.panels[panel].curves if each.name == name)


PLOT = Plot(
    [
        Panel(
            [
                Curve("accuracy", [1, 2, 3], [0.2, None, 0.6], low=[0.1, 0.2, 0.4], high=[0.3] * 3),
                Curve("", [1, 2, 3], [1, 2, 3]),
                Curve("in", [0, 1, 2], [1, 5], look="steps"),
            ],
            "accuracy",
            levels=[Level("goal", 0.9)],
        )
    ]
)


def test_what_is_drawn_is_what_the_table_has():
    found = of(PLOT)
    names = ("accuracy", "accuracy, low", "accuracy, high", "goal", "in")
    assert set(found) == {("", name) for name in names}
    middle = found["", "accuracy"]
    assert (middle.across, middle.at) == ("round", (1, 2, 3))
    np.testing.assert_array_equal(middle.values, [0.2, np.nan, 0.6])
    assert found["", "accuracy, low"].values == (0.1, 0.2, 0.4)
    assert (found["", "goal"].at, found["", "goal"].values) == ((), (0.9,))
    assert (found["", "in"].at, found["", "in"].values) == ((0.5, 1.5), (1, 5))
    (axes,) = PLOT.figure.axes
    drawn = {str(line.get_label()): line for line in axes.get_lines()}
    np.testing.assert_array_equal(drawn["accuracy"].get_ydata(), middle.values)
    assert set(drawn["goal"].get_ydata()) == {0.9}


def test_beliefs_are_those_of_the_trials_beside_their_bound(game):
    worlds, log_odds = game
    drawn = drawings.beliefs(worlds, log_odds, 0.9, lines=25)
    for world, colour, label in canvas.WORLDS:
        beliefs = expit(log_odds[worlds == world])
        np.testing.assert_allclose(curve(drawn, label).values, np.median(beliefs, axis=0))
        np.testing.assert_allclose(drawn.panels[0].trails[colour], beliefs[:25])
    assert of(drawn)["", "bound ρβ = 0.9"].values == (0.9,)
    certain = np.where(worlds[:, None], np.inf, -np.inf) + 0 * log_odds
    sure = drawings.beliefs(worlds, certain, 1.0)
    assert set(curve(sure, "trained on D").values) == {1.0}
    (only,) = drawings.beliefs(worlds | True, log_odds, None).panels
    assert [each.name for each in only.curves] == ["trained on D"]
    assert not only.levels


def test_log_odds_are_densities_over_their_own_prediction_where_there_is_one(game):
    worlds, log_odds = game
    final = log_odds[:, -1]
    drawn = drawings.log_odds_histogram(worlds, final, np.full(TRIALS, MU), 1.25)
    for label, sign in (("D", 1), ("D′", -1)):
        steps = curve(drawn, f"trained on {label}")
        assert (steps.values * np.diff(steps.at)).sum() == pytest.approx(1)
        predicted = curve(drawn, f"predicted for {label}")
        density = norm.pdf(predicted.at, sign * MU**2 / 2, MU)
        np.testing.assert_allclose(predicted.values, density)
    assert len(drawn.panels[0].levels) == 1
    for mu in (None, np.full(TRIALS, np.inf)):
        (panel,) = drawings.log_odds_histogram(worlds, final, mu, 99.0).panels
        assert not panel.levels and not [each for each in panel.curves if "predicted" in each.name]


class TestPredictedDensity:
    @settings(max_examples=50)
    @given(
        st.lists(st.floats(0.05, 4), min_size=1, max_size=20),
        st.booleans(),
    )
    def test_is_a_density_with_the_mean_of_the_mixture(self, mu, world):
        mu = np.array(mu)
        x = np.linspace(-40, 40, 40_001)
        density = drawings.predicted_density(x, mu, world)
        assert trapezoid(density, x) == pytest.approx(1, abs=1e-6)
        sign = 1 if world else -1
        assert trapezoid(x * density, x) == pytest.approx(sign * np.mean(mu**2) / 2, abs=1e-5)

    def test_the_two_worlds_mirror_each_other_and_differ_by_the_log_odds(self):
        x, mu = np.linspace(-3, 3, 61), np.array([0.4, 0.9])
        on_d = drawings.predicted_density(x, mu, True)
        on_d_prime = drawings.predicted_density(x, mu, False)
        np.testing.assert_allclose(on_d, on_d_prime[::-1])
        np.testing.assert_allclose(np.log(on_d / on_d_prime), x, atol=1e-9)

    def test_many_trials_draw_the_curve_of_all_of_them(self):
        mu = np.random.default_rng(0).gamma(4, 0.2, 20_000)
        x = np.linspace(-8, 8, 101)
        exact = norm.pdf(x[:, None], mu**2 / 2, mu).mean(axis=1)
        np.testing.assert_allclose(drawings.predicted_density(x, mu, True), exact, atol=2e-3)


def test_curves_of_attacks_differ_without_colour_and_leave_out_rare_rates():
    rates = [0.001, 0.1, 1.0]
    attacks = {name: (rates, [0.002, 0.2, 1.0]) for name in ("a", "b", "c")}
    drawn = drawings.roc(attacks, (rates, rates))
    looks = {(each.look, each.colour) for each in drawn.panels[0].curves}
    assert len(looks) == len(drawn.panels[0].curves) == 5
    assert len({each.look for each in drawn.panels[0].curves[1:4]}) == 3
    assert list(curve(drawn, "a").at) == [0.1, 1.0]
    assert "<svg" in drawn.picture


def test_pairs_and_relations_show_their_quantiles_beside_what_clipping_allows():
    measured = np.random.default_rng(2).uniform(3.9, 4.7, (20, 5))
    pairs = {"max": {"1": measured}, "min": {"2\nd = 0.25": measured - 2}}
    drawn = drawings.by_pair(pairs, 6.0)
    low, middle, high = np.quantile(measured - 2, [0.05, 0.5, 0.95])
    found = of(drawn)
    assert found["", "smallest distance"].at == ("2\nd = 0.25",)
    assert found["", "smallest distance"].values == pytest.approx((middle,))
    assert found["", "smallest distance, low"].values == pytest.approx((low,))
    assert found["", "smallest distance, high"].values == pytest.approx((high,))
    relations = {"add-remove": (measured / 2, 3.0), "replace": (measured, 6.0)}
    beside = drawings.over_training(relations)
    first, second = beside.figure.axes
    assert first.get_ylim() == second.get_ylim()
    assert beside.panels[1].title.endswith("of 6")


@pytest.mark.parametrize("trials", [2, 5])
def test_one_round_of_few_trials_is_drawn(trials):
    worlds = np.arange(trials) % 2 == 0
    log_odds = np.linspace(-1, 1, trials)[:, None]
    for drawn in (
        drawings.beliefs(worlds, log_odds, 0.9),
        drawings.log_odds_histogram(worlds, log_odds[:, 0], np.ones(trials), 2.0),
        drawings.poison_scores(worlds, log_odds[:, 0], 0.1),
        drawings.sensitivities(np.zeros((trials, 1)), None),
    ):
        assert "<svg" in drawn.picture


def test_svg_is_reproducible_keeps_its_text_and_tells_no_date(game):
    documents = [drawings.beliefs(*game, 0.9).picture for _ in range(2)]
    assert documents[0] == documents[1]
    root = ElementTree.fromstring(documents[0])
    texts = {element.text for element in root.iter("{http://www.w3.org/2000/svg}text")}
    assert {"round", "belief that D was used", "bound ρβ = 0.9"} <= texts
    assert not {"dc:date", "dc:creator"} & set(re.findall(r"dc:\w+", documents[0]))


def test_figures_leave_no_global_state_behind(game):
    before = dict(mpl.rcParams)
    drawn = drawings.beliefs(*game, 0.9)
    assert drawn.picture
    assert dict(mpl.rcParams) == before
    assert Gcf.get_all_fig_managers() == []
    alive = weakref.ref(drawn.figure)
    del drawn
    gc.collect()
    assert alive() is None
