"""The numbers behind a figure are those that were drawn."""

import numpy as np

from fedsim.report.figures import canvas, run_figures, training_figures
from fedsim.report.figures.run_figures import MeasuredCurve
from fedsim.report.figures.series import series

ROUNDS = np.arange(1, 4)


def of(figure):
    """The series of a figure by panel and name."""
    return {(one.panel, one.name): one for one in series(figure)}


def test_lines_bands_and_levels_are_kept_with_the_names_of_the_legend():
    band = np.array([[0.1, 0.2, 0.3], [0.2, 0.3, 0.4], [0.4, 0.5, 0.6]])
    with canvas.panels() as (figure, (axes,)):
        canvas.quantile_band(axes, ROUNDS, band, canvas.BLUE, "accuracy")
        canvas.level_line(axes, 0.9, "goal", canvas.INK, "--")
        canvas.line(axes, ROUNDS, ROUNDS, "")  # has no name, and so is decoration
        canvas.rounds_axis(axes, ROUNDS)
    found = of(figure)
    assert set(found) == {
        ("", name) for name in ("accuracy", "accuracy, low", "accuracy, high", "goal")
    }
    low, middle, high = (found["", f"accuracy{end}"] for end in (", low", "", ", high"))
    assert (middle.across, middle.at, middle.values) == ("round", (1, 2, 3), (0.2, 0.3, 0.4))
    assert (low.values, high.values) == ((0.1, 0.2, 0.3), (0.4, 0.5, 0.6))
    assert (found["", "goal"].at, found["", "goal"].values) == ((), (0.9,))


def test_values_stand_at_the_names_of_an_axis():
    attacks = MeasuredCurve("this\nrun", 0.2, (0.1, 0.3)), MeasuredCurve("Yeom", 0.1, None)
    found = of(run_figures.advantages(attacks, bound=None, prediction=None, theorem2=None))
    assert found["", "measured"].at == ("this, run", "Yeom")
    assert found["", "interval, high"].values == (0.3, 0.1)


def test_histograms_are_kept_and_pictures_have_no_numbers():
    with canvas.panels() as (figure, (axes,)):
        canvas.stairs(axes, np.array([1, 5]), np.array([0, 1, 2]), "in")
    assert (of(figure)["", "in"].at, of(figure)["", "in"].values) == ((0.5, 1.5), (1, 5))
    assert of(training_figures.record_pairs(["a"], [(np.ones((8, 8)), None)])) == {}
