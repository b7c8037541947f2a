"""Figures 1 and 2 of the core paper: what the adversary decides from one noisy number."""

import math

import numpy as np
import scipy.optimize
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from scipy.special import expit
from scipy.stats import norm

from adversaries.attacks import posterior
from adversaries.statistics import gaussian
from adversaries.statistics.intervals import clopper_pearson
from fedsim.report.figures import canvas
from fedsim.report.figures.canvas import Floats
from fedsim.studies.reproduction.findings.finding import CONFIDENCE, Number, Picture, Reproduced
from fedsim.studies.reproduction.findings.item import Means

DELTA = 1e-6
"""Of both panels of Figure 2."""

DRAWS = {"smoke": 20_000, "full": 2_000_000}
"""Of the number that is released, half of them in either world."""


def boundary(means: Means) -> Reproduced:
    """Return Figure 1: both densities, the belief in D, and where the decision changes."""
    sigma = _sigma(6.0)
    middle = scipy.optimize.brentq(lambda at: float(_log_odds(np.array([at]), sigma)[0]), -3, 4)
    number = Number("where the belief is one half", middle, None, 0.5)
    return Reproduced(
        "The belief passes one half midway between the two results: there the adversary's "
        "decision changes.",
        (number,),
        (
            Picture(
                "figure-1",
                "Densities of what is released with f(D) = 0 and f(D′) = 1 at ε = 6 and δ = 1e-6, "
                "and the belief in D.",
                canvas.to_svg(_drawn([6.0], with_errors=False)),
            ),
        ),
    )


def errors(means: Means) -> Reproduced:
    """Return Figure 2: the regions of error at epsilon 6 and 3."""
    numbers = tuple(_measured(means, epsilon, 2 + i) for i, epsilon in enumerate((6.0, 3.0)))
    return Reproduced(
        "Half of ε leaves the boundary where it is and makes the regions of error larger: the "
        f"advantage falls from {numbers[0].ours:.3f} to {numbers[1].ours:.3f}.",
        numbers,
        (
            Picture(
                "figure-2",
                "Regions of error (shaded) at ε = 6 and ε = 3, δ = 1e-6.",
                canvas.to_svg(_drawn([6.0, 3.0], with_errors=True)),
            ),
        ),
    )


def _sigma(epsilon: float) -> float:
    """Return the classic standard deviation of a sensitivity of 1 (equation 1)."""
    return math.sqrt(2 * math.log(1.25 / DELTA)) / epsilon


def _log_odds(released: Floats, sigma: float) -> Floats:
    """Return the adversary's log-odds of D [T], of what was released in each of T games."""
    seen = torch.tensor(released)[:, None]
    both = posterior.hypotheses(
        torch.zeros_like(seen),
        torch.zeros_like(seen),
        torch.ones_like(seen),
        torch.full((len(released),), sigma, dtype=torch.float64),
    )
    return np.asarray(posterior.log_likelihood_ratio(both, seen))


def _measured(means: Means, epsilon: float, seed: int) -> Number:
    """Return the advantage of the adversary that decides by its posterior, game by game."""
    half, sigma = DRAWS[means.scale] // 2, _sigma(epsilon)
    noise = np.random.default_rng(seed).normal(0, sigma, 2 * half)
    on_d = np.arange(2 * half) < half
    released = np.where(on_d, 0.0, 1.0) + noise
    wins = int(((_log_odds(released, sigma) > 0) == on_d).sum())
    won = clopper_pearson(wins, 2 * half, CONFIDENCE)
    return Number(
        f"advantage at ε = {epsilon:g}, of {2 * half:,} decisions",
        2 * wins / (2 * half) - 1,
        (2 * won.low - 1, 2 * won.high - 1),
        gaussian.advantage(1 / sigma),
    )


def _drawn(epsilons: list[float], with_errors: bool) -> Figure:
    with canvas.page_style():
        figure = Figure(figsize=(canvas.WIDTH, canvas.HEIGHT), layout="constrained")
        panels = figure.subplots(1, max(2, len(epsilons)), squeeze=False)[0]
        for axes, epsilon in zip(panels, epsilons, strict=False):
            _densities(axes, _sigma(epsilon), with_errors)
            axes.set_title(f"ε = {epsilon:g}", pad=22)
        if not with_errors:
            _beliefs(panels[1], _sigma(epsilons[0]))
            panels[1].set_title("belief", pad=22)
    return figure


def _densities(axes: Axes, sigma: float, with_errors: bool) -> None:
    released = np.linspace(0.5 - 4 * sigma, 0.5 + 4 * sigma, 400)
    for mean, colour, label, wrong in (
        (0.0, canvas.BLUE, "trained on D", released > 0.5),
        (1.0, canvas.VERMILION, "trained on D′", released < 0.5),
    ):
        density = norm.pdf(released, mean, sigma)
        axes.plot(released, density, color=colour, linewidth=2, label=label)
        if with_errors:
            axes.fill_between(released, density, where=wrong, color=colour, alpha=0.25)
    axes.axvline(0.5, color=canvas.MUTED, linewidth=1, linestyle="--")
    axes.set_xlabel("what is released")
    axes.set_ylabel("density")
    canvas.legend_above(axes)


def _beliefs(axes: Axes, sigma: float) -> None:
    released = np.linspace(0.5 - 4 * sigma, 0.5 + 4 * sigma, 400)
    belief = expit(_log_odds(released, sigma))
    axes.plot(released, belief, color=canvas.BLUE, linewidth=2, label="belief in D")
    axes.plot(released, 1 - belief, color=canvas.VERMILION, linewidth=2, label="belief in D′")
    axes.axvline(0.5, color=canvas.MUTED, linewidth=1, linestyle="--")
    axes.set_xlabel("what is released")
    canvas.legend_above(axes)
