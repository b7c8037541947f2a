"""Section 3: a town with one very rich resident, and the privacy of all under noise."""

import math

import numpy as np
from scipy import optimize, stats

from adversaries.arrays import Floats
from adversaries.statistics import gaussian
from fedsim.reports.figures import canvas
from papers.findings import Grid, ItemPicture, Means, Number, Reproduced
from papers.triastcyn import bayesian

EPSILONS = (0.5, 1.0, 2.0, 5.0, 10.0)

MEDIAN, SPREAD = 36_000.0, 0.6
"""Parameters of the residents' log-normal incomes."""

TIMES = 1000
"""The outlier's income over the median, and the clipped range."""

DELTA = 1e-5
SAMPLES = {"smoke": 2_000, "full": 100_000}

ORDERS = np.unique(np.geomspace(1, 10**6, 400).astype(np.int64))
"""Orders to search; small distances need large ones."""


def attacked(means: Means) -> Reproduced:
    """Return Equation 1, and the Bayesian epsilon of the residents beside the outlier's."""
    distances = resident_distances(SAMPLES[means.scale])
    dp = np.array(EPSILONS)
    bdp = np.array([rest(distances, multiplier(one)) for one in EPSILONS])
    numbers = [
        Number(f"Equation 1 at ε = {one:g}: accuracy at most", accuracy(one)) for one in EPSILONS
    ]
    numbers += [
        Number(f"BDP ε of a resident, noise for DP ε = {one:g}", epsilon)
        for one, epsilon in zip(EPSILONS, bdp, strict=True)
    ]
    exact = exact_rest(distances, multiplier(EPSILONS[2]))
    numbers.append(
        Number(
            f"the same without the accountant, DP ε = {EPSILONS[2]:g}: Pr[L > ε] = δ over the "
            "noise and the pairs",
            exact,
        )
    )
    rows = [
        (
            f"{one:g}",
            f"{accuracy(one):.5f}",
            f"{laplace_accuracy(one):.5f}",
            f"{epsilon:.3g}",
            f"{accuracy(epsilon):.4f}",
        )
        for one, epsilon in zip(EPSILONS, bdp, strict=True)
    ]
    headings = ("DP ε", "Equation 1", "Laplace mean", "BDP ε of a resident", "Equation 1 of it")
    return Reproduced(
        "Holds: at ε = 2, 5 and 10, Equation 1 lets an attacker be right with probability "
        f"{accuracy(2):.4f}, {accuracy(5):.4f} and {accuracy(10):.5f} about the outlier. This "
        "bound is on the posterior of one unlikely answer. Over all answers, a Laplace mean lets "
        f"the attacker be right with probability {laplace_accuracy(2):.3f} at ε = 2. The same "
        f"noise that leaves the outlier ε = {EPSILONS[2]:g} leaves the residents a Bayesian ε of "
        f"{bdp[2]:.3g} at δ = {DELTA:g}. Without the accountant's slack, it is {exact:.3g}. The "
        "Bayesian guarantee says nothing about the outlier, who was not drawn from the "
        "residents' distribution.",
        numbers,
        [
            ItemPicture(
                "outlier",
                "Left: Equation 1, and an attacker's accuracy on a Laplace mean. Right: Bayesian "
                "ε of the residents against the DP ε of the noise, which is scaled to the "
                "outlier.",
                _drawn(dp, bdp),
            )
        ],
        [Grid("An attacker's accuracy at equal noise.", headings, rows)],
    )


def accuracy(epsilon: float) -> float:
    """Return Equation 1: e^epsilon/(1 + e^epsilon)."""
    return 1 / (1 + math.exp(-epsilon))


def laplace_accuracy(epsilon: float) -> float:
    """Return the accuracy of the best attacker on the outlier in a Laplace mean."""
    return 1 - math.exp(-epsilon / 2) / 2


def multiplier(epsilon: float) -> float:
    """Return the least noise over sensitivity of one Gaussian release with epsilon at DELTA."""
    return 1 / gaussian.mu_of_epsilon(epsilon, DELTA)


def resident_distances(count: int) -> Floats:
    """Return |x - x'| over the clipped range, of pairs of residents, [count]."""
    draw, most = np.random.default_rng(3), TIMES * MEDIAN
    incomes = np.minimum(MEDIAN * draw.lognormal(0, SPREAD, (2, count)), most)
    return np.asarray(np.abs(incomes[0] - incomes[1]) / most)


def rest(distances: Floats, noise: float) -> float:
    """Return the Bayesian epsilon at DELTA of one release; both arguments are over the range."""
    costs = bayesian.step_costs(ORDERS, distances, noise, 1)
    return float(bayesian.epsilons(costs, ORDERS, DELTA, bayesian.GAMMA)[0])


def exact_rest(distances: Floats, noise: float) -> float:
    """Return the epsilon with Pr[L > epsilon] = DELTA over the noise and these pairs [n].

    By Definition 1, with the normal law of the loss, N(mu^2/2, mu^2) at mu = distance/noise.
    """
    ratios = np.maximum(distances / noise, 1e-300)

    def excess(epsilon: float) -> float:
        return float(stats.norm.sf(epsilon / ratios - ratios / 2).mean()) - DELTA

    return float(optimize.brentq(excess, 1e-12, 100.0, xtol=1e-14, rtol=1e-10))


def _drawn(dp: Floats, bdp: Floats) -> str:
    at = np.linspace(0, 10, 201)
    with canvas.panels(1, 2) as (figure, (left, right)):
        bound = [accuracy(one) for one in at]
        left.plot(at, bound, color=canvas.VERMILION, linewidth=2, label="Equation 1")
        mean = [laplace_accuracy(one) for one in at]
        left.plot(at, mean, color=canvas.BLUE, linewidth=2, label="Laplace mean")
        left.set_xlabel("ε")
        left.set_ylabel("accuracy")
        canvas.legend_above(left)
        right.loglog(dp, dp, "--", color=canvas.INK, label="DP")
        right.loglog(dp, bdp, "o-", color=canvas.GREEN, label="BDP")
        right.set_xlabel("DP ε")
        right.set_ylabel("ε")
        canvas.legend_above(right)
    return canvas.to_svg(figure)
