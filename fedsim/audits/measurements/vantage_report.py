"""What each vantage saw of the trials, and what theory predicts of them."""

import math

import numpy as np

from adversaries.arrays import Bools, Floats
from adversaries.errors import InputError
from adversaries.statistics import forecast
from fedsim.audits.results.theory import Density, Fit, Fits, PredictionResult
from fedsim.configuration.objects import Scheme
from fedsim.federation.runs.run_directory import Arrays
from fedsim.game.mechanisms.vantages import suffix
from fedsim.privacy.participation.rule import Participation
from fedsim.privacy.trust.model import Vantage


def seen_from(transcript: Arrays, vantage: Vantage, primary: Vantage) -> Arrays:
    """Return the arrays of one vantage under their plain names; empty if it was not measured."""
    ending = suffix(vantage, primary)
    if f"log_odds{ending}" not in transcript:
        return {}
    names = "log_odds", "sensitivities", "noise_stds", "present_norms", "absent_norms"
    own = {name: transcript[f"{name}{ending}"] for name in names if f"{name}{ending}" in transcript}
    return {**own, "worlds": transcript["worlds"]}


def _special_prediction(
    participation: Participation, view: Arrays, vantage: Vantage
) -> PredictionResult | None:
    """Return the prediction at a vantage whose log-odds need no closed form; else None.

    For the released model it is the normal law of the linearised score. For a server that sees
    sampled sums without noise it is how often the target took part.
    """
    noiseless = not view["noise_stds"].any()
    if vantage is not Vantage.RELEASED_MODEL and not (noiseless and participation.secret):
        return None
    predicted = forecast.predict(view["sensitivities"], view["noise_stds"])
    advantage, method = predicted.advantage, "linearised"
    if noiseless:
        advantage = _caught(participation, view)
        method = "closed form"
    return _without_fit(predicted.mu, advantage, 0.0, method)


def _without_fit(
    mu: float | None, advantage: float | None, error: float | None, method: str
) -> PredictionResult:
    return PredictionResult(
        mu=mu,
        advantage=advantage,
        standard_error=error,
        method=method,
        deterministic=False,
        fit=Fits(None, None),
        density=None,
    )


def _caught(participation: Participation, view: Arrays) -> float:
    """Return the advantage of an observer that sees the target whenever it takes part."""
    # Only rounds in which the target would change the sum can give it away.
    chances = (view["sensitivities"] > 0).sum(axis=1)
    # 1 - (1 - q)^chances, computed so that it stays exact for small q.
    return float(-np.expm1(chances * math.log1p(-participation.rate)).mean())


SIMULATED_GAMES, SIMULATED_STEPS = 200_000, 20_000_000
"""Games that a prediction under sampling plays, and the most steps of all of them together."""

SIMULATION_SEED = 0x5EED


def prediction(scheme: Scheme, transcript: Arrays, vantage: Vantage) -> PredictionResult:
    """Return what theory predicts of the trials at a vantage, from what was seen there."""
    if special := _special_prediction(scheme.participation, transcript, vantage):
        return special
    if scheme.scored_by_counts:
        # The law of a score is unknown in advance.
        return _without_fit(None, None, None, "none")
    predicted = forecast.predict(transcript["sensitivities"], transcript["noise_stds"])
    worlds = transcript["worlds"]
    if not scheme.participation.secret:
        return PredictionResult(
            mu=predicted.mu,
            advantage=predicted.advantage,
            standard_error=0.0,
            deterministic=predicted.deterministic,
            method="closed form",
            fit=_fits(worlds, _scores(scheme.participation, transcript)),
            density=None,
        )
    steps = transcript["sensitivities"].shape[1]
    simulation = forecast.simulate(
        *_norms(transcript),
        scheme.participation.rate,
        np.random.default_rng(SIMULATION_SEED),
        games=max(1000, min(SIMULATED_GAMES, SIMULATED_STEPS // steps)),
    )
    return PredictionResult(
        mu=predicted.mu,
        advantage=simulation.advantage,
        standard_error=simulation.standard_error,
        deterministic=simulation.deterministic,
        method="simulation",
        fit=_fits(worlds, _scores(scheme.participation, transcript)),
        density=_density(simulation),
    )


def _fits(worlds: Bools, scores: Floats) -> Fits:
    fits = forecast.fit(worlds, scores)
    return Fits(**{name: fit and Fit(**fit) for name, fit in fits.items()})


def _scores(participation: Participation, transcript: Arrays) -> Floats:
    """Return the trials' log-odds, transformed to N(0, 1) if the mechanism is as claimed."""
    generator = np.random.default_rng(SIMULATION_SEED)
    worlds, log_odds = transcript["worlds"], transcript["log_odds"]
    if not participation.secret:
        ratios = transcript["sensitivities"], transcript["noise_stds"]
        return forecast.scores(worlds, log_odds, *ratios, generator)
    return forecast.sampled_scores(
        worlds, log_odds, *_norms(transcript), participation.rate, generator
    )


def _norms(transcript: Arrays) -> tuple[Floats, Floats, Floats, Floats]:
    names = "present_norms", "absent_norms", "sensitivities", "noise_stds"
    missing = [name for name in names if name not in transcript]
    if missing:
        raise InputError(
            f"The transcript has no array '{missing[0]}', which the prediction of sampled steps "
            "needs. Run the experiment again."
        )
    present, absent, apart, noise = (transcript[name] for name in names)
    return present, absent, apart, noise


def _density(simulation: forecast.Simulation) -> Density:
    """Return a histogram of the simulated final log-odds: 101 edges, 100 densities per world.

    The edges leave out the outermost thousandth at either end, which the densities count.
    """
    both = np.concatenate([simulation.world_d, simulation.world_d_prime])
    low, high = np.quantile(both, [0.001, 0.999])
    # A single value, as where every gradient is 0, still needs a bin of some width.
    edges = np.linspace(low, high if high > low else low + 1, 101)

    def heights(sample: Floats) -> list[float]:
        counts, _ = np.histogram(sample, edges)
        # Counts over all trials and the width of the bin, so that the area is the share inside the
        # edges.
        return (counts / (sample.size * np.diff(edges))).tolist()

    return Density(
        edges=edges.tolist(),
        world_d=heights(simulation.world_d),
        world_d_prime=heights(simulation.world_d_prime),
    )
