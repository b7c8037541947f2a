"""The audit of a Flower app: what it claims, what theory says of it, and what an attack proves."""

import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

import fedsim
from adversaries.errors import InputError
from adversaries.statistics import estimators, gaussian, lower_bounds
from adversaries.statistics.intervals import ALARM_CONFIDENCE, LowerBound, significance
from fedsim.audits.app import attack, training
from fedsim.audits.app import guarantee as theory
from fedsim.audits.app.configuration import Configuration, Observation, claim_of
from fedsim.audits.app.guarantee import Guarantee
from fedsim.audits.app.process import App, AppProcess, Order
from fedsim.audits.app.rules import findings
from fedsim.audits.judgement.claim import Claim, Scope
from fedsim.audits.judgement.judge import Evidence, Judgement, judge
from fedsim.audits.judgement.report import Judged, largest
from fedsim.audits.run import detectable
from fedsim.audits.sandbox.channel import started
from fedsim.config import Scalar
from fedsim.privacy.delta import ASSUMED
from fedsim.privacy.mechanism import Neighbouring
from fedsim.privacy.trust.model import Vantage

LEAST_TRIALS = 20

BOUNDS = ("clopper_pearson", "gaussian")
"""The lower bounds that judge a claim; neither knows the mechanism nor trusts its noise."""


UNKNOWN = (
    "theory does not know what {} adds to what it makes of the updates, and the attack disproved "
    "nothing; a wrapper of Flower's around FedAvg is what theory knows"
)
"""Why a claim is not judged that an attack alone looked at."""

OWN_NOISE = (
    "code of the app's own makes the noise of {}: it would be enough if it were Flower's, and the "
    "attack disproved nothing, but an audit cannot tell independent Gaussian noise on every "
    "parameter from what measures alike; leave the noise to Flower's own code"
)
"""Why a claim is not judged that theory supports only if the app's own noise is what it seems."""

ROUNDS_KEY = "num-server-rounds"
"""The key under which Flower's own templates declare the number of rounds."""

TRIALS = 300
"""How often an app is run under attack, unless somebody says."""

LONGEST_TIME = 1e6
"""Seconds; a socket takes no time much longer, and nobody waits for it."""


@dataclass(frozen=True, kw_only=True)
class AppAudit(Judged):
    """The outcome.

    Attributes:
        configuration: what its strategy and mods say, with what the honest run showed.
        guarantee: true noise of every round by theory, None where theory cannot tell.
        vantage: whom the claim, else the noise, protects against.
        neighbouring: what the target sends in the world without its update.
        scope: of every epsilon: the whole run, or its least private round.
        predicted_advantage: of this attack by theory, 0 to 1; None where theory cannot tell.
        clients: how many the app was run with, sampled or not.
        seen_below: the audit would have seen, with 95 %, noise below this share of what is
            configured; 0 where no shortfall can be named.
    """

    app: str
    configuration: Configuration
    guarantee: Guarantee | None
    vantage: Vantage
    neighbouring: Neighbouring
    scope: Scope
    predicted_advantage: float | None
    clients: int
    seen_below: float

    @property
    def noise_off(self) -> bool:
        """Whether epsilon rests on noise as it was measured, because it is not the configured."""
        seen, central = self.configuration.observation, self.vantage is Vantage.PARTICIPANT
        shares = theory.realised_shares(seen, self.configuration.rounds)
        return central and self.epsilon is not None and {*shares} != {1.0}

    @property
    def epsilon_of_run(self) -> float | None:
        """Theory's epsilon of the whole run at the same delta, None where it cannot tell."""
        return None if self.guarantee is None else self.guarantee.epsilon(self.delta)

    @property
    def judgement(self) -> Judgement:
        strategies = " > ".join(self.configuration.strategies)
        evidence = Evidence(
            incomparable=self.training_unseen,
            refuted=self.claim is not None and self.proven.epsilon > self.claim.epsilon,
            unknown=[UNKNOWN.format(strategies)] if self.epsilon is None else [],
            exceeded=not self.allowed,
            unsure=[OWN_NOISE.format(strategies)] if self._own_noise else [],
        )
        return judge(self.claim, evidence)

    @property
    def training_unseen(self) -> str:
        """Why numbers of the update as training returns it do not judge the claim, "" if they do.

        Theory and the attack know the way of that update, and nothing of noise within training.
        """
        return training.unseen(self.configuration, self.claim)

    @property
    def _own_noise(self) -> bool:
        central = self.configuration.central
        return self.vantage is Vantage.PARTICIPANT and central is not None and central.own_noise

    def as_json(self) -> dict[str, Any]:
        theory = {
            "epsilon_of_run": self.epsilon_of_run,
            "noise_as_measured": self.noise_off,
            "noise_multipliers": self.guarantee and self.guarantee.multipliers,
            "advantage": self.predicted_advantage,
        }
        return self._document(
            "app audit",
            theory,
            {"seen_below": self.seen_below},
            app=self.app,
            judged={
                "delta": self.delta,
                "scope": self.scope.value,
                "training_unseen": bool(self.training_unseen),
            },
            configuration=asdict(self.configuration),
            vantage=self.vantage.value,
            neighbouring=self.neighbouring.value,
            clients=self.clients,
            versions={"fedsim": fedsim.__version__, "flwr": version("flwr")},
        )


