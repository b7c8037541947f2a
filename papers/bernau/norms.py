"""Section 5.1 of the core paper: C as the median of unclipped gradient norms, and its price."""

import numpy as np

from adversaries.arrays import Floats
from fedsim.game import federation
from fedsim.learning.training.optimizers import ServerOptimizer
from fedsim.reports.document.wording import percent
from fedsim.reports.figures import canvas
from fedsim.studies.sensitivity import gradient_sensitivity
from papers.bernau.experiments import DELTAS, TITLES, configured
from papers.findings import ItemPicture, Means, Number, Reproduced, middle

UNCLIPPED = 1e12
"""A clipping norm that no gradient reaches."""

PAID, LONGEST = 0.1, 100.0
"""Epsilon of the private median, and its upper bound."""

MODELS = {"smoke": 2, "full": 20}
"""Number of first models; 30 steps without noise train each of them."""


def surveyed(means: Means, data: str) -> Reproduced:
    """Return the norms of unclipped gradients before and after training, and a private median."""
    config = configured(means, data, {})
    free = configured(means, data, {"training.clipping-norm": UNCLIPPED})
    clipped, loaded = federation.load(config), federation.load(free)
    theta = federation.initial_parameters(config, clipped, range(MODELS[means.scale]))
    theta = theta.to(clipped.device)
    first = gradient_sensitivity.record_sensitivities(loaded, theta)
    optimizer = ServerOptimizer(config.training, config.participation.divisor)
    everybody = np.arange(config.data.records)
    for round in range(1, config.training.rounds + 1):
        total = clipped.clipped_sum(theta, everybody)
        theta = optimizer.step(theta, total.float(), round)
    last = gradient_sensitivity.record_sensitivities(loaded, theta)
    before, after = (np.median(norms, axis=1) for norms in (first, last))
    median, median_of_one = float(before.mean()), float(np.median(first[0]))
    trained = float(after.mean())
    share = float((first > 3).mean())
    drawn = private_median(first[0], PAID, LONGEST, np.random.default_rng(5))
    numbers = (
        Number("median norm, first models", median, middle(before)),
        Number("median norm, after 30 steps", trained, middle(after)),
        Number("share of norms above C = 3, first models", share),
        Number(f"private median at ε = {PAID:g}, of the first model's {median_of_one:.3g}", drawn),
    )
    return Reproduced(
        f"The median norm is {median:.3g} at first and {trained:.3g} after training. The paper "
        "uses C = 3 for all data, and observes that gradients are usually longer: here "
        f"{percent(share)} are. To publish the median costs ε = {PAID:g} more, on top of the "
        f"training's (ε, δ = {DELTAS[data]:g}), by basic composition.",
        numbers,
        [
            ItemPicture(
                f"norms-{data}",
                f"Norms of {TITLES[data]}'s unclipped gradients, quantile by quantile.",
                _drawn(first, last),
            )
        ],
    )


def private_median(
    norms: Floats, epsilon: float, longest: float, draw: np.random.Generator
) -> float:
    """Return a median of norms [n] that is epsilon-DP for a record that is replaced.

    The exponential mechanism over [0, longest], a public bound, with the utility -|rank - n/2|,
    which one replaced record changes by at most 1. Source: Smith, "Privacy-preserving statistical
    estimation with optimal convergence rates", 2011.
    """
    edges = np.concatenate([[0.0], np.sort(np.clip(norms, 0, longest)), [longest]])
    widths, ranks = np.diff(edges), np.arange(len(edges) - 1)
    with np.errstate(divide="ignore"):
        logs = np.log(widths) - epsilon / 2 * np.abs(ranks - len(norms) / 2)
    # Gumbel's trick: the largest of log-weights with Gumbel noise has the law of the weights.
    place = int(np.argmax(logs + draw.gumbel(size=len(logs))))
    return float(draw.uniform(edges[place], edges[place + 1]))


def _drawn(first: Floats, last: Floats) -> str:
    shares = np.linspace(0, 1, 101)
    curves = {"first models": first, "after 30 steps": last}
    quantiles = {label: np.quantile(norms, shares) for label, norms in curves.items()}
    with canvas.panel("share of the records", "norm of the gradient") as (figure, axes):
        canvas.draw_curves(axes, shares, quantiles, linewidth=2)
        canvas.level_line(axes, 3.0, "C = 3", canvas.INK, "--")
    return canvas.to_svg(figure)
