"""Sections 4.3, 4.4.1 and 4.4.3: how far the estimators of the privacy cost can be trusted.

The estimator's own mean and deviation have no DP guarantee here: the distribution of
the statistics is assumed, and the record that is replaced is a stated number of deviations away.
"""

from collections.abc import Callable, Mapping

import numpy as np
import numpy.typing as npt
from scipy import stats

from adversaries.arrays import Floats
from fedsim.reports.figures import canvas
from papers.findings import Grid, ItemPicture, Means, Number, Reproduced, share
from papers.triastcyn import bayesian, growth

RECORDS = 100
"""N in the source's example."""

GAMMAS = (1.0, 0.5, 0.05, 0.01, 1e-6, 1e-16, 0.0)
"""Probabilities of failure; the confidence is 1 minus these."""

SIMULATED = 0.05
HIGHEST = 0.9


def estimated(ones: npt.ArrayLike, zeros: npt.ArrayLike, gamma: npt.ArrayLike) -> Floats:
    """Return the mean's posterior quantile at confidence 1 - gamma, under a flat prior (4.3.1)."""
    first, second = np.asarray(ones) + 1.0, np.asarray(zeros) + 1.0
    return np.asarray(stats.beta.isf(gamma, first, second))


def _zeros() -> Grid:
    rows = [
        (f"{gamma:g}", f"{float(estimated(0, RECORDS, gamma)):.6g}", f"{closed_form(gamma):.6g}")
        for gamma in GAMMAS
    ]
    title = f"What the estimator says of {RECORDS} zeros, by its probability of failure γ."
    return Grid(title, ("γ", "estimate", f"1 − γ^(1/{RECORDS + 1})"), rows)


def closed_form(gamma: float) -> float:
    """Return 1 - gamma^(1/(N + 1)): the estimate of N zeros."""
    return float(1 - gamma ** (1 / (RECORDS + 1)))


def covered_flat(draws: int) -> Number:
    """Return the probability that a mean from the flat prior is at most its estimate."""
    draw = np.random.default_rng(11)
    mean = draw.uniform(size=draws)
    ones = draw.binomial(RECORDS, mean)
    hits = estimated(ones, RECORDS - ones, SIMULATED) >= mean
    name = f"binary, N = {RECORDS}, γ = {SIMULATED:g}: overestimates, mean drawn flat"
    return share(name, hits, 1 - SIMULATED)


def least_covered() -> tuple[float, float]:
    """Return the fixed mean up to `HIGHEST` at which overestimates are rarest, and how often.

    Above (1 - gamma)^(1/(N + 1)), the estimate of ones alone, there are none at all.
    """
    means, ones = np.linspace(0, HIGHEST, 4001)[1:], np.arange(RECORDS + 1)
    estimates = estimated(ones, RECORDS - ones, SIMULATED)
    # Estimates rise with the ones: those at or above the mean are a tail of the binomial law.
    first = np.searchsorted(estimates, means)
    coverage = stats.binom.sf(first - 1, RECORDS, means)
    worst = int(coverage.argmin())
    return float(means[worst]), float(coverage[worst])


DELTA = 1e-5
OWN_SAMPLES = np.unique(np.geomspace(10, 10**6, 40).astype(np.int64))
SHOWN = (50, 1_000, 100_000)

MOVES = (1.0, 3.0)
"""Distances of the replaced record from the mean, in standard deviations."""

ORDERS: Floats = 1 + np.geomspace(1e-3, 1e7, 1001)


def epsilon(samples: int, moved: float) -> float:
    """Return epsilon at DELTA of telling mean and variance of n samples.

    mean ~ N(mu, s^2/n) and (n-1) S^2/s^2 ~ chi^2 of n - 1 degrees, independent. A record at the
    mean is replaced by one `moved` deviations away. This moves mu by moved s/n, and the variance by
    the factor 1 + moved^2 (n-1)/n^2. Source: Gil, Alajaji and Linder, 2013, Table 2.
    """
    factor = 1 + moved**2 * (samples - 1) / samples**2
    shift = (moved / samples) ** 2 * samples
    both = []
    for ratio, first in ((factor, 1.0), (1 / factor, factor)):
        # From the variance `first` to first * ratio; the shift is in units of the first's at 1.
        divergence = normal_divergence(shift / first, ratio) + gamma_divergence(
            (samples - 1) / 2, ratio
        )
        both.append(np.min(divergence - np.log(DELTA) / (ORDERS - 1)))
    return float(max(both))


