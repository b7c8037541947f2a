"""Figure 3 and Table 2b of the core paper: epsilon as a belief and as an advantage."""

from itertools import product

import numpy as np

from adversaries.statistics import gaussian
from fedsim.privacy import calibration, identifiability
from fedsim.privacy.mechanism import Neighbouring
from fedsim.report.figures import canvas
from fedsim.studies.reproduction.bernau.experiments import BELIEFS, DELTAS, TITLES
from fedsim.studies.reproduction.findings.finding import (
    Number,
    Picture,
    Reference,
    Reproduced,
    printed,
)
from fedsim.studies.reproduction.findings.item import Means

SHOWN_DELTAS = (1e-2, 1e-3, 1e-6)
"""Of the curves of Figure 3b."""

ROUNDS = 30
"""Of every experiment of the paper."""

EPSILONS = {
    0.52: printed(0.08, 2),
    0.53: printed(0.12, 2),
    0.75: printed(1.1, 1),
    0.9: printed(2.2, 1),
    0.99: printed(4.6, 1),
}
"""Of rho_beta, in Table 2b."""

ADVANTAGES = {"mnist": (0.01, 0.14, 0.28, 0.54), "adult": (0.01, 0.12, 0.23, 0.46)}
"""rho_alpha in Table 2b, of the four values of rho_beta."""

MULTIPLIERS = {
    ("mnist", 0.52): 404.8436,
    ("mnist", 0.75): 15.984861,
    ("mnist", 0.9): 8.380227,
    ("adult", 0.9): 9.951727,
}
"""Noise multipliers that the authors' code printed, by data set and rho_beta."""


def curves(means: Means) -> Reproduced:
    """Return Figure 3: rho_beta and rho_alpha against epsilon."""
    epsilons = np.linspace(0.01, 10, 200)
    with canvas.page_style():
        belief, axes = canvas.new_axes()
        rho_beta = [identifiability.rho_beta_of_epsilon(float(one)) for one in epsilons]
        axes.plot(epsilons, rho_beta, color=canvas.BLUE, linewidth=2, label="every δ")
        axes.set_xlabel("ε")
        axes.set_ylabel("ρβ")
        canvas.legend_above(axes)
        advantage, axes = canvas.new_axes()
        colours = (canvas.BLUE, canvas.VERMILION, canvas.GREEN)
        for delta, colour in zip(SHOWN_DELTAS, colours, strict=True):
            stated = [identifiability.theorem2_rho_alpha(float(e), delta) for e in epsilons]
            exact = [gaussian.advantage(gaussian.mu_of_epsilon(float(e), delta)) for e in epsilons]
            axes.plot(
                epsilons, stated, color=colour, linewidth=2, label=f"Theorem 2, δ = {delta:g}"
            )
            axes.plot(epsilons, exact, color=colour, linewidth=1.4, linestyle="--")
        axes.plot([], [], color=canvas.INK, linewidth=1.4, linestyle="--", label="exact")
        axes.set_xlabel("ε")
        axes.set_ylabel("ρα")
        canvas.legend_above(axes)
    above = _theorem_2_against_exact(epsilons)
    return Reproduced(
        "The belief does not depend on δ, the advantage does, as the paper says. Theorem 2 "
        "as printed presumes the classic noise of Equation 1: noise that is calibrated exactly to "
        f"(ε, δ) lets the adversary have more, by up to {above.ours:.3f}. It is no bound of an "
        "(ε, δ) guarantee.",
        (above,),
        (
            Picture("figure-3a", "ρβ against ε.", canvas.to_svg(belief)),
            Picture(
                "figure-3b",
                "ρα against ε: Theorem 2 as printed, and the advantage that the least noise of an "
                "(ε, δ)-private Gaussian mechanism allows (dashed).",
                canvas.to_svg(advantage),
            ),
        ),
    )


def _theorem_2_against_exact(epsilons: np.ndarray) -> Number:
    most = max(
        gaussian.advantage(gaussian.mu_of_epsilon(float(epsilon), delta))
        - identifiability.theorem2_rho_alpha(float(epsilon), delta)
        for epsilon, delta in product(epsilons, SHOWN_DELTAS)
    )
    return Number("advantage above Theorem 2, at most, ε to 10", most)


def settings(means: Means) -> Reproduced:
    """Return Table 2b: epsilon, rho_alpha and the noise multiplier of each rho_beta."""
    numbers: list[Number] = []
    for data, published in ADVANTAGES.items():
        delta = DELTAS[data]
        for belief, advantage in zip(BELIEFS[data], published, strict=True):
            epsilon = identifiability.epsilon_of_rho_beta(belief)
            stated = identifiability.theorem2_rho_alpha(epsilon, delta)
            at = f"{TITLES[data]}, ρβ = {belief:g}"
            numbers.append(Number(f"{at}: ε", epsilon, references=(EPSILONS[belief],)))
            numbers.append(
                Number(f"{at}: ρα (Theorem 2)", stated, references=(printed(advantage, 2),))
            )
            numbers.append(_multiplier(data, belief, epsilon, delta, at))
    return Reproduced(
        "Every ε and ρα of the table follows from Equation 10 and Theorem 2; the noise from the "
        "classic RDP conversion, at one multiplier for all 30 steps.",
        tuple(numbers),
    )


def _multiplier(data: str, belief: float, epsilon: float, delta: float, at: str) -> Number:
    wanted = calibration.epsilon_at_most(epsilon, delta, "rdp-classic")
    found = calibration.noise_multiplier(wanted, ROUNDS, neighbouring=Neighbouring.REPLACE)
    recorded = MULTIPLIERS.get((data, belief))
    references: tuple[Reference, ...] = ()
    if recorded is not None:
        decimals = 4 if recorded > 100 else 6
        known = printed(recorded, decimals)
        references = (Reference(known.value, known.range, "recorded"),)
    return Number(f"{at}: noise multiplier", found, references=references)
