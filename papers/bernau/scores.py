"""Figures 1 to 3 and Table 2b of the core paper: beliefs and decisions from one noisy number."""

import math
from itertools import product

import numpy as np
import scipy.optimize
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from scipy.special import expit
from scipy.stats import norm

from adversaries.arrays import Floats
from adversaries.attacks import posterior
from adversaries.statistics import gaussian
from fedsim.privacy import calibration, identifiability
from fedsim.privacy.mechanism import Neighbouring
from fedsim.reports.figures import canvas
from papers.bernau.experiments import BELIEFS, DELTAS, TITLES
from papers.findings import ItemPicture, Means, Number, Reproduced, advantage_of_wins, printed

DELTA = 1e-6
"""Delta of both panels of Figure 2."""

DRAWS = {"smoke": 20_000, "full": 2_000_000}
"""Draws of the released number, half of them in each world."""


def boundary(means: Means) -> Reproduced:
    """Return Figure 1: both densities, the belief in D, and the decision boundary."""
    sigma = _sigma(6.0)
    middle = scipy.optimize.brentq(lambda at: float(_log_odds(np.array([at]), sigma)[0]), -3, 4)
    return Reproduced(
        "The belief passes one half midway between the two results. There, the adversary's "
        "decision changes.",
        [Number("where the belief is one half", middle, None, 0.5)],
        [
            ItemPicture(
                "figure-1",
                "Densities of what is released with f(D) = 0 and f(D′) = 1 at ε = 6 and δ = 1e-6, "
                "and the belief in D.",
                canvas.to_svg(_drawn([6.0], with_errors=False)),
            )
        ],
    )


def errors(means: Means) -> Reproduced:
    """Return Figure 2: the regions of error at epsilon 6 and 3."""
    numbers = [_measured(means, epsilon, 2 + i) for i, epsilon in enumerate((6.0, 3.0))]
    drawing = canvas.to_svg(_drawn([6.0, 3.0], with_errors=True))
    return Reproduced(
        "Halving ε leaves the boundary where it is and makes the regions of error larger: the "
        f"advantage falls from {numbers[0].ours:.3f} to {numbers[1].ours:.3f}.",
        numbers,
        [
            ItemPicture(
                "figure-2", "Regions of error (shaded) at ε = 6 and ε = 3, δ = 1e-6.", drawing
            )
        ],
    )


def _sigma(epsilon: float) -> float:
    """Return the classic standard deviation of a sensitivity of 1 (equation 1)."""
    return math.sqrt(2 * math.log(1.25 / DELTA)) / epsilon


def _log_odds(released: Floats, sigma: float) -> Floats:
    """Return the adversary's log-odds of D in each of T games, [T]."""
    observed = torch.tensor(released)[:, None]
    both = posterior.hypotheses(
        torch.zeros_like(observed),
        torch.zeros_like(observed),
        torch.ones_like(observed),
        torch.full((len(released),), sigma, dtype=torch.float64),
    )
    return np.asarray(posterior.log_likelihood_ratio(both, observed))


def _measured(means: Means, epsilon: float, seed: int) -> Number:
    """Return the measured advantage of the adversary that decides by its posterior."""
    half, sigma = DRAWS[means.scale] // 2, _sigma(epsilon)
    noise = np.random.default_rng(seed).normal(0, sigma, 2 * half)
    on_d = np.arange(2 * half) < half
    released = np.where(on_d, 0.0, 1.0) + noise
    wins = int(((_log_odds(released, sigma) > 0) == on_d).sum())
    won = advantage_of_wins(wins, 2 * half)
    name = f"advantage at ε = {epsilon:g}, of {2 * half:,} decisions"
    return Number(name, won.value, won.range, gaussian.advantage(1 / sigma))


def _drawn(epsilons: list[float], with_errors: bool) -> Figure:
    with canvas.panels(1, max(2, len(epsilons))) as (figure, panels):
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
    both = {"belief in D": belief, "belief in D′": 1 - belief}
    canvas.draw_curves(axes, released, both, linewidth=2)
    axes.axvline(0.5, color=canvas.MUTED, linewidth=1, linestyle="--")
    axes.set_xlabel("what is released")
    canvas.legend_above(axes)


SHOWN_DELTAS = (1e-2, 1e-3, 1e-6)
"""Deltas of the curves of Figure 3b."""

