"""The rule by which `fedsim choose` picks a setting.

Theory decides exactly which settings meet the limit on the adversary. Trainings measure how good
their models are, with an interval. A model whose interval holds what a constant answer reaches, or
the least value that was asked for, is never picked; nearly equal ones are compared as measured.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol, TypeVar

from scipy.special import expit, logit, ndtr, ndtri

from adversaries.errors import InputError
from fedsim.configuration import Config, Scalar
from fedsim.privacy import risks
from fedsim.privacy.identifiability import VantageBounds
from fedsim.privacy.mechanism import effective_noise_multiplier
from fedsim.privacy.trust import Trust
from fedsim.studies.choose.utility import Utility

BELIEF, ADVANTAGE, RISK = "privacy.rho-beta", "privacy.rho-alpha", "privacy.max-risk"

BASELINE = "privacy.baseline-risk"

FACTORS = (0.25, 0.5, 1.0, 2.0, 4.0)
"""Multiples of the limit to try. They multiply epsilon, or mu, which is about the inverse of the
noise multiplier."""

AS_GOOD = 0.005
"""Largest measured loss against the best: half a point, or half a percent of a perplexity."""

State = Literal["chosen", "cannot tell", "none", "listed"]

KINDS = {BELIEF: "belief", ADVANTAGE: "advantage", RISK: "risk"}
"""The limited quantity by the key of a limit."""


@dataclass(frozen=True)
class Limit:
    """The limit on what the adversary achieves.

    Attributes:
        key: `BELIEF`, a bound on its belief, which few trainings exceed (`tail_limit`);
            `ADVANTAGE`, a bound on its advantage over a coin; or `RISK`, a bound on the success of
            any attack.
        baseline: success of the attack without the model, in (0, 1), for `RISK`.

    Raises:
        InputError: the value is not between success without the model and certainty.
    """

    key: str
    value: float
    baseline: float = risks.BASELINE

    def __post_init__(self) -> None:
        if not 0 < self.baseline < 1:
            raise InputError(
                f"--baseline-risk is {self.baseline:g}; give the success of an attack without the "
                "model, above 0 and below 1, for example 0.001"
            )
        if not self._lowest < self.value < 1:
            raise InputError(
                f"--max-{self.kind} is {self.value:g}; give a number above {self._lowest:g} (what "
                "an adversary has without the model) and below 1 (certainty), for example "
                f"{(1 + self._lowest) / 2:.3g}"
            )

    @property
    def _lowest(self) -> float:
        return {BELIEF: 0.5, ADVANTAGE: 0.0, RISK: self.baseline}[self.key]

    @property
    def kind(self) -> str:
        return KINDS[self.key]

    def met_by(self, rho_beta: float, rho_alpha: float, risk: float) -> bool:
        """Return whether theory's bounds are within the limit; `risk` is from its baseline."""
        bound = {BELIEF: rho_beta, ADVANTAGE: rho_alpha, RISK: risk}[self.key]
        return bound <= self.value * (1 + 1e-8)  # the calibration finds noise to this precision

    def levels(self, factors: Sequence[float]) -> list[float]:
        """Return rising bounds around this one; factors: multiples of epsilon or mu."""
        levels = {self.value if factor == 1 else self._level(factor) for factor in factors}
        return sorted(level for level in levels if self._lowest < level < 1)

    def _level(self, factor: float) -> float:
        if self.key == BELIEF:
            return round(float(expit(factor * logit(self.value))), 4)
        if self.key == ADVANTAGE:
            return round(float(2 * ndtr(factor * ndtri((1 + self.value) / 2)) - 1), 4)
        # The trade-off curve of a Gaussian mechanism, as in `risks.true_positives`. A small risk
        # has few digits after the point, so that its leading ones are kept.
        start = ndtri(self.baseline)
        return float(f"{ndtr(start + factor * (ndtri(self.value) - start)):.4g}")


@dataclass(frozen=True)
class Candidate:
    """One setting with its bounds by theory and the measurements of its trainings.

    Attributes:
        values: the keys in which settings differ.
        noise_multiplier: nominal, as in `privacy.noise-multiplier`.
        tail_limit: upper bound on the share of trainings in which the belief exceeds rho_beta.
        risk: largest success of any attack that succeeds in the limit's baseline without the model.
        towards: bounds of theory at every vantage.
    """

    values: Mapping[str, Scalar]
    noise_multiplier: float
    epsilon: float
    rho_beta: float
    rho_alpha: float
    tail_limit: float
    risk: float
    meets: bool
    rounds: int
    towards: tuple[VantageBounds, ...]
    utility: Utility

    def allowed(self, key: str) -> float:
        """Return what theory allows the adversary of the quantity that a limit's key names."""
        return {BELIEF: self.rho_beta, ADVANTAGE: self.rho_alpha, RISK: self.risk}[key]

    @property
    def right_at_most(self) -> float:
        """Upper bound on the share of cases in which an adversary is right; a coin has 0.5."""
        return (1 + self.rho_alpha) / 2


