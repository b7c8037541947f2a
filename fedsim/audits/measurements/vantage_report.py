"""Measurement and bound at every vantage: to whom is the target record identifiable?

The configured vantage also has a long report; this short one exists for every vantage.
"""

import math
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
from scipy.special import expit

from adversaries.arrays import Bools, Floats
from adversaries.bounds import lower_bounds
from adversaries.errors import InputError
from adversaries.statistics import estimators, forecast
from adversaries.statistics.intervals import ALARM_CONFIDENCE
from adversaries.statistics.trials import two_sided
from fedsim.audits.results.measured import AtVantage, VantageEmpirical
from fedsim.audits.results.theory import Density, Fit, Fits, Predicted, PredictionResult
from fedsim.audits.results.verdicts import AlarmCheck
from fedsim.config.campaign import AuditConfig
from fedsim.config.objects import GameRules, Scheme
from fedsim.federation.runs.run_directory import Arrays
from fedsim.game.mechanisms.vantages import measured, suffix
from fedsim.game.observers import at_server, released_model
from fedsim.privacy.identifiability import VantageBounds
from fedsim.privacy.participation.rule import Participation
from fedsim.privacy.trust.model import Vantage

LINEARISED = "an attack that replays the training, not an exact posterior: its log-odds are a score"
NOT_MEASURED = 'not measured: set audit.vantages = "all" to measure every vantage'
CERTAIN = (
    "without noise, one step shows whether the record was used: the belief is certain, and "
    "epsilon' is infinite, not missing"
)


def seen_from(transcript: Arrays, vantage: Vantage, primary: Vantage) -> Arrays:
    """Return the arrays of one vantage under their plain names; empty if it was not measured."""
    ending = suffix(vantage, primary)
    if f"log_odds{ending}" not in transcript:
        return {}
    names = "log_odds", "sensitivities", "noise_stds", "present_norms", "absent_norms"
    own = {name: transcript[f"{name}{ending}"] for name in names if f"{name}{ending}" in transcript}
    return {**own, "worlds": transcript["worlds"]}


def report(
    rules: GameRules,
    audit: AuditConfig,
    transcript: Arrays,
    bounds: Sequence[VantageBounds],
    predictions: Mapping[Vantage, PredictionResult],
    delta: float,
    confidence: float,
) -> dict[str, AtVantage]:
    rows, scheme = {}, rules.scheme
    primary = scheme.federation.vantage
    planned = measured(primary, audit.vantages)
    for bound in bounds:
        vantage = bound.vantage
        view = seen_from(transcript, vantage, primary)
        predicted = predictions[vantage] if view else None
        notes, attacked = [bound.note], bound.vantage is Vantage.RELEASED_MODEL
        if view:
            notes += [LINEARISED] if attacked else []
            notes += [] if view["noise_stds"].any() else [CERTAIN]
        elif attacked and (reason := released_model.why_not(scheme)):
            notes.append(f"not attacked: {reason}")
        elif bound.vantage not in planned:
            notes.append(NOT_MEASURED)
        rows[vantage.value] = AtVantage(
            noise_multiplier=bound.noise_multiplier,
            epsilon=bound.epsilon,
            rho_beta=bound.rho_beta,
            rho_alpha=bound.rho_alpha,
            exact_posterior=at_server.is_exact(scheme, audit.mode, vantage),
            prediction=None
            if predicted is None
            else Predicted(
                predicted.mu, predicted.advantage, predicted.standard_error, predicted.method
            ),
            empirical=None
            if predicted is None
            else _empirical(view, bound, predicted, delta, confidence),
            note="; ".join(note for note in notes if note),
        )
    return rows


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


def _empirical(
    view: Arrays,
    bound: VantageBounds,
    predicted: PredictionResult,
    delta: float,
    confidence: float,
) -> VantageEmpirical:
    worlds: Bools = view["worlds"]
    final = view["log_odds"][:, -1]
    both = two_sided(worlds)
    advantage = estimators.advantage(worlds, final, confidence)
    sure = estimators.advantage(worlds, final, ALARM_CONFIDENCE).interval
    proven = lower_bounds.clopper_pearson_bound(worlds, final, delta, confidence)
    largest = estimators.epsilon_from_belief(worlds, final)
    near = None
    if both and predicted.advantage is not None:
        # A simulated prediction has an error of its own: 3.3 standard errors cover it with about
        # 99.9 %.
        slack = 3.3 * (predicted.standard_error or 0.0)
        near = sure.low - slack <= predicted.advantage <= sure.high + slack
    return VantageEmpirical(
        advantage=advantage.point,
        advantage_interval=advantage.interval.ends if both else None,
        standard_error=advantage.standard_error,
        confidence=confidence,
        delta_prime=estimators.delta_prime(worlds, final, bound.epsilon, confidence).point,
        belief=float(expit(largest)),
        epsilon_belief=largest,
        lower_bound=proven,
        surely_at_least=sure.low if both else None,
        within_bound=sure.low <= bound.rho_alpha if both else None,
        near_prediction=near,
    )


def checks(rows: Mapping[str, AtVantage], primary: Vantage) -> Iterator[AlarmCheck]:
    """Yield the checks of the advantage at the vantages beside the configured one.

    They count decisions, so that they also hold for attacks whose log-odds are not a posterior.
    """
    for vantage, row in rows.items():
        empirical = row.empirical
        if vantage == primary.value or empirical is None or empirical.within_bound is None:
            continue
        alarm = None
        if not empirical.within_bound:
            alarm = (
                f"The advantage at the vantage {vantage} is above its bound: it is at least "
                f"{empirical.surely_at_least:.3f} with confidence {ALARM_CONFIDENCE:g}, but "
                f"rho_alpha is {row.rho_alpha:.3f}. The noise is not the noise that was accounted "
                "for, or a clipped gradient exceeds the sensitivity."
            )
        yield AlarmCheck(f"advantage_{vantage}", alarm)


SIMULATED_GAMES, SIMULATED_STEPS = 200_000, 20_000_000
"""Games that a prediction under sampling plays, and the most steps of all of them together."""

SIMULATION_SEED = 0x5EED


def predictions(
    rules: GameRules, audit: AuditConfig, transcript: Arrays
) -> dict[Vantage, PredictionResult]:
    primary = rules.scheme.federation.vantage
    views = {
        vantage: seen_from(transcript, vantage, primary)
        for vantage in measured(primary, audit.vantages)
    }
    # A released model that is not attacked has no observations.
    return {
        vantage: _prediction(rules.scheme, view, vantage) for vantage, view in views.items() if view
    }


def _prediction(scheme: Scheme, transcript: Arrays, vantage: Vantage) -> PredictionResult:
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
