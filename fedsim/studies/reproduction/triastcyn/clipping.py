"""Figures 3 and 4: epsilon against sigma with clipping at quantiles of the norms."""

import numpy as np

from fedsim.privacy import bayesian
from fedsim.report.figures import canvas
from fedsim.report.figures.canvas import Floats
from fedsim.studies.reproduction.findings.finding import Number, Picture, Reproduced
from fedsim.studies.reproduction.findings.item import Means
from fedsim.studies.reproduction.triastcyn import synthetic
from fedsim.studies.reproduction.triastcyn.averages import averaged

QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.99)
"""Of the norms, where C is."""

SIGMAS = {"smoke": np.array([0.55, 0.95, 1.35]), "full": np.arange(0.55, 1.4, 0.05)}
"""Of the authors' code: the noise over 2 C."""

SHOWN = 0.95
"""Of the sigmas, the one that numbers are given of."""

DRAWS = {"smoke": 2, "full": 8}
"""Of all gradients; the authors' one."""


def compared(means: Means) -> Reproduced:
    """Return epsilon of one step against sigma, by both accountants, bounded and unbounded."""
    gradients = synthetic.gradients(np.random.default_rng(7), DRAWS[means.scale])
    sigmas = SIGMAS[means.scale]
    dp = np.array([synthetic.moments_epsilon(float(one), 1) for one in sigmas])
    bounded = {one: by_sigma(gradients, sigmas, one, clip=True) for one in QUANTILES}
    unbounded = {one: by_sigma(gradients, sigmas, one, clip=False) for one in QUANTILES}
    at = int(np.abs(sigmas - SHOWN).argmin())
    numbers = [Number(f"DP, σ = {SHOWN:g}: ε", float(dp[at]))]
    numbers += [
        averaged(f"BDP {name}, C at the {one:g} quantile, σ = {SHOWN:g}: ε", curve[:, at])
        for name, curves in (("bounded", bounded), ("unbounded", unbounded))
        for one, curve in curves.items()
    ]
    numbers += [
        Number(f"{name}: largest BDP ε − DP ε", max(float((c - dp).max()) for c in curves.values()))
        for name, curves in (("bounded", bounded), ("unbounded", unbounded))
    ]
    return Reproduced(
        _concluded(dp, bounded, unbounded),
        tuple(numbers),
        (
            _picture("figure-3", "Bounded: both clip.", sigmas, dp, bounded),
            _picture("figure-4", "DP bounded, BDP unbounded.", sigmas, dp, unbounded),
        ),
    )


def by_sigma(gradients: Floats, sigmas: Floats, quantile: float, clip: bool) -> Floats:
    """Return the Bayesian epsilon of one step at each sigma, [draws, sigmas].

    Args:
        gradients: [draws, n, d].
        sigmas: noise over 2 C, [sigmas].
        quantile: of the norms, C; the noise's standard deviation is 2 C sigma.
    """
    bounds = np.quantile(synthetic.norms(gradients), quantile, axis=-1)
    taken = synthetic.clipped(gradients, bounds) if clip else gradients
    ratios = synthetic.pair_distances(taken) / (2 * bounds[:, None])
    orders = synthetic.ORDERS
    each = np.broadcast_to(ratios[:, None], (len(ratios), len(sigmas), ratios.shape[-1]))
    costs = bayesian.step_costs(orders, each, sigmas, 1, synthetic.RATE)
    return bayesian.epsilons(costs, orders, synthetic.DELTA, bayesian.GAMMA)[0]


def _concluded(dp: Floats, bounded: dict[float, Floats], unbounded: dict[float, Floats]) -> str:
    above = max(float((curve - dp).max()) for curve in bounded.values())
    gaps = {one: float((dp - curve).mean()) for one, curve in bounded.items()}
    worse = [f"{one:g}" for one, curve in unbounded.items() if (curve > dp).any()]
    holds = "Holds" if above <= 0 else "Does not hold"
    return (
        f"{holds}: with clipping BDP's ε is never above DP's, at any σ and C of these "
        f"(the largest difference is {above:.3g}). That a smaller C brings BDP's curve to DP's "
        f"hardly holds here: the gap between them is {gaps[QUANTILES[-1]]:.3g} on average over σ "
        f"with C at the {QUANTILES[-1]:g} quantile and still {gaps[QUANTILES[0]]:.3g} at the "
        f"{QUANTILES[0]:g} quantile, because Weibull gradients have nonnegative entries: clipped "
        "to one length two of them lie at most √2 C apart, not DP's 2 C. Unclipped gradients are "
        "less consistent, as the source says: BDP's ε is above DP's at "
        f"some σ for C at the quantiles {', '.join(worse) or 'none'}."
    )


def _picture(
    name: str, caption: str, sigmas: Floats, dp: Floats, curves: dict[float, Floats]
) -> Picture:
    colours = (canvas.VERMILION, canvas.PURPLE, canvas.BLUE, canvas.GREEN, canvas.MUTED)
    with canvas.page_style():
        figure, axes = canvas.new_axes()
        for (quantile, curve), colour in zip(curves.items(), colours, strict=True):
            axes.plot(
                sigmas, curve.mean(axis=0), color=colour, linewidth=2, label=f"C at {quantile:g}"
            )
        axes.plot(sigmas, dp, "--", color=canvas.INK, linewidth=1.6, label="DP")
        axes.set_xlabel("σ")
        axes.set_ylabel("ε")
        canvas.legend_above(axes)
    return Picture(
        name,
        f"{caption} ε of one step at δ = {synthetic.DELTA:g} against σ, q = 1/1000, with C at "
        "quantiles of the norms and noise 2 C σ.",
        canvas.to_svg(figure),
    )
