"""What the figures of local sensitivity show, read back from the artists on their axes."""

import numpy as np
import numpy.typing as npt
import pytest
from matplotlib.collections import LineCollection, PolyCollection

from fedsim.report.document import html
from fedsim.report.document.blocks import Figure
from fedsim.report.figures import canvas, training_figures
from fedsim.report.figures.training_figures import Followed, Relation

Floats = npt.NDArray[np.float64]


@pytest.fixture
def measured() -> Floats:
    return np.random.default_rng(2).uniform(3.9, 4.7, (20, 5))


def test_every_pair_has_its_distribution_and_its_distance(measured: Floats) -> None:
    pairs = [
        Followed("1", 1.25, "max", measured),
        Followed("2", 1.125, "max", measured - 0.5),
        Followed("last", 0.25, "min", measured - 2),
    ]
    (axes,) = training_figures.by_pair(pairs, 6.0).axes
    ticks = [label.get_text() for label in axes.get_xticklabels()]
    assert ticks == ["1\nd = 1.25", "2\nd = 1.125", "last\nd = 0.25"]
    violins = [item for item in axes.collections if isinstance(item, PolyCollection)]
    for violin, pair in zip(violins, pairs, strict=True):
        heights = violin.get_paths()[0].vertices[:, 1]
        assert heights.min() == pytest.approx(pair.sensitivities.min())
        assert heights.max() == pytest.approx(pair.sensitivities.max())
    spans = [item for item in axes.collections if isinstance(item, LineCollection)]
    low, middle, high = np.quantile(measured - 2, [0.05, 0.5, 0.95])
    np.testing.assert_allclose(spans[-2].get_segments()[0], [[2, low], [2, high]])
    np.testing.assert_allclose(spans[-1].get_segments()[0][:, 1], middle)
    legend = [text.get_text() for text in axes.get_legend().get_texts()]
    assert legend == ["largest distance", "smallest distance", "clipping allows 6"]


def test_a_pair_whose_gradients_are_all_clipped_is_a_line() -> None:
    """|g| = C in every step: there is no density to draw, and nothing fails."""
    pair = Followed("1", 1.0, "max", np.full((4, 3), 3.0))
    (axes,) = training_figures.by_pair([pair]).axes
    assert not [item for item in axes.collections if isinstance(item, PolyCollection)]
    assert axes.get_ylim()[1] > 3


def test_over_training_both_relations_stand_beside_what_clipping_allows(measured: Floats) -> None:
    relations = [Relation("add-remove", measured / 2, 3.0), Relation("replace", measured, 6.0)]
    panels = training_figures.over_training(relations).axes
    for axes, relation in zip(panels, relations, strict=True):
        median, bound = axes.get_lines()
        np.testing.assert_array_equal(median.get_xdata(), np.arange(1, 6))
        np.testing.assert_allclose(median.get_ydata(), np.median(relation.sensitivities, axis=0))
        np.testing.assert_array_equal(bound.get_ydata(), relation.bound)
        rms = np.sqrt((relation.sensitivities**2).mean())
        title = axes.get_title(loc="left")
        assert title == f"{relation.name}: RMS {rms:.3g} of {relation.bound:.3g}"
    assert panels[0].get_ylim() == panels[1].get_ylim()


def test_the_same_numbers_draw_the_same_picture_inside_a_page(measured: Floats) -> None:
    def draw() -> str:
        drawn = training_figures.over_training([Relation("replace", measured, 6.0)])
        return canvas.to_svg(drawn)

    assert draw() == draw()
    pair = Followed("<1>", 1.0, "min", measured)
    figure = Figure("pairs", training_figures.by_pair([pair]), "", "Pair by pair")
    page = html.fragment([figure])
    assert "&lt;1&gt;" in page
    assert "<1>" not in page