Least = tuple[str, float]
"""A measure of `Utility.measures` and the least value that a user accepts."""


@dataclass(frozen=True)
class Choice:
    """The chosen setting, and its alternatives.

    Attributes:
        state: "listed" without a limit.
        chosen: None unless the state is "chosen".
        undecided: the best setting of which the trainings do not tell whether it is good enough.
        compared: number of settings whose intervals must hold together for a least value.
    """

    state: State
    candidates: tuple[Candidate, ...]
    chosen: Candidate | None = None
    undecided: Candidate | None = None
    compared: int = 1


def check_protectable(config: Config) -> None:
    """Raise InputError if no noise protects from the adversary at its vantage."""
    federation = config.federation
    if config.privacy.sensitivity == "local":
        raise InputError(
            "fedsim choose needs noise with a guarantee, but local sensitivity protects one "
            'challenge alone; set privacy.sensitivity = "global"'
        )

    def share(trust: Trust) -> float:
        return effective_noise_multiplier(
            1.0, trust, federation.vantage, federation.clients, colluders=federation.colluding
        )

    if share(federation.trust) > 0:
        return
    helping = " or ".join(trust.value for trust in Trust if share(trust) > 0)
    raise InputError(
        f"with {federation.trust.value} trust, the {federation.vantage.value} sees every client's "
        f"sum before the noise, so that no noise meets a limit; give federation.trust="
        f"{helping}, or name another adversary with --against"
    )


def choose(
    candidates: Sequence[Candidate], least: Least | None = None, key: str = ADVANTAGE
) -> Choice:
    """Pick a setting by a rule that is fixed in advance.

    Without a least value: of the settings that meet the limit in theory, take the strictest with a
    model within `AS_GOOD` of the best, and of equally strict ones the fewest rounds. With a least
    value: take the strictest setting that meets the limit and whose interval lies above the value.
    A model that is not shown to be better than a constant answer is never taken. The strictest
    allows the adversary least of what the limit is on, which `key` names.
    """
    usable = [one for one in candidates if one.meets and one.utility.criterion.has_learnt]
    undecided = None
    if least is None:
        chosen = _strictest(fewest_rounds(usable), key)
    else:
        reached = [(one, one.utility.reaches(*least, len(usable))) for one in usable]
        enough = [one for one, reaches in reached if reaches]
        chosen = _strictest(sorted(enough, key=lambda one: -one.utility.gain), key)
        open_ones = [one for one, reaches in reached if reaches is None]
        undecided = next(iter(fewest_rounds(open_ones)), None) if chosen is None else None
    return Choice(
        state="chosen" if chosen else "cannot tell" if undecided else "none",
        candidates=tuple(candidates),
        chosen=chosen,
        compared=len(usable),
        undecided=undecided,
    )


class _Ranked(Protocol):
    @property
    def rounds(self) -> int: ...

    @property
    def utility(self) -> Utility: ...


Ranked = TypeVar("Ranked", bound=_Ranked)


def fewest_rounds(candidates: Iterable[Ranked]) -> list[Ranked]:
    """Return the settings within `AS_GOOD` of the best, those of the fewest rounds first."""
    settings = list(candidates)
    if not settings:
        return []
    best = max(settings, key=lambda one: one.utility.gain)
    least = best.utility.gain - _loss(best, AS_GOOD)
    near = [one for one in settings if one.utility.gain >= least]
    return sorted(near, key=lambda one: (one.rounds, -one.utility.gain))


def _loss(best: _Ranked, points: float) -> float:
    """Return a loss against the best model: some points, or less of a small gain over nothing."""
    judged = best.utility.criterion
    gained = abs((judged.value or 0.0) - judged.constant)
    points *= max(1.0, judged.value or 0.0)  # a perplexity is above 1
    return min(points, 4 * points * gained) if math.isfinite(gained) else points


def _strictest(candidates: Iterable[Candidate], key: str) -> Candidate | None:
    """Return the setting that allows least of the limited quantity, the first of equals."""
    return min(candidates, key=lambda one: float(f"{one.allowed(key):.9g}"), default=None)
