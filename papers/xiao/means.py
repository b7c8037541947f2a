"""Xiao and Devadas, mean estimation: information in the mean of n records about one of them."""

import math
from collections.abc import Callable

import numpy as np
from scipy import integrate, special, stats

from adversaries.arrays import Floats
from fedsim.reports.figures import canvas
from papers.findings import CONFIDENCE, ItemPicture, Means, Number, Reproduced, near

RECORDS = (2, 5, 10, 100)
"""Numbers n of records; one of them is the secret."""

DRAWS = {"smoke": 20_000, "full": 1_000_000}

LogDensity = Callable[[Floats, int], Floats]
"""log f_k(s) of the sum s of k records."""

Draw = Callable[[np.random.Generator, tuple[int, ...]], Floats]


def estimated(means: Means) -> Reproduced:
    """Return the information in the mean of Gaussian and of Laplace records, against theory.

    The factor 1/n cancels: MI(x; mean) = h(S_n) - h(S_(n-1)) for the sums S.
    """
    laws: tuple[tuple[str, LogDensity, Draw, Callable[[int], float]], ...] = (
        (
            "Gaussian",
            lambda sums, k: np.asarray(stats.norm.logpdf(sums, scale=math.sqrt(k))),
            np.random.Generator.standard_normal,
            lambda n: 0.5 * math.log1p(1 / (n - 1)),
        ),
        (
            "Laplace",
            _log_laplace,
            lambda draw, shape: draw.laplace(size=shape),
            lambda n: _entropy(n) - _entropy(n - 1),
        ),
    )
    numbers = [
        _number(f"{law}, n = {n}", log_density, draw, theory(n), n, DRAWS[means.scale])
        for law, log_density, draw, theory in laws
        for n in RECORDS
    ]
    return Reproduced(
        "Without any noise, the mean of n Gaussian records reveals ½ log(1 + 1/(n − 1)) nats "
        "about each, as published. The mean of Laplace records reveals a little more while n is "
        f"small ({numbers[len(RECORDS)].ours:.3f} against {numbers[0].ours:.3f} at n = 2), and "
        "the same when n is large.",
        numbers,
        [
            ItemPicture(
                "means",
                "Information about one record in the mean of n, in nats: theory as lines, "
                "simulation as points.",
                _drawn(numbers),
            )
        ],
    )


def _entropy(count: int) -> float:
    """Return the differential entropy of a sum of Laplace records, in nats."""

    def loss(at: float) -> float:
        log_density = float(_log_laplace(np.array([at]), count)[0])
        return -math.exp(log_density) * log_density

    # Symmetric; beyond 40 standard deviations there is nothing to see.
    end = 40 * math.sqrt(2 * count)
    integral = integrate.quad(loss, 0, end, limit=400, points=(math.sqrt(2 * count),))
    return 2 * float(integral[0])


def _log_laplace(sums: Floats, count: int) -> Floats:
    """Return the density of a sum of k Laplace(1): |s|^v K_v(|s|) / (sqrt(pi) 2^v Gamma(k)).

    With v = k - 1/2 (a variance-gamma law); K scaled by e^|s| keeps it from underflow.
    """
    size, order = np.maximum(np.abs(sums), 1e-12), count - 0.5
    with np.errstate(divide="ignore", over="ignore"):
        bessel = np.log(special.kve(order, size)) - size
    # Near 0, where K overflows: K_v(s) ~ Gamma(v) (2/s)^v / 2.
    near = special.gammaln(order) + order * np.log(2 / size) - math.log(2)
    bessel = np.where(np.isfinite(bessel), bessel, near)
    scale = 0.5 * math.log(math.pi) + order * math.log(2) + special.gammaln(count)
    return np.asarray(order * np.log(size) + bessel - scale)


def _number(
    name: str, log_density: LogDensity, draw: Draw, theory: float, records: int, draws: int
) -> Number:
    """Return the mean of log f(mean | x) - log f(mean) over draws, with its interval."""
    generator, sums = np.random.default_rng(records), np.zeros(draws)
    for _ in range(records - 1):
        sums += draw(generator, (draws,))
    with_secret = sums + draw(generator, (draws,))
    ratios = log_density(sums, records - 1) - log_density(with_secret, records)
    half = stats.norm.ppf(0.5 + CONFIDENCE / 2) * ratios.std(ddof=1) / math.sqrt(draws)
    mean = float(ratios.mean())
    interval = (mean - float(half), mean + float(half))
    # The source prints a formula for Gaussian records, and none for others.
    published = [near(theory, 0.0)] * name.startswith("Gaussian")
    return Number(f"{name}: nats", mean, interval, theory, published)


def _drawn(numbers: list[Number]) -> str:
    half = len(RECORDS)
    with canvas.panel("records n", "information in nats") as (figure, axes):
        for law, colour, of_law in (
            ("Gaussian", canvas.BLUE, numbers[:half]),
            ("Laplace", canvas.VERMILION, numbers[half:]),
        ):
            axes.loglog(RECORDS, [one.closed_form for one in of_law], color=colour, label=law)
            axes.loglog(RECORDS, [one.ours for one in of_law], "o", color=colour)
    return canvas.to_svg(figure)
