"""The figure of membership inference: receiver operating characteristics on two log scales.

After Figure 1 of Carlini et al., "Membership inference attacks from first principles", 2022; data
in, a matplotlib Figure out, as in `fedsim.report.figures.canvas`.
"""

from collections.abc import Mapping, Sequence

from matplotlib import colormaps
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

from adversaries.attacks.roc import FEWEST_FALSE
from fedsim.report.figures import canvas
from fedsim.report.figures.canvas import INK, MUTED

Rates = tuple[Sequence[float], Sequence[float]]
"""False and true positive rates, [m] each, ascending."""

LEAST = 1e-6
"""The lowest rate that is drawn."""


def roc(curves: Mapping[str, Rates], bound: Rates | None) -> Figure:
    """Return a figure of true against false positive rates, beside guessing and the bound.

    Rates that stand for fewer than ten pairs are not drawn.

    Args:
        bound: what differential privacy allows at most, None where it allows everything.
    """
    with canvas.page_style():
        figure = Figure(figsize=(canvas.WIDTH, 5.6), layout="constrained")
        axes = figure.subplots()
        least = min((rate for false, _ in curves.values() for rate in false if rate), default=1e-3)
        low = max(LEAST, FEWEST_FALSE * least)
        colours = colormaps["viridis"]
        for place, (name, (false, true)) in enumerate(curves.items()):
            shade = colours(0.95 * place / max(1, len(curves) - 1))
            line = ("-", "--", "-.")[place % 3]
            axes.plot(false, true, line, color=shade, linewidth=1.3, label=name)
        axes.plot([low, 1], [low, 1], ":", color=MUTED, linewidth=1, label="guessing")
        if bound is not None:
            label = "differential privacy allows"
            axes.plot(*bound, color=INK, linewidth=1.8, label=label)
        axes.set_xscale("log")
        axes.set_yscale("log")
        axes.set_xlim(low, 1)
        axes.set_ylim(low, 1.05)
        for axis in (axes.xaxis, axes.yaxis):
            axis.set_major_formatter(FuncFormatter(lambda rate, _: f"{100 * rate:g}%"))
        axes.set_xlabel("false positive rate")
        axes.set_ylabel("true positive rate")
        figure.legend(loc="outside lower center", ncols=3)
    return figure