ROUNDS = 30
"""Rounds of every experiment of the paper."""

EPSILONS = {
    0.52: printed(0.08, 2),
    0.53: printed(0.12, 2),
    0.75: printed(1.1, 1),
    0.9: printed(2.2, 1),
    0.99: printed(4.6, 1),
}
"""Published epsilon by rho_beta (Table 2b)."""

ADVANTAGES = {"mnist": (0.01, 0.14, 0.28, 0.54), "adult": (0.01, 0.12, 0.23, 0.46)}
"""Published rho_alpha of the four values of rho_beta (Table 2b)."""


def curves(means: Means) -> Reproduced:
    """Return Figure 3: rho_beta and rho_alpha against epsilon."""
    epsilons = np.linspace(0.01, 10, 200)
    with canvas.panel("ε", "ρβ") as (belief, axes):
        rho_beta = [identifiability.rho_beta_of_epsilon(float(one)) for one in epsilons]
        axes.plot(epsilons, rho_beta, color=canvas.BLUE, linewidth=2, label="every δ")
    with canvas.panel("ε", "ρα") as (advantage, axes):
        colours = (canvas.BLUE, canvas.VERMILION, canvas.GREEN)
        for delta, colour in zip(SHOWN_DELTAS, colours, strict=True):
            stated = [identifiability.theorem2_rho_alpha(float(e), delta) for e in epsilons]
            exact = [gaussian.advantage(gaussian.mu_of_epsilon(float(e), delta)) for e in epsilons]
            axes.plot(
                epsilons, stated, color=colour, linewidth=2, label=f"Theorem 2, δ = {delta:g}"
            )
            axes.plot(epsilons, exact, color=colour, linewidth=1.4, linestyle="--")
        axes.plot([], [], color=canvas.INK, linewidth=1.4, linestyle="--", label="exact")
    most = max(
        gaussian.advantage(gaussian.mu_of_epsilon(float(epsilon), delta))
        - identifiability.theorem2_rho_alpha(float(epsilon), delta)
        for epsilon, delta in product(epsilons, SHOWN_DELTAS)
    )
    return Reproduced(
        "As the paper says, the belief does not depend on δ, but the advantage does. Theorem 2 "
        "as printed assumes the classic noise of Equation 1. Noise that is calibrated exactly to "
        f"(ε, δ) allows the adversary a larger advantage, by up to {most:.3f}. So Theorem 2 is not "
        "a bound for an (ε, δ) guarantee.",
        [Number("advantage above Theorem 2, at most, ε to 10", most)],
        [
            ItemPicture("figure-3a", "ρβ against ε.", canvas.to_svg(belief)),
            ItemPicture(
                "figure-3b",
                "ρα against ε: Theorem 2 as printed, and the advantage that the least noise of an "
                "(ε, δ)-private Gaussian mechanism allows (dashed).",
                canvas.to_svg(advantage),
            ),
        ],
    )


def settings(means: Means) -> Reproduced:
    """Return Table 2b: epsilon, rho_alpha and the noise multiplier of each rho_beta."""
    numbers: list[Number] = []
    for data, published in ADVANTAGES.items():
        delta = DELTAS[data]
        for belief, advantage in zip(BELIEFS[data], published, strict=True):
            epsilon = identifiability.epsilon_of_rho_beta(belief)
            stated = identifiability.theorem2_rho_alpha(epsilon, delta)
            at = f"{TITLES[data]}, ρβ = {belief:g}"
            numbers += [
                Number(f"{at}: ε", epsilon, references=[EPSILONS[belief]]),
                Number(f"{at}: ρα (Theorem 2)", stated, references=[printed(advantage, 2)]),
                _multiplier(data, belief, epsilon, delta, at),
            ]
    return Reproduced(
        "Every ε and ρα of the table follows from Equation 10 and Theorem 2. The noise follows "
        "from the classic RDP conversion, at one multiplier for all 30 steps.",
        numbers,
    )


def _multiplier(data: str, belief: float, epsilon: float, delta: float, at: str) -> Number:
    wanted = calibration.epsilon_at_most(epsilon, delta, "rdp-classic")
    multiplier = calibration.noise_multiplier(wanted, ROUNDS, neighbouring=Neighbouring.REPLACE)
    return Number(f"{at}: noise multiplier", multiplier)