def audit(
    audited: App,
    *,
    trials: int,
    seed: int,
    claim: Claim | None = None,
    neighbouring: Neighbouring = Neighbouring.ADD_REMOVE,
    confidence: float = 0.95,
    progress: Callable[[int], None] = lambda done: None,
) -> AppAudit:
    """Return the outcome of an honest run, every rule, and the game played `trials` times.

    Args:
        audited: the app; it is run once honestly, once as a probe, and for every trial and pilot.
        trials: at least `LEAST_TRIALS`.
        confidence: in (0, 1), of the intervals and lower bounds that are shown.
    """
    check(trials, confidence, seed)
    configuration = attack.observe(audited, seed, ALARM_CONFIDENCE)
    claim = claim or claim_of(configuration)
    scope, delta = (Scope.RUN, ASSUMED) if claim is None else (claim.scope, claim.delta)
    vantage = theory.vantage_of(configuration, claim)
    guarantee = theory.guarantee(configuration, neighbouring, vantage)
    # Both noises at once: the clients' passes through clipping, and the attack counts on one alone.
    mixed = vantage is Vantage.PARTICIPANT and configuration.local is not None
    foretold = None if guarantee is None or mixed else guarantee.advantage(scope)
    game = attack.play(
        audited, configuration, guarantee, neighbouring, vantage, trials, seed, progress
    )
    worlds, scores = game.scores(scope)
    unlike = _not_normal(configuration, guarantee)
    given = worlds, scores, delta, unlike
    seen_below = 0.0
    if vantage is Vantage.PARTICIPANT:
        seen_below = by_watching(configuration.observation)
    if unlike is None:
        with_update = int(worlds.sum())
        attacked = by_attack(guarantee, claim, with_update, worlds.size - with_update)
        seen_below = max(seen_below, attacked)
    shown, sure = _bounds(*given, confidence), _bounds(*given, ALARM_CONFIDENCE)
    return AppAudit(
        app=audited.name,
        configuration=configuration,
        claim=claim,
        guarantee=guarantee,
        vantage=vantage,
        neighbouring=neighbouring,
        delta=delta,
        scope=scope,
        epsilon=None if guarantee is None else guarantee.epsilon(delta, scope),
        predicted_advantage=foretold,
        advantage=estimators.advantage(worlds, scores, confidence),
        lower_bounds=shown,
        proven=largest(sure),
        confidence=confidence,
        findings=tuple(findings(configuration, neighbouring, claim)),
        trials=trials,
        clients=audited.clients,
        seed=seed,
        seen_below=seen_below,
    )


def check(trials: int, confidence: float, seed: int) -> None:
    """Refuse numbers that no audit can be run with, before any code of the app is.

    Args:
        trials: scored runs of the app, at least `LEAST_TRIALS`.
        confidence: in (0, 1).
        seed: in [0, 2^64).
    """
    significance(confidence)
    if trials < LEAST_TRIALS:
        raise InputError(f"{trials} trials can prove nothing; give at least {LEAST_TRIALS}")
    if not 0 <= seed < 2**64:
        raise InputError(f"--seed is {seed}; give a whole number from 0 to 2^64 - 1")


def _bounds(
    worlds: npt.NDArray[np.bool_],
    scores: npt.NDArray[np.float64],
    delta: float,
    reason: str | None,
    level: float,
) -> dict[str, LowerBound]:
    """Return the lower bounds that judge a claim, which hold together with confidence `level`.

    reason: why the scores need not be normal, None if they are.
    """
    kinds = lower_bounds.MechanismKind
    kind = kinds.OTHER if reason else kinds.GAUSSIAN
    each = (1 + level) / 2
    return lower_bounds.lower_bounds(worlds, scores, delta, each, kind, reason, names=BOUNDS)