def normal_divergence(squared_shift: float, ratio: float) -> Floats:
    """Return D_alpha(N(0, 1) | N(shift, ratio)) at `ORDERS`; inf where it does not exist."""
    mixed = ORDERS * ratio + (1 - ORDERS)
    with np.errstate(divide="ignore", invalid="ignore"):
        divergence = ORDERS * squared_shift / (2 * mixed) - (
            np.log(mixed) - ORDERS * np.log(ratio)
        ) / (2 * (ORDERS - 1))
    return np.where(mixed > 0, divergence, np.inf)


def gamma_divergence(shape: float, ratio: float) -> Floats:
    """Return D_alpha of Gamma laws by the ratio of their scales at `ORDERS`; inf without one."""
    mixed = ORDERS * ratio + (1 - ORDERS)
    with np.errstate(divide="ignore", invalid="ignore"):
        divergence = shape * (ORDERS * np.log(ratio) - np.log(mixed)) / (ORDERS - 1)
    return np.where(mixed > 0, divergence, np.inf)


def _own_concluded() -> str:
    few, many = (epsilon(n, MOVES[1]) for n in (SHOWN[0], SHOWN[-1]))
    return (
        "The estimator's own leakage falls with the number of samples, as the source says. For "
        "many samples, it falls like 1/√n. If its statistics are Gaussian and χ², a record "
        f"{MOVES[1]:g} deviations away has ε = {few:.3g} at n = {SHOWN[0]}, and {many:.2g} at n = "
        f"{SHOWN[-1]}. This depends on the assumed distributions and on the distance of the "
        "record. It is not a guarantee of differential privacy, and it is for one step."
    )


def _own_picture() -> ItemPicture:
    curves = {
        f"record {moved:g} deviations away": [epsilon(int(n), moved) for n in OWN_SAMPLES]
        for moved in MOVES
    }
    with canvas.panel("samples n", "ε") as (figure, axes):
        canvas.draw_curves(axes, OWN_SAMPLES, curves, draw="loglog", linewidth=2)
    return ItemPicture(
        "own-cost",
        f"ε at δ = {DELTA:g} of the estimator's mean and deviation in one step, if they are "
        "Gaussian and χ² (no guarantee of differential privacy).",
        canvas.to_svg(figure),
    )


GAMMA = 0.05
"""Probability of failure in the simulation of Equation 14."""

SAMPLES = (10, 50, 500)
DRAWS = {"smoke": 2_000, "full": 40_000}

PERCENTILES = np.array([0.0, 0.5, 0.9, 0.99, 0.999, 0.9999, 0.99999])
"""Percentiles, as shares of the records."""

STEPS = {"smoke": 10, "full": 100}

Law = tuple[Callable[[np.random.Generator, tuple[int, int]], Floats], float]
"""A function that draws log-moments L, and the logarithm of the expectation of e^L."""

LAWS: Mapping[str, Law] = {
    "normal": (lambda draw, shape: np.log(draw.normal(10, 1, shape)), float(np.log(10))),
    "log-normal, s = 1": (lambda draw, shape: draw.normal(0, 1, shape), 0.5),
    "log-normal, s = 3": (lambda draw, shape: draw.normal(0, 3, shape), 4.5),
    "Pareto, tail 1.5": (lambda draw, shape: np.log1p(draw.pareto(1.5, shape)), float(np.log(3))),
}
"""Distributions of e^L, whose expectation is estimated."""


