"""A run under audit: what each vantage saw of its trials, and what theory predicts of them."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from adversaries.arrays import Bools, Floats
from adversaries.errors import InputError
from adversaries.statistics import estimators, forecast
from adversaries.statistics.estimators import AdvantageEstimate
from adversaries.statistics.intervals import ALARM_CONFIDENCE, Interval
from adversaries.statistics.trials import two_sided
from fedsim.audits.measurements.bounds_audit import BoundsAudit
from fedsim.audits.results.measured import Fit, Fits, PredictionResult
from fedsim.audits.run import guarantee
from fedsim.audits.run.guarantee import Guarantee
from fedsim.configuration import Config
from fedsim.federation.runs import spending
from fedsim.federation.runs.ledger import LedgerRow
from fedsim.federation.runs.run_directory import Arrays
from fedsim.game.mechanisms import vantages
from fedsim.game.observers import at_server
from fedsim.privacy import identifiability, risks
from fedsim.privacy.identifiability import Bounds, VantageBounds
from fedsim.privacy.mechanism import Mechanism
from fedsim.privacy.participation.rule import Participation
from fedsim.privacy.releases import Releases
from fedsim.privacy.trust import Vantage


@dataclass(frozen=True, eq=False)
class SeenFrom:
    """What the adversary saw of all trials at one vantage.

    Attributes:
        arrays: "worlds" [T], "log_odds", "sensitivities" and "noise_stds" [T, k].
    """

    vantage: Vantage
    arrays: Arrays
    mechanism: Mechanism
    exact: bool
    prediction: PredictionResult

    @property
    def worlds(self) -> Bools:
        return self.arrays["worlds"]

    @property
    def final(self) -> Floats:
        """Log-odds after the last round, [T]."""
        return self.arrays["log_odds"][:, -1]

    @property
    def both(self) -> bool:
        """Whether both worlds were played, so that there is an advantage."""
        return two_sided(self.worlds)

    @cached_property
    def trial_mu(self) -> Floats:
        """Signal to noise of each trial, [T]."""
        return forecast.trial_mu(self.arrays["sensitivities"], self.arrays["noise_stds"])

    @cached_property
    def surely(self) -> Interval:
        """The advantage's interval at the confidence of an alarm."""
        return estimators.advantage(self.worlds, self.final, ALARM_CONFIDENCE).interval


@dataclass(frozen=True, eq=False)
class AuditedRun:
    """A run of T trials and k rounds, with the confidence and delta of its report.

    Attributes:
        rows: rows of the ledger, which state what was released; () for what was planned
    """

    config: Config
    facts: Mapping[str, Any]
    transcript: Arrays
    confidence: float
    delta: float
    rows: Sequence[LedgerRow] = ()

    @property
    def trials(self) -> int:
        return len(self.transcript["worlds"])

    @property
    def rounds(self) -> int:
        return int(self.transcript["log_odds"].shape[1])

    @property
    def noise_multiplier(self) -> float:
        return float(self.facts["noise_multiplier"])

    @property
    def vantage(self) -> Vantage:
        return self.config.federation.vantage

    @cached_property
    def views(self) -> Mapping[Vantage, SeenFrom]:
        """Return what was seen at each vantage that was attacked."""
        config, found = self.config, {}
        for vantage in vantages.measured(self.vantage, config.audit.vantages):
            arrays = seen_from(self.transcript, vantage, self.vantage)
            if not arrays:
                continue  # a released model that is not attacked has no observations
            predicted = prediction(config, arrays, vantage)
            exact = at_server.is_exact(config, vantage)
            mechanism = self.releases.towards(vantage)
            found[vantage] = SeenFrom(vantage, arrays, mechanism, exact, predicted)
        return found

    @property
    def view(self) -> SeenFrom:
        """What was seen at the configured vantage."""
        return self.views[self.vantage]

    @cached_property
    def releases(self) -> Releases:
        """Releases of one training."""
        target = self.facts["challenge"]["client"]
        return spending.describe(self.config, self.noise_multiplier, self.rows, target)

    def worst_off(self, vantage: Vantage) -> Mechanism:
        """Return the mechanism of the client that takes part in most rounds."""
        config, nominal = self.config, self.noise_multiplier
        return spending.describe(config, nominal, self.rows, vantage=vantage).towards(vantage)

    @cached_property
    def mechanism(self) -> Mechanism:
        return self.releases.towards(self.vantage)

    @cached_property
    def together(self) -> Guarantee:
        config, rows = self.config, self.rows
        return guarantee.of(
            config,
            self.releases,
            spending.describe_everything(config, self.noise_multiplier, rows),
            spending.trainings(rows) or self.trials,
            self.delta,
        )

    @cached_property
    def bounds(self) -> Bounds:
        return identifiability.bounds(self.mechanism, self.delta, self.config.privacy.accountant)

    @property
    def baselines(self) -> list[float]:
        """Successes of attacks without the release: the usual ones and the configured one."""
        return sorted({*risks.BASELINES, self.config.privacy.baseline_risk}, reverse=True)

    @property
    def vantage_bounds(self) -> list[VantageBounds]:
        found = identifiability.vantage_bounds(self.releases, self.delta, baselines=self.baselines)
        if self.config.training.clipping:
            return list(found)
        return [replace(row, note=guarantee.UNCLIPPED) for row in found]

    @cached_property
    def proven(self) -> BoundsAudit:
        config = self.config
        return BoundsAudit(config, self.mechanism, self.transcript, self.delta)

    @cached_property
    def advantage(self) -> AdvantageEstimate:
        return estimators.advantage(self.view.worlds, self.view.final, self.confidence)


# What a vantage saw, and what theory predicts of it


def seen_from(transcript: Arrays, vantage: Vantage, primary: Vantage) -> Arrays:
    """Return the arrays of one vantage under their plain names; empty if it was not measured."""
    ending = vantages.suffix(vantage, primary)
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


def prediction(config: Config, seen: Arrays, vantage: Vantage) -> PredictionResult:
    """Return what theory predicts of the trials at a vantage, from what was seen there.

    For the released model it is the normal law of the linearised score. For a server that sees
    sampled sums without noise it is how often the target took part.
    """
    participation, noiseless = config.participation, not seen["noise_stds"].any()
    released = vantage is Vantage.RELEASED_MODEL
    caught = noiseless and (released or participation.secret)
    if config.training.scored_by_counts and not (released or caught):
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