def _not_normal(configuration: Configuration, guarantee: Guarantee | None) -> str | None:
    """Return why the scores need not be normal of one variance, None if they are."""
    seen = configuration.observation
    if guarantee is None:
        return "it is not known what noise the strategy adds"
    if guarantee.vantage is Vantage.PARTICIPANT and configuration.local is not None:
        return "the clients' own noise passes through what the server makes of it"
    if 0 in guarantee.on_models:
        return "there is no noise"
    if configuration.central is not None and configuration.central.adaptive:
        return "the noise of adaptive clipping follows the updates"
    own = configuration.central is not None and configuration.central.own_noise
    if own or {*theory.realised_shares(seen, configuration.rounds)} != {1.0}:
        return "the noise is not the one that was configured, or is made by the app's own code"
    return None


def by_watching(seen: Observation | None) -> float:
    """Return the share of the configured noise below which its size would have been objected to.

    In a round of the honest run, whose noise is measured on all parameters; 0 where it is not.
    """
    if seen is None or not seen.noise_ratios or seen.seeded:
        return 0.0
    tail = significance(ALARM_CONFIDENCE) / 2 / len(seen.noise_ratios)
    return detectable.by_energy(seen.noise_coordinates, tail)


def by_attack(
    guarantee: Guarantee | None, claim: Claim | None, with_update: int, without: int
) -> float:
    """Return the share of the noise of theory below which the attack would have convicted.

    By the Gaussian bound, one of two that judge together; 0 without a claim, and where theory does
    not know the noise.
    """
    if guarantee is None or claim is None or claim.epsilon <= 0 or 0 in guarantee.on_models:
        return 0.0
    whole = claim.scope is Scope.RUN
    rounds = guarantee.on_models if whole else (max(guarantee.on_models),)
    signal = math.sqrt(sum(z**-2 for z in rounds))
    limit = gaussian.mu_of_epsilon(claim.epsilon, claim.delta)
    tail = significance(ALARM_CONFIDENCE) / 2
    return detectable.by_separation(signal, limit, with_update, without, tail)


def audit_directory(
    app: Path,
    *,
    trials: int = TRIALS,
    rounds: int | None = None,
    clients: int = 5,
    run_config: Mapping[str, Scalar] | None = None,
    claim: Claim | None = None,
    neighbouring: Neighbouring = Neighbouring.ADD_REMOVE,
    confidence: float = 0.95,
    seed: int = 0,
    time_limit: float = 3600.0,
    show: Callable[[str], None] = lambda line: None,
    progress: Callable[[int], None] = lambda done: None,
) -> AppAudit:
    """Return the audit of the app in a directory.

    The app's code runs in a process of its own, with the user's rights.

    Args:
        rounds: its num-server-rounds; None for its own
        claim: what is claimed of it; None for what the app claims itself
        time_limit: seconds that one run of it may take

    Raises:
        InputError: for options out of range or that contradict each other, and a directory that
            holds no Flower app.
    """
    if clients < 2:
        raise InputError(f"--clients {clients} is no federation; give at least 2")
    if not time_limit > 0:
        raise InputError(f"in {time_limit:g} s no app runs; give a longer time limit")
    if time_limit > LONGEST_TIME:
        raise InputError(
            f"{time_limit:g} s is no limit; give a time limit of {LONGEST_TIME:.0f} s at most"
        )
    check(trials, confidence, seed)
    overrides = _overrides(run_config or {}, rounds)
    order = Order(str(app), clients, overrides)
    with started("fedsim.audits.app.execution", "app", time_limit, show) as channel:
        return audit(
            AppProcess(order, channel),
            trials=trials,
            seed=seed,
            claim=claim,
            neighbouring=neighbouring,
            confidence=confidence,
            progress=progress,
        )


def _overrides(run_config: Mapping[str, Scalar], rounds: int | None) -> dict[str, Scalar]:
    """Return the run configuration with so many rounds. Raises InputError for less than one."""
    overrides = dict(run_config)
    if rounds is not None:
        overrides[ROUNDS_KEY] = rounds
    asked = overrides.get(ROUNDS_KEY, 1)
    if isinstance(asked, int | float) and asked < 1:
        raise InputError(f"in {asked} rounds nothing is released; give at least 1")
    return overrides
