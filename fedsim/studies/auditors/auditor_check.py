"""`fedsim check-auditor`: how often an auditor's lower bound on epsilon is above the truth."""

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any

import numpy as np

from adversaries.arrays import Bools, Floats
from adversaries.bounds.lower_bounds import clopper_pearson_bonferroni
from adversaries.errors import InputError
from adversaries.statistics import gaussian
from adversaries.statistics.intervals import Interval, check_delta, clopper_pearson, significance
from fedsim.privacy.accounting import PLD
from fedsim.privacy.mechanism import Mechanism
from fedsim.report.document.blocks import Block, Prose, tabulated
from fedsim.report.document.wording import number, percent, span

MU, SCALE, TRUTHFUL, NOISE, RATE = 1.5, 1.0, 1.0, 0.5, 0.25
"""Gaussian's mean, Laplace's and randomized response's epsilon, noise and rate of the mixture."""


@dataclass(frozen=True)
class KnownGame:
    """A game whose epsilon is known.

    Attributes:
        epsilon: of the game at a delta in [0, 1): no valid bound is above it.
        scores: of trials, float64 [n], given which are members', bool [n]. With a signal they are
            exact log-likelihood ratios.
    """

    name: str
    epsilon: Callable[[float], float]
    scores: Callable[[np.random.Generator, Bools], Floats]


def _no_epsilon(delta: float) -> float:
    return 0.0


def _gaussian(generator: np.random.Generator, members: Bools) -> Floats:
    return MU * (generator.standard_normal(len(members)) + MU * members) - MU**2 / 2


def _laplace(generator: np.random.Generator, members: Bools) -> Floats:
    outputs = members + generator.laplace(scale=1 / SCALE, size=len(members))
    return SCALE * (np.abs(outputs) - np.abs(outputs - 1))


def _laplace_epsilon(delta: float) -> float:
    """Return the root of delta(epsilon) = 1 - e^((epsilon - scale)/2)."""
    return max(0.0, SCALE + 2 * math.log1p(-delta))


def _randomized_response(generator: np.random.Generator, members: Bools) -> Floats:
    truthful = generator.random(len(members)) < 1 / (1 + math.exp(-TRUTHFUL))
    return np.where(members == truthful, TRUTHFUL, -TRUTHFUL)


def _response_epsilon(delta: float) -> float:
    """Return the root of delta(epsilon) = (e^truthful - e^epsilon)/(1 + e^truthful)."""
    left = math.exp(TRUTHFUL) - delta * (1 + math.exp(TRUTHFUL))
    return max(0.0, math.log(left)) if left > 0 else 0.0


def _mixture(generator: np.random.Generator, members: Bools) -> Floats:
    sampled = members & (generator.random(len(members)) < RATE)
    outputs = sampled + NOISE * generator.standard_normal(len(members))
    return np.log1p(RATE * np.expm1((outputs - 0.5) / NOISE**2))


def _mixture_epsilon(delta: float) -> float:
    return PLD.epsilon(Mechanism.alike(NOISE, 1, RATE), delta) if delta else math.inf


GAMES = (
    KnownGame("no signal: normal", _no_epsilon, lambda rng, who: rng.standard_normal(len(who))),
    KnownGame(
        "no signal: three values, many ties",
        _no_epsilon,
        lambda rng, who: rng.integers(0, 3, len(who)).astype(np.float64),
    ),
    KnownGame("no signal: heavy tail", _no_epsilon, lambda rng, who: rng.standard_cauchy(len(who))),
    KnownGame(
        "Gaussian", lambda delta: gaussian.epsilon(MU, delta) if delta else math.inf, _gaussian
    ),
    KnownGame("Laplace", _laplace_epsilon, _laplace),
    KnownGame("randomized response", _response_epsilon, _randomized_response),
    KnownGame("sampled Gaussian, a mixture", _mixture_epsilon, _mixture),
)


Auditor = Callable[[Floats, Bools, float, float], float]
"""(scores [n], members bool [n], delta, confidence) -> a lower bound on epsilon."""

VERDICT_CONFIDENCE = 0.999

SLACK = 1e-9
"""Relative excess over the true epsilon that counts as rounding."""


class Validity(StrEnum):
    """Verdict on an auditor.

    VALID: in every game, bounds are above the truth no more often than the auditor says
    INVALID: in some game, bounds are above the truth more often than the auditor says
    CANNOT_TELL: the games played can show neither
    """

    VALID = "valid"
    INVALID = "invalid"
    CANNOT_TELL = "cannot tell"


@dataclass(frozen=True)
class GameResult:
    """The bounds of an auditor in many games of one kind.

    Attributes:
        epsilon: the true epsilon at delta; may be infinite.
        above: games whose bound is above the true epsilon.
        interval: of the probability to be above; the intervals hold for all kinds together.
        reference: median bound of fedsim on the same scores, at the same confidence.
    """

    game: str
    epsilon: float
    games: int
    above: int
    interval: Interval
    median: float
    reference: float

    @property
    def share(self) -> float:
        """Share of the games whose bound is above the true epsilon."""
        return self.above / self.games