def examined(means: Means) -> Reproduced:
    """Return coverage of both estimators, epsilon by percentile, and the estimator's own cost."""
    draws = DRAWS[means.scale]
    worst, least = least_covered()
    zeros = Number(
        f"binary: estimate of {RECORDS} zeros at γ = {SIMULATED:g}",
        float(estimated(0, RECORDS, SIMULATED)),
        closed_form=closed_form(SIMULATED),
    )
    flat = covered_flat(draws)
    coverage = {(law, n): covered(law, n, draws) for law in LAWS for n in SAMPLES}
    extreme = covered("log-normal, s = 3", 50, draws, bayesian.GAMMA)
    curves = by_percentile(STEPS[means.scale])
    numbers = (
        zeros,
        flat,
        Number(
            f"binary, γ = {SIMULATED:g}: overestimates, worst fixed mean up to "
            f"{HIGHEST:g}, {worst:.3g}",
            least,
        ),
        *coverage.values(),
        extreme,
        *(
            Number(
                f"own cost under the assumed laws, record {moved:g} deviations away, n = {n}: ε",
                epsilon(n, moved),
            )
            for moved in MOVES
            for n in SHOWN
        ),
    )
    normal, heavy = coverage["normal", 50].ours, coverage["log-normal, s = 3", 50].ours
    return Reproduced(
        f"Holds: for {RECORDS} zeros, the binary estimator never says 0 unless its confidence is "
        "0, and says 1 at confidence 1. A mean p has the failure probability (1 − "
        f"p)^{RECORDS + 1}. Because of the flat prior, this is one draw more than there are data. "
        f"The estimator overestimates in {flat.ours:.3f} of draws from that prior (1 − γ = "
        f"{1 - SIMULATED:g}). For one fixed mean, it does so in as few as {least:.3f}, and never "
        f"for one near 1. Theorem 4 holds for normal e^L: {normal:.3f} at n = 50. It does not "
        f"hold in general: for heavy-tailed e^L, the estimator overestimates in {heavy:.3f}, and "
        f"in {extreme.ours:.3f} even at γ = 1e-16. So γ is not a probability of failure unless "
        "e^L is bounded or nearly normal. T steps make its tail T times longer in the exponent. "
        + _own_concluded(),
        numbers,
        [
            ItemPicture(
                "percentiles",
                f"ε for each of a share of the records at δ = {growth.DELTA:g}, after "
                f"{STEPS[means.scale]} steps of the gradients of Figure 1, by Markov's inequality "
                "(Section 4.4.1).",
                _drawn(curves),
            ),
            _own_picture(),
        ],
        [_zeros()],
    )


def covered(law: str, samples: int, draws: int, gamma: float = GAMMA) -> Number:
    """Return the share of draws in which Equation 14 is at least the expectation."""
    drawn, truth = LAWS[law]
    logs = drawn(np.random.default_rng(samples), (draws, samples))
    estimates = bayesian.estimate(logs[..., None], 1, gamma)[:, 0]
    name = f"e^L {law}, n = {samples}, γ = {gamma:g}: overestimates"
    return share(name, estimates >= truth, 1 - gamma)


def by_percentile(steps: int) -> Mapping[str, Floats]:
    """Return epsilon at each of `PERCENTILES`, by noise."""
    gradients = growth.weibull_gradients(np.random.default_rng(5), steps)
    lengths = growth.norms(gradients)
    deltas = [bayesian.delta_at_percentile(growth.DELTA, float(one)) for one in PERCENTILES]
    estimates = {}
    for quantile in (growth.QUANTILES[0], growth.QUANTILES[-1]):
        bounds = np.quantile(lengths, quantile, axis=-1)
        distances = growth.pair_distances(growth.clipped(gradients, bounds))
        spent = bayesian.step_costs(growth.ORDERS, distances, 2 * bounds, steps, growth.RATE).sum(
            axis=0
        )
        gamma = steps * bayesian.GAMMA
        estimates[f"clipped at the {quantile:g} quantile"] = np.array(
            [float(bayesian.epsilons(spent, growth.ORDERS, one, gamma)[0]) for one in deltas]
        )
    return estimates


def _drawn(curves: Mapping[str, Floats]) -> str:
    with canvas.panel("share of the records that it does not hold for", "ε") as (figure, axes):
        at = 1 - PERCENTILES
        canvas.draw_curves(axes, at, curves, draw="semilogx", linewidth=2, marker="o")
        axes.invert_xaxis()
    return canvas.to_svg(figure)
