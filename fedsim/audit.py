"""From a transcript to a report: what the adversary achieved, beside what theory allows."""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.special import logit

from adversaries import estimators, membership
from fedsim import identifiability, privacy
from fedsim.accounting import accountant
from fedsim.config import Config
from fedsim.errors import InputError
from fedsim.gaussian import epsilon as gaussian_epsilon
from fedsim.mechanism import Mechanism, Trust, sensitivity
from fedsim.run_directory import Arrays, RunDirectory
from fedsim.strict_json import strict_json

ALARM_CONFIDENCE = 0.999
"""How sure a contradiction of theory must be before the report calls it one."""


def write_report(
    directory: RunDirectory, confidence: float | None = None, delta: float | None = None
) -> dict[str, Any]:
    """Write report.json, the figures and report.html of a run from its facts and transcript.

    `confidence` and `delta` replace the configured ones. Returns the report. Raises InputError.
    """
    from fedsim import report as rendering  # noqa: PLC0415  (matplotlib is slow to import)

    for name, value in (("confidence", confidence), ("delta", delta)):
        if value is not None and not 0 < value < 1:
            raise InputError(f"{name} is {value}; it must lie between 0 and 1")
    transcript = directory.read_arrays("transcript.npz")
    facts = directory.read_json("facts.json")
    config = directory.config
    report = assemble(
        config,
        facts,
        transcript,
        confidence or config.audit.confidence,
        delta or config.privacy.delta,
    )
    rendering.write_figures(report, transcript, directory.path / "figures")
    directory.write_text("report.html", rendering.render_html(report, transcript))
    # Last, because its presence says that the run is finished.
    directory.write_json("report.json", report)
    return report


def assemble(
    config: Config, facts: Mapping[str, Any], transcript: Arrays, confidence: float, delta: float
) -> dict[str, Any]:
    """Return report.json as a dictionary of JSON values; infinity is null, explained beside it."""
    nominal = facts["noise_multiplier"]
    mechanism = privacy.mechanism(config, nominal)
    bounds = identifiability.bounds(mechanism, delta, config.privacy.accountant)
    local = config.privacy.sensitivity == "local"
    report: dict[str, Any] = {
        "name": config.run.name,
        "created": facts["created"],
        "seed": config.run.seed,
        "versions": facts["versions"],
        "runtime": facts["runtime"],
        "device": facts["device"],
        "noise_source": config.privacy.noise_source,
        "trust": config.federation.trust.value,
        "vantage": config.federation.vantage.value,
        "neighbouring": config.privacy.neighbouring.value,
        "prior": config.audit.prior,
        "trials": config.trials.count,
        "rounds": config.training.rounds,
        "owners": config.federation.owners,
        "data": {
            "name": facts["dataset"],
            "records": config.data.records,
            "held_out": facts["held_out"],
            "partition": config.federation.partition,
            "owner_sizes": facts["owner_sizes"],
        },
        "model": {"name": config.model.name, "parameters": facts["parameters"]},
        "challenge": facts["challenge"],
        "mechanism": {
            "noise_multiplier": nominal,
            "effective_noise_multiplier": mechanism.noise_multiplier,
            "clipping_norm": config.training.clipping_norm,
            "sensitivity": config.privacy.sensitivity,
            "steps": config.training.rounds,
            "sampling_rate": mechanism.sampling_rate,
            "learning_rate": config.training.learning_rate,
            "dp_guarantee": not local and config.privacy.noise_source == "system",
            "dp_note": _dp_note(config),
        },
        "bounds": {
            **asdict(bounds),
            "vantages": [
                asdict(row)
                for row in identifiability.vantage_bounds(
                    nominal,
                    mechanism.steps,
                    mechanism.sampling_rate,
                    mechanism.neighbouring,
                    config.federation.trust,
                    config.federation.owners,
                    delta,
                )
            ],
        },
        "prediction": _prediction(config, transcript),
        "empirical": _empirical(config, transcript, bounds.epsilon, confidence, delta),
        "membership_inference": _membership(transcript, confidence),
        "utility": _utility(transcript, facts["held_out"]),
        "timing": facts["timing"],
    }
    report["alarms"] = _alarms(config, transcript, report)
    report["warnings"] = [*report["alarms"].values(), *_cautions(config)]
    finite: dict[str, Any] = strict_json(report)
    return finite


