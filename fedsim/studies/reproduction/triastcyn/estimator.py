"""Sections 4.3, 4.4.1 and 4.4.3: how far the estimators of the privacy cost can be trusted."""

from collections.abc import Callable, Mapping

import numpy as np

from fedsim.privacy import bayesian
from fedsim.report.figures import canvas
from fedsim.report.figures.canvas import Floats
from fedsim.studies.reproduction.findings.finding import Number, Picture, Reproduced
from fedsim.studies.reproduction.findings.item import Means
from fedsim.studies.reproduction.triastcyn import binary, growth, own_cost, synthetic
from fedsim.studies.reproduction.triastcyn.averages import share

GAMMA = 0.05
"""The probability of failure that is simulated."""

SAMPLES = (10, 50, 500)
"""n of the continuous estimator."""

DRAWS = {"smoke": 2_000, "full": 40_000}
"""Of every simulation."""

PERCENTILES = np.array([0.0, 0.5, 0.9, 0.99, 0.999, 0.9999, 0.99999])
"""Shares of the records."""

STEPS = {"smoke": 10, "full": 100}
"""Of the percentile curve."""

Law = tuple[Callable[[np.random.Generator, tuple[int, int]], Floats], float]
"""Draws log-moments; and the logarithm of the expectation of e to them."""

LAWS: Mapping[str, Law] = {
    "normal": (lambda draw, shape: np.log(draw.normal(10, 1, shape)), float(np.log(10))),
    "log-normal, s = 1": (lambda draw, shape: draw.normal(0, 1, shape), 0.5),
    "log-normal, s = 3": (lambda draw, shape: draw.normal(0, 3, shape), 4.5),
    "Pareto, tail 1.5": (lambda draw, shape: np.log1p(draw.pareto(1.5, shape)), float(np.log(3))),
}
"""Of e^L, whose expectation is estimated."""


def examined(means: Means) -> Reproduced:
    """Return coverage of both estimators, epsilon by percentile, and the estimator's own cost."""
    draws = DRAWS[means.scale]
    worst, least = binary.least_covered()
    zeros = Number(
        f"binary: estimate of {binary.RECORDS} zeros at γ = {binary.SIMULATED:g}",
        float(binary.estimated(0, binary.RECORDS, binary.SIMULATED)),
        closed_form=binary.closed_form(binary.SIMULATED),
    )
    flat = binary.covered(draws)
    coverage = {(law, n): covered(law, n, draws) for law in LAWS for n in SAMPLES}
    extreme = covered("log-normal, s = 3", 50, draws, bayesian.GAMMA)
    curves = by_percentile(STEPS[means.scale])
    numbers = (
        zeros,
        flat,
        Number(
            f"binary, γ = {binary.SIMULATED:g}: overestimates, worst fixed mean up to "
            f"{binary.HIGHEST:g}, {worst:.3g}",
            least,
        ),
        *coverage.values(),
        extreme,
        *own_cost.numbers(),
    )
    normal, heavy = coverage["normal", 50].ours, coverage["log-normal, s = 3", 50].ours
    return Reproduced(
        f"Holds: of {binary.RECORDS} zeros the binary estimator never says 0 unless its confidence "
        f"is 0, and 1 at confidence 1; a mean p has the failure probability (1 − p)^"
        f"{binary.RECORDS + 1}, one draw more than there are data, because of the flat prior. It "
        f"overestimates in {flat.ours:.3f} of draws from that prior (1 − γ = "
        f"{1 - binary.SIMULATED:g}); of one fixed mean in as few as {least:.3f}, and never of one "
        f"near 1. Theorem 4 holds for normal e^L: {normal:.3f} at n = 50. It does not hold in "
        f"general: of heavy-tailed e^L it overestimates in {heavy:.3f}, and in {extreme.ours:.3f} "
        "even at γ = 1e-16, so that γ is no probability of failure unless e^L is bounded or nearly "
        "normal, and T steps make its tail T times longer in the exponent. "
        f"{own_cost.concluded()}",
        numbers,
        (
            Picture(
                "percentiles",
                f"ε for each of a share of the records at δ = {synthetic.DELTA:g}, after "
                f"{STEPS[means.scale]} steps of the gradients of Figure 1, by Markov's inequality "
                "(Section 4.4.1).",
                _drawn(curves),
            ),
            own_cost.picture(),
        ),
        (binary.table(),),
    )


def covered(law: str, samples: int, draws: int, gamma: float = GAMMA) -> Number:
    """Return how often Equation 14 is at least the expectation."""
    drawn, truth = LAWS[law]
    logs = drawn(np.random.default_rng(samples), (draws, samples))
    estimates = bayesian.estimate(logs[..., None], 1, gamma)[:, 0]
    name = f"e^L {law}, n = {samples}, γ = {gamma:g}: overestimates"
    return share(name, estimates >= truth, 1 - gamma)


def by_percentile(steps: int) -> Mapping[str, Floats]:
    """Return epsilon at each of `PERCENTILES`, by what the noise is."""
    gradients = synthetic.gradients(np.random.default_rng(5), steps)
    lengths = synthetic.norms(gradients)
    deltas = [bayesian.delta_at_percentile(synthetic.DELTA, float(one)) for one in PERCENTILES]
    found = {}
    for quantile in (growth.QUANTILES[0], growth.QUANTILES[-1]):
        bounds = np.quantile(lengths, quantile, axis=-1)
        distances = synthetic.pair_distances(synthetic.clipped(gradients, bounds))
        spent = bayesian.step_costs(
            synthetic.ORDERS, distances, 2 * bounds, steps, synthetic.RATE
        ).sum(axis=0)
        gamma = steps * bayesian.GAMMA
        found[f"clipped at the {quantile:g} quantile"] = np.array(
            [float(bayesian.epsilons(spent, synthetic.ORDERS, one, gamma)[0]) for one in deltas]
        )
    return found


def _drawn(curves: Mapping[str, Floats]) -> str:
    with canvas.page_style():
        figure, axes = canvas.new_axes()
        for (name, curve), colour in zip(
            curves.items(), (canvas.BLUE, canvas.VERMILION), strict=True
        ):
            axes.semilogx(1 - PERCENTILES, curve, "o-", color=colour, linewidth=2, label=name)
        axes.invert_xaxis()
        axes.set_xlabel("share of the records that it does not hold for")
        axes.set_ylabel("ε")
        canvas.legend_above(axes)
    return canvas.to_svg(figure)
