"""Theory's prediction for a run at every vantage, and how well the run follows it."""

import numpy as np
from scipy.special import logit

from adversaries.errors import InputError
from adversaries.statistics import estimators, forecast
from adversaries.statistics.trials import Bools, Floats, two_sided
from fedsim.audits.measurements import vantage_report
from fedsim.audits.results.theory import Density, Fit, Fits, Prediction
from fedsim.config import Config
from fedsim.federation.runs.run_directory import Arrays
from fedsim.game.mechanisms.vantages import measured
from fedsim.privacy.participation.rule import Participation
from fedsim.privacy.trust.model import Vantage

SIMULATED_GAMES, SIMULATED_STEPS = 200_000, 20_000_000
"""Games that a prediction under sampling plays, and the most steps of all of them together."""

SIMULATION_SEED = 0x5EED
"""Seed of the prediction alone, so that the same transcript gives the same report."""


def predictions(config: Config, transcript: Arrays) -> dict[Vantage, Prediction]:
    """Return theory's prediction at every measured vantage, as `prediction` of report.json.

    Raises:
        InputError: the transcript lacks an array that a prediction under sampling needs.
    """
    primary = config.federation.vantage
    views = {
        vantage: vantage_report.seen_from(transcript, vantage, primary)
        for vantage in measured(config.federation.vantage, config.audit.vantages)
    }
    # A released model that is not attacked has no observations.
    return {vantage: _prediction(config, seen, vantage) for vantage, seen in views.items() if seen}


def _prediction(config: Config, transcript: Arrays, vantage: Vantage) -> Prediction:
    """Return theory's prediction at one vantage, and how well the run follows it."""
    prior = config.audit.prior
    if special := vantage_report.prediction(
        prior, config.participation, config.privacy.neighbouring, transcript, vantage
    ):
        return special
    if config.privacy.pac_prior == "halves" or config.scored_by_counts:
        # The law of a mixture over candidates, or of a score, is unknown in advance.
        return Prediction(
            mu=None,
            advantage=None,
            standard_error=None,
            deterministic=False,
            method="none",
            fit=Fits(None, None),
            density=None,
        )
    predicted = forecast.predict(transcript["sensitivities"], transcript["noise_stds"], prior)
    worlds = transcript["worlds"]
    if not config.participation.secret:
        return Prediction(
            mu=predicted.mu,
            advantage=predicted.advantage,
            standard_error=0.0,
            deterministic=predicted.deterministic,
            method="closed form",
            fit=_fits(worlds, _scores(prior, config.participation, transcript)),
            density=None,
        )
    steps = transcript["sensitivities"].shape[1]
    simulation = forecast.simulate(
        *_norms(transcript),
        config.participation.rate,
        np.random.default_rng(SIMULATION_SEED),
        prior=prior,
        games=max(1000, min(SIMULATED_GAMES, SIMULATED_STEPS // steps)),
    )
    advantage, error = simulation.advantage, simulation.standard_error
    if not two_sided(worlds):
        # With one world, 2 TPR - 1 is measured, which is TPR - FPR only for symmetric worlds.
        sample = simulation.world_d + logit(prior)
        one_sided = estimators.advantage(np.ones(sample.size, bool), sample, 0.95)
        advantage, error = one_sided.point, one_sided.standard_error
    return Prediction(
        mu=predicted.mu,
        advantage=advantage,
        standard_error=error,
        deterministic=simulation.deterministic,
        method="simulation",
        fit=_fits(worlds, _scores(prior, config.participation, transcript)),
        density=_density(simulation, prior),
    )


def _fits(worlds: Bools, scores: Floats) -> Fits:
    fits = forecast.fit(worlds, scores)
    return Fits(**{name: fit and Fit(**fit) for name, fit in fits.items()})


def _scores(prior: float, participation: Participation, transcript: Arrays) -> Floats:
    """Return the trials' log-odds, transformed to N(0, 1) if the mechanism is as claimed."""
    generator = np.random.default_rng(SIMULATION_SEED)
    worlds, log_odds = transcript["worlds"], transcript["log_odds"]
    if not participation.secret:
        ratios = transcript["sensitivities"], transcript["noise_stds"]
        return forecast.scores(worlds, log_odds, *ratios, generator, prior)
    return forecast.sampled_scores(
        worlds, log_odds, *_norms(transcript), participation.rate, generator, prior
    )


def _norms(transcript: Arrays) -> tuple[Floats, Floats, Floats, Floats]:
    """Return the arrays that predict sampled steps. Raises InputError if one is missing."""
    names = "present_norms", "absent_norms", "sensitivities", "noise_stds"
    missing = [name for name in names if name not in transcript]
    if missing:
        raise InputError(
            f"The transcript has no array '{missing[0]}', which the prediction of sampled steps "
            "needs. Run the experiment again."
        )
    present, absent, apart, noise = (transcript[name] for name in names)
    return present, absent, apart, noise


def _density(simulation: forecast.Simulation, prior: float) -> Density:
    """Return a histogram of the simulated final log-odds: 101 edges, 100 densities per world.

    The edges leave out the outermost thousandth at either end, which the densities count.
    """
    both = np.concatenate([simulation.world_d, simulation.world_d_prime])
    low, high = np.quantile(both, [0.001, 0.999])
    # A single value, as where every gradient is 0, still needs a bin of some width.
    edges = np.linspace(low, high if high > low else low + 1, 101)

    def heights(sample: Floats) -> list[float]:
        counts, _ = np.histogram(sample, edges)
        return (counts / (sample.size * np.diff(edges))).tolist()

    return Density(
        edges=(edges + logit(prior)).tolist(),
        world_d=heights(simulation.world_d),
        world_d_prime=heights(simulation.world_d_prime),
    )
