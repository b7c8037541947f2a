"""Theorem 3 for a replaced record under sampling: what its "without loss of generality" loses."""

import math

import numpy as np
from scipy import special

from fedsim.privacy import bayesian
from fedsim.privacy.mechanism import Neighbouring
from fedsim.report.figures import canvas
from fedsim.report.figures.canvas import Floats
from fedsim.studies.reproduction.findings import Means, Number, Picture, Reproduced

RATE, ORDER, DISTANCE = 1e-3, 4, 1.0
"""q, lambda, and |g - g'| over the noise."""

NORMS = np.linspace(0.0, 8.0, 33)
"""|g'| over the noise; g lies beyond it."""

POINTS = 200_001
"""Of the quadrature."""


def shown(means: Means) -> Reproduced:
    """Return the exact moment of a replaced record against Theorem 3 and a bound that holds."""
    exact = np.array([moment(float(one)) for one in NORMS])
    printed = _by(Neighbouring.ADD_REMOVE)
    bound = _by(Neighbouring.REPLACE)
    ratio = float(exact[-1] / printed)
    numbers = (
        Number("exact moment, g′ = 0", float(exact[0]), closed_form=printed),
        Number(f"exact moment, |g′| = {NORMS[-1]:g} σ", float(exact[-1]), closed_form=bound),
        Number("Theorem 3", printed),
        Number("bound by convexity", bound),
    )
    return Reproduced(
        "Theorem 3's proof takes g′ = 0 without loss of generality. For one sampled step there is "
        "a loss: the noise of both worlds is a mixture in which the record takes part with "
        "probability q, and |g − g′| does not tell how far from the other records both are. At "
        f"|g − g′| = σ, λ = {ORDER} and q = {RATE:g} the moment is Theorem 3's {printed:.3g} at "
        f"g′ = 0, and {ratio:.3g} times that at |g′| = {NORMS[-1]:g} σ, where it is the bound by "
        "convexity. Figures 1, 3 and 4 and the authors' code use Theorem 3 as printed, so their "
        "BDP ε of a replaced record is no bound where gradients are longer than the noise; a "
        "record that is added or removed, with its norm as the distance, is accounted soundly.",
        numbers,
        (
            Picture(
                "theorem-3",
                f"Log-moment at λ = {ORDER} of one step, q = {RATE:g}, |g − g′| = σ, against |g′|: "
                "by quadrature, as Theorem 3 has it, and bounded by convexity.",
                _drawn(exact, printed, bound),
            ),
        ),
    )


def moment(norm: float) -> float:
    """Return log E_Q (P/Q)^(lambda + 1) by quadrature, for g' at `norm` and g beyond it.

    P = (1-q) N(0, 1) + q N(g, 1), and Q the same with g'.

    Args:
        norm: |g'| over the noise.
    """
    ends = -14.0, norm + DISTANCE * (ORDER + 2) + 14.0
    at = np.linspace(*ends, POINTS)
    above, below = _log_mixture(at, norm + DISTANCE), _log_mixture(at, norm)
    # The excess over 1, so that nothing cancels.
    excess = np.expm1((ORDER + 1) * (above - below)) - (ORDER + 1) * np.expm1(above - below)
    found = np.trapezoid(np.exp(below) * excess, at)
    return math.log1p(float(found))


def _log_mixture(at: Floats, mean: float) -> Floats:
    apart = -((at - mean) ** 2) / 2 + math.log(RATE)
    both = special.logsumexp([-(at**2) / 2 + math.log1p(-RATE), apart], axis=0)
    return np.asarray(both - math.log(2 * math.pi) / 2)


def _by(neighbouring: Neighbouring) -> float:
    found = bayesian.log_moments([ORDER], DISTANCE, 1.0, RATE, neighbouring)
    return float(found[0])


def _drawn(exact: Floats, printed: float, bound: float) -> str:
    with canvas.panel("|g′| over the noise", "log-moment") as (figure, axes):
        axes.semilogy(NORMS, exact, color=canvas.BLUE, linewidth=2, label="exact")
        canvas.level_line(axes, printed, "Theorem 3", canvas.VERMILION, "--")
        canvas.level_line(axes, bound, "by convexity", canvas.GREEN, "--")
    return canvas.to_svg(figure)