def _prediction(config: Config, transcript: Arrays) -> dict[str, Any]:
    predicted = estimators.predict(
        transcript["sensitivities"], transcript["noise_stds"], config.audit.prior
    )
    fit = estimators.log_odds_fit(
        transcript["worlds"],
        transcript["log_odds"][:, -1],
        predicted.trial_mu,
        config.audit.prior,
    )
    return {
        "mu": predicted.mu,
        "advantage": predicted.advantage,
        "deterministic": predicted.deterministic,
        "fit": fit,
    }


def _empirical(
    config: Config, transcript: Arrays, epsilon: float, confidence: float, delta: float
) -> dict[str, Any]:
    worlds, final = transcript["worlds"], transcript["log_odds"][:, -1]
    norms, noise = transcript["sensitivities"], transcript["noise_stds"]
    advantage = estimators.advantage(worlds, final, confidence)
    # Epsilon bounds the privacy loss, which is the log-odds without what the prior put in.
    loss = final - logit(config.audit.prior)
    exceeded = estimators.delta_prime(worlds, loss, epsilon, confidence)
    return {
        "advantage": advantage.point,
        # Trials on D alone measure 2 TPR - 1, which is no advantage and has no bound.
        "advantage_interval": _interval(advantage.interval if _two_sided(transcript) else None),
        "standard_error": advantage.standard_error,
        "confidence": confidence,
        "wins": advantage.wins,
        "losses": advantage.losses,
        "ties": advantage.ties,
        "delta_prime": exceeded.point,
        "delta_prime_interval": [exceeded.interval.low, exceeded.interval.high],
        "epsilon": {
            "sensitivity": estimators.epsilon_from_sensitivities(
                norms, noise, delta, _classic_epsilon
            ),
            "sensitivity_exact": estimators.epsilon_from_sensitivities(
                norms, noise, delta, gaussian_epsilon
            ),
            "belief": estimators.epsilon_from_belief(worlds, loss),
            "advantage": estimators.epsilon_from_advantage(advantage.point, delta),
        },
        "lower_bounds": {
            name: asdict(bound(worlds, final, delta, confidence))
            for name, bound in estimators.LOWER_BOUNDS.items()
        },
        "sensitivity_rms": float(np.sqrt(np.mean(norms**2))),
        "sensitivity_max": float(norms.max()),
        "sensitivity_bound": sensitivity(
            config.privacy.neighbouring, config.training.clipping_norm
        ),
    }


def _classic_epsilon(mu: float, delta: float) -> float:
    """Return the paper's epsilon of Gaussian steps that compose to mu: classic RDP conversion."""
    if mu == 0:
        return 0.0
    return accountant("rdp-classic").epsilon(Mechanism(1 / mu, 1), delta)


def _membership(transcript: Arrays, confidence: float) -> dict[str, Any]:
    rates = transcript["true_positive_rate"], transcript["false_positive_rate"]
    population = membership.membership_advantage(*rates, confidence)
    challenge = membership.challenge_advantage(
        transcript["worlds"], transcript["challenge_is_member"], confidence
    )
    return {
        "yeom": {
            "advantage": population.point,
            "advantage_interval": _interval(population.interval),
            "tpr": float(rates[0].mean()),
            "fpr": float(rates[1].mean()),
        },
        "yeom_challenge": {
            "advantage": challenge.point,
            "advantage_interval": _interval(challenge.interval if _two_sided(transcript) else None),
        },
    }


def _two_sided(transcript: Arrays) -> bool:
    """Whether there are trials of both worlds."""
    return len(np.unique(transcript["worlds"])) == 2


def _interval(interval: estimators.Interval | None) -> list[float] | None:
    return None if interval is None else [interval.low, interval.high]


