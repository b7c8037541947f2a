"""The forecast of `fedsim trials`: the number of trials for a wanted precision."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from adversaries.bounds import sample_size
from adversaries.bounds.lower_bounds import LOWER_BOUNDS
from adversaries.errors import InputError
from adversaries.statistics import gaussian
from fedsim.audits.results import report as results
from fedsim.config import Config
from fedsim.config.campaign import AuditConfig
from fedsim.config.objects import GameRules
from fedsim.federation.runs.run_directory import RunDirectory
from fedsim.game.mechanisms import privacy
from fedsim.privacy import identifiability
from fedsim.privacy.delta import ASSUMED


@dataclass(frozen=True)
class Expected:
    """The expected result of a campaign.

    Attributes:
        advantage: expected advantage; None if unknown.
        origin: source of the advantage.
        mu: of Gaussian DP; None to compute it from the advantage.
        refused: lower bound -> why the experiment cannot have it.
        given: there is an experiment.
    """

    advantage: float | None = None
    origin: str = "as given"
    mu: float | None = None
    rules: GameRules = Config().game
    level: float = 0.95
    delta: float = ASSUMED
    refused: Mapping[str, str] = field(default_factory=dict)
    given: bool = False


def expected(
    rules: GameRules, audit: AuditConfig, source: str, run: RunDirectory | None = None
) -> Expected:
    """Return the advantage that a run predicts, or the largest that a configuration allows.

    Raises InputError if the source predicts no advantage, or an advantage of 1.
    """
    from fedsim.audits.measurements import bounds_audit  # noqa: PLC0415  (torch)

    scheme = rules.scheme
    forecast = Expected(
        rules=rules,
        level=audit.confidence,
        delta=scheme.privacy.delta,
        refused=bounds_audit.refused(rules),
        given=True,
    )
    if run:
        prediction = results.read(run).prediction
        advantage, origin = prediction.advantage, "the run's own prediction"
        forecast = replace(forecast, advantage=advantage, mu=prediction.mu, origin=origin)
    else:
        mechanism = privacy.mechanism(scheme, privacy.noise_multiplier(scheme))
        advantage = identifiability.bounds(
            mechanism, scheme.privacy.delta, scheme.privacy.accountant
        ).rho_alpha
        origin = "rho_alpha, the largest that the noise allows"
        forecast = replace(forecast, advantage=advantage, origin=origin)
    if forecast.advantage is None:
        raise InputError(f"'{source}' predicts no advantage; give an advantage in its place")
    if not -1 < forecast.advantage < 1:
        raise InputError(
            f"the advantage of '{source}' is {forecast.advantage:g} ({forecast.origin}), for which "
            "a single trial is enough; give an advantage in its place"
        )
    return forecast


def document(expected: Expected, halfwidth: float, share: float) -> dict[str, Any]:
    """Return the number of trials for the interval and for every lower bound, for JSON."""
    advantage, scheme = expected.advantage, expected.rules.scheme
    assert advantage is not None
    mu = gaussian.mu_of_advantage(max(0.0, advantage)) if expected.mu is None else expected.mu
    unknown = _unknown(scheme.training.sampling_rate, mu)
    epsilon = None if unknown else gaussian.epsilon(mu, expected.delta)
    return {
        "advantage": advantage,
        "advantage_from": expected.origin,
        "halfwidth": halfwidth,
        "confidence": expected.level,
        "trials": sample_size.trials_needed(advantage, halfwidth, expected.level),
        "trials_at_zero": sample_size.trials_needed(0.0, halfwidth, expected.level),
        "delta": expected.delta,
        "epsilon": epsilon,
        "share": share,
        "lower_bounds": None
        if epsilon is None
        else {
            name: None
            if name in expected.refused
            else sample_size.trials_for_epsilon(
                name, mu, share * epsilon, expected.delta, expected.level
            )
            for name in LOWER_BOUNDS
        },
        "refused": {
            name: expected.refused[name] for name in LOWER_BOUNDS if name in expected.refused
        },
        "no_lower_bounds": unknown,
        "sensitivities_vary": expected.given and scheme.privacy.sensitivity == "global",
    }


def _unknown(record_rate: float, mu: float) -> str | None:
    """Return why lower bounds have no forecast; None if they have one."""
    if record_rate < 1:
        return (
            "the log-odds of sampled steps have no closed form; the report leads with trade_off, "
            "the bound from the sampled mechanism's own trade-off curve"
        )
    return None if mu > 0 else "an advantage of 0 allows no lower bound"
