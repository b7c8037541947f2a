"""The numbers behind a figure are those that were drawn."""

import numpy as np
from matplotlib.figure import Figure

from fedsim.report.figures import canvas, training_figures

ROUNDS = np.arange(1, 4)


def of(figure):
    """The series of a figure by panel and name."""
    return {(one.panel, one.name): one for one in canvas.read(figure).series}


def test_lines_bands_and_levels_are_read_with_the_names_of_the_legend():
    figure = Figure()
    axes = figure.subplots()
    band = np.array([[0.1, 0.2, 0.3], [0.2, 0.3, 0.4], [0.4, 0.5, 0.6]])
    canvas.quantile_band(axes, ROUNDS, band, canvas.BLUE, "accuracy")
    canvas.level_line(axes, 0.9, "goal", canvas.INK, "--")
    axes.plot(ROUNDS, ROUNDS)  # has no name, and so is decoration
    canvas.rounds_axis(axes, ROUNDS)
    found = of(figure)
    assert set(found) == {
        ("", name) for name in ("accuracy", "accuracy, low", "accuracy, high", "goal")
    }
    low, middle, high = (found["", f"accuracy{end}"] for end in (", low", "", ", high"))
    assert (middle.across, middle.at, middle.values) == ("round", (1, 2, 3), (0.2, 0.3, 0.4))
    assert (low.values, high.values) == ((0.1, 0.2, 0.3), (0.4, 0.5, 0.6))
    assert (found["", "goal"].at, found["", "goal"].values) == ((), (0.9,))


def test_values_along_x_stand_at_the_names_of_the_y_axis():
    figure = Figure()
    axes = figure.subplots()
    axes.vlines([0.5, 0.3], [0.7, -0.3], [1.3, 0.3], label="bound")
    axes.plot([0.2, 0.4], [1, 1], label="_interval")
    axes.plot(0.3, 1, "o", label="measured")
    axes.set_yticks([1, 0], ["server", "released model"])
    found = of(figure)
    bound = found["", "bound"]
    assert dict(zip(bound.at, bound.values, strict=True)) == {"server": 0.5, "released model": 0.3}
    assert (found["", "measured"].at, found["", "measured"].values) == (("server",), (0.3,))


def test_bars_and_histograms_are_read_and_pictures_have_no_numbers():
    counts = np.array([[1, 2], [3, 4]])
    assert of(training_figures.distribution(counts))["", "1"].values == (2, 4)
    figure = Figure()
    axes = figure.subplots()
    axes.stairs([1, 5], [0, 1, 2], label="in")
    assert (of(figure)["", "in"].at, of(figure)["", "in"].values) == ((0.5, 1.5), (1, 5))
    assert of(training_figures.record_pairs(["a"], [(np.ones((8, 8)), None)])) == {}


def test_what_does_not_vary_is_told_from_what_hardly_does():
    still = np.ones((5, 3))
    assert canvas.read(training_figures.sensitivities(still, 1.0)).flat
    moving = still - np.array([0, 0.01, 0])
    assert not canvas.read(training_figures.sensitivities(moving, 1.0)).flat
    assert not canvas.read(training_figures.distribution(np.ones((2, 2), int))).flat


def test_numbers_come_out_of_json_as_they_went_in():
    figure = Figure()
    axes = figure.subplots()
    axes.plot(ROUNDS, [1.0, np.inf, 3.0], label="ε")
    found = canvas.decode(canvas.encode(canvas.read(figure)))
    np.testing.assert_array_equal(found.series[0].values, [1, np.nan, 3])