@dataclass(frozen=True)
class AuditorCheck:
    """What the games say about an auditor.

    Attributes:
        auditor: its name.
        confidence: the confidence that it states.
        delta: delta of its bounds.
        trials: trials of each game.
        results: one for each kind of game.
    """

    auditor: str
    confidence: float
    delta: float
    trials: int
    results: Sequence[GameResult] = field(repr=False)

    @property
    def verdict(self) -> Validity:
        """The verdict on the auditor."""
        allowed = 1 - self.confidence
        if any(each.interval.low > allowed for each in self.results):
            return Validity.INVALID
        if all(each.interval.high <= allowed for each in self.results):
            return Validity.VALID
        return Validity.CANNOT_TELL

    @property
    def document(self) -> dict[str, Any]:
        """The result as JSON values."""
        return {"kind": "auditor check", "verdict": self.verdict.value, **asdict(self)}

    def blocks(self) -> list[Block]:
        """Return the verdict and a table of the games."""
        rows = [
            [
                each.game,
                number(each.epsilon),
                percent(each.share),
                _span(each.interval),
                number(each.median),
                number(each.reference),
            ]
            for each in self.results
        ]
        return [Prose(self._answer()), tabulated(HEADINGS, rows), Prose(NOTE)]

    def _answer(self) -> str:
        allowed, level = percent(1 - self.confidence), percent(VERDICT_CONFIDENCE)
        claim = f"at most {allowed} of its bounds may be above the truth"
        worst = max(self.results, key=lambda each: each.share)
        where = f"{percent(worst.share)} of the games '{worst.game}' ({_span(worst.interval)})"
        sentences = {
            Validity.INVALID: f"The bound is above it in {where}.",
            Validity.VALID: f"The games show no more: the worst case is {where}.",
            Validity.CANNOT_TELL: (
                f"The games cannot tell: the bound is above it in {where}. Try more games."
            ),
        }
        stated = f"At its confidence of {self.confidence:g}, {claim}."
        verdict = f"{self.verdict.value.capitalize()} ({level} confidence)."
        return f"{verdict} {stated} {sentences[self.verdict]}"

    def __repr__(self) -> str:
        from fedsim.report.document import terminal  # noqa: PLC0415

        return terminal.text(self.blocks())

    def _repr_html_(self) -> str:
        from fedsim.report.document import html  # noqa: PLC0415

        return html.fragment(self.blocks())


HEADINGS = ("Game", "ε", "Above the truth", "Interval", "Median bound", "fedsim's")

NOTE = (
    "Above the truth: share of games whose bound exceeds the game's ε. fedsim's: median of its "
    "Clopper–Pearson bound with fixed ranks, on the same scores. A verdict is about these games "
    "alone: other scores may break an auditor that is valid here."
)


def check_auditor(
    auditor: Auditor,
    *,
    games: int = 2000,
    trials: int = 1000,
    delta: float = 1e-5,
    confidence: float = 0.95,
    seed: int = 0,
    name: str = "",
    report_progress: Callable[[float], None] = lambda fraction: None,
) -> AuditorCheck:
    """Play games with a known epsilon against an auditor, as `fedsim check-auditor` does.

    Args:
        auditor: (scores float64 [n], members bool [n], delta, confidence) -> a lower bound on
            epsilon.
        games: number of games of each kind.
        trials: scores in each game.
        delta: delta of the bounds, in [0, 1).
        confidence: confidence that the auditor states, in (0, 1).
        seed: seed of all games.
        name: of the auditor; "" for its own name.
        report_progress: receives the fraction of the games played.

    Returns:
        The share of bounds above the truth for each kind of game, and the verdict.

    Raises:
        InputError: a number out of range, or an auditor that fails or returns no number.
    """
    significance(confidence)
    check_delta(delta)
    if games < 100 or trials < 20:
        raise InputError(
            f"{games} games of {trials} trials are too few to tell anything; give at least 100 "
            "games of 20 trials"
        )
    # Without a delta, a Gaussian has no finite epsilon that a bound could be above.
    bounded = [game for game in GAMES if np.isfinite(game.epsilon(delta))]
    level, results = 1 - (1 - VERDICT_CONFIDENCE) / len(bounded), list[GameResult]()
    for game, generator in zip(
        bounded, np.random.default_rng(seed).spawn(len(bounded)), strict=True
    ):
        bounds, references = _bounds(auditor, game, generator, games, trials, delta, confidence)
        truth = game.epsilon(delta)
        above = int((bounds > truth + SLACK * max(1.0, truth)).sum())
        interval = clopper_pearson(above, games, level)
        medians = float(np.median(bounds)), float(np.median(references))
        results.append(GameResult(game.name, truth, games, above, interval, *medians))
        report_progress(len(results) / len(bounded))
    own_name = name or getattr(auditor, "__name__", "auditor")
    return AuditorCheck(own_name, confidence, delta, trials, results)


def _bounds(
    auditor: Auditor,
    game: KnownGame,
    generator: np.random.Generator,
    games: int,
    trials: int,
    delta: float,
    confidence: float,
) -> tuple[Floats, Floats]:
    """Return the auditor's bound and fedsim's in each game, float64 [games] each."""
    bounds, references = np.empty(games), np.empty(games)
    for place in range(games):
        members = generator.random(trials) < 0.5
        scores = game.scores(generator, members)
        try:
            bounds[place] = float(auditor(scores.copy(), members.copy(), delta, confidence))
        except Exception as error:
            raise InputError(
                f"the auditor failed in the game '{game.name}': {type(error).__name__}: {error}"
            ) from error
        if np.isnan(bounds[place]):
            raise InputError(f"the auditor returned NaN in the game '{game.name}'; return a number")
        references[place] = clopper_pearson_bonferroni(members, scores, delta, confidence).epsilon
    return bounds, references


def _span(interval: Interval) -> str:
    return span(interval.ends, percent)
