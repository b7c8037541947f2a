"""What each vantage saw of the trials, and what theory predicts of them."""

import math

import numpy as np

from adversaries.arrays import Bools, Floats
from adversaries.errors import InputError
from adversaries.statistics import forecast
from fedsim.audits.results.theory import Fit, Fits, PredictionResult
from fedsim.configuration.objects import Scheme
from fedsim.federation.runs.run_directory import Arrays
from fedsim.game.mechanisms.vantages import suffix
from fedsim.privacy.participation.rule import Participation
from fedsim.privacy.trust import Vantage


def seen_from(transcript: Arrays, vantage: Vantage, primary: Vantage) -> Arrays:
    """Return the arrays of one vantage under their plain names; empty if it was not measured."""
    ending = suffix(vantage, primary)
    if f"log_odds{ending}" not in transcript:
        return {}
    names = "log_odds", "sensitivities", "noise_stds", "present_norms", "absent_norms"
    own = {name: transcript[f"{name}{ending}"] for name in names if f"{name}{ending}" in transcript}
    return {**own, "worlds": transcript["worlds"]}


def _caught(participation: Participation, view: Arrays) -> float:
    """Return the advantage of an observer that sees the target whenever it takes part."""
    # Only rounds in which the target would change the sum can give it away.
    chances = (view["sensitivities"] > 0).sum(axis=1)
    # 1 - (1 - q)^chances, computed so that it stays exact for small q.
    return float(-np.expm1(chances * math.log1p(-participation.rate)).mean())


SIMULATED_GAMES, SIMULATED_STEPS = 200_000, 20_000_000
"""Games that a prediction under sampling plays, and the most steps of all of them together."""

SIMULATION_SEED = 0x5EED
NO_FITS = Fits(None, None)


def prediction(scheme: Scheme, seen: Arrays, vantage: Vantage) -> PredictionResult:
    """Return what theory predicts of the trials at a vantage, from what was seen there.

    For the released model it is the normal law of the linearised score. For a server that sees
    sampled sums without noise it is how often the target took part.
    """
    participation, noiseless = scheme.participation, not seen["noise_stds"].any()
    released = vantage is Vantage.RELEASED_MODEL
    caught = noiseless and (released or participation.secret)
    if scheme.scored_by_counts and not (released or caught):
        # The law of a score is unknown in advance.
        return PredictionResult(None, None, None, "none", False, NO_FITS)
    predicted = forecast.predict(seen["sensitivities"], seen["noise_stds"])
    normal = predicted.mu, predicted.advantage, 0.0
    if caught:
        chance = _caught(participation, seen)
        return PredictionResult(predicted.mu, chance, 0.0, "closed form", False, NO_FITS)
    if released:
        return PredictionResult(*normal, "linearised", False, NO_FITS)
    fits = _fits(seen["worlds"], _scores(participation, seen))
    if not participation.secret:
        return PredictionResult(*normal, "closed form", predicted.deterministic, fits)
    steps = seen["sensitivities"].shape[1]
    simulation = forecast.simulate(
        *_norms(seen),
        participation.rate,
        np.random.default_rng(SIMULATION_SEED),
        games=max(1000, min(SIMULATED_GAMES, SIMULATED_STEPS // steps)),
    )
    return PredictionResult(
        predicted.mu,
        simulation.advantage,
        simulation.standard_error,
        "simulation",
        simulation.deterministic,
        fits,
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