def _utility(transcript: Arrays, records: int) -> dict[str, Any]:
    def band(curves: npt.NDArray[np.float64]) -> dict[str, list[float]]:
        low, high = np.quantile(curves, [0.05, 0.95], axis=1)
        return {"mean": curves.mean(1).tolist(), "low": low.tolist(), "high": high.tolist()}

    accuracies = transcript["accuracies"]
    return {
        "rounds": list(range(len(accuracies))),
        "accuracy": band(accuracies),
        "loss": band(transcript["losses"]),
        "trials": accuracies.shape[1],
        "records": records,
    }


def _dp_note(config: Config) -> str:
    notes = []
    if config.privacy.sensitivity == "local":
        notes.append(
            "Noise was scaled to the local sensitivity of the challenge, which depends on the "
            "data: a measurement of tightness, not a DP guarantee."
        )
    if config.privacy.noise_source == "seed":
        notes.append(
            "Noise came from the run's seed, so that the experiment can be repeated; whoever knows "
            'the seed can remove it. Protecting people needs privacy.noise-source = "system".'
        )
    return " ".join(notes) or (
        "Noise was keyed by the operating system's entropy (a Philox stream for each trial, round "
        "and owner) and scaled to the global sensitivity."
    )


def _alarms(config: Config, transcript: Arrays, report: Mapping[str, Any]) -> dict[str, str]:
    """Return what contradicts theory beyond chance, by the name of the measure.

    At a confidence of its own: at the report's 95 % an honest mechanism would raise an alarm in one
    report of twenty.
    """
    worlds, final = transcript["worlds"], transcript["log_odds"][:, -1]
    bounds, sure = report["bounds"], f"with confidence {ALARM_CONFIDENCE:g}"
    alarms = {}
    low = estimators.advantage(worlds, final, ALARM_CONFIDENCE).interval.low
    if _two_sided(transcript) and low > bounds["rho_alpha"]:
        alarms["advantage"] = (
            f"The advantage is above its bound: at least {low:.3f} {sure}, but rho_alpha is "
            f"{bounds['rho_alpha']:.3f}. The noise is not what was accounted for, or a clipped "
            "gradient exceeds the sensitivity."
        )
    loss = final - logit(config.audit.prior)
    low = estimators.delta_prime(worlds, loss, bounds["epsilon"], ALARM_CONFIDENCE).interval.low
    if bounds["tail_probability"] is not None and low > bounds["tail_probability"]:
        alarms["delta_prime"] = (
            f"The belief passes rho_beta too often: in at least {low:.2g} of the trials on D "
            f"{sure}, but the tail of the privacy loss is {bounds['tail_probability']:.2g}."
        )
    for name, bound in estimators.LOWER_BOUNDS.items():
        epsilon = bound(worlds, final, bounds["delta"], ALARM_CONFIDENCE).epsilon
        if epsilon > bounds["tight_epsilon"]:
            alarms[name] = (
                f"The lower bound '{name}' is above what the noise guarantees: epsilon is at least "
                f"{epsilon:.3f} {sure}, but {bounds['tight_epsilon']:.3f} at delta "
                f"{bounds['delta']:g} by theory."
            )
    for world, fit in report["prediction"]["fit"].items():
        exact = report["prediction"]["deterministic"]
        if exact and fit and fit["p_value"] < 1 - ALARM_CONFIDENCE:
            alarms[world] = (
                f"The log-odds in {world} do not follow N(+-mu^2/2, mu^2) "
                f"(Kolmogorov-Smirnov p = {fit['p_value']:.2g}): the mechanism is not as claimed."
            )
    return alarms


def _cautions(config: Config) -> list[str]:
    cautions = []
    if config.federation.trust is Trust.CENTRAL:
        cautions.append(
            "Under central trust the server sees every owner's clean sum: towards the server there "
            "is no protection at all."
        )
    if config.trials.worlds == "d-only":
        cautions.append(
            "All trials train on D, as in the paper's own code: the advantage is 2 wins/T - 1, and "
            'bounds and intervals, which need both worlds (trials.worlds = "both"), are left out.'
        )
    if config.audit.prior != 0.5:
        cautions.append(
            f"The adversary decides from a prior of {config.audit.prior:g}; rho_beta, beliefs and "
            "delta' are stated from even odds, which is what epsilon bounds."
        )
    return cautions
