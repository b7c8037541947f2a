"""The report of `fedsim attack`: JSON, terminal, and a page."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from scipy.special import stdtrit

from adversaries.arrays import Bools, Floats
from adversaries.attacks.membership import MeanAdvantage
from adversaries.attacks.membership_attacks import Attack
from adversaries.attacks.roc import Estimate, Performance, performance
from adversaries.statistics.intervals import ALARM_CONFIDENCE
from fedsim.audits.results import verdicts
from fedsim.common.strict_json import strict_json
from fedsim.configuration import Config
from fedsim.privacy import risks
from fedsim.privacy.accounting import PLD
from fedsim.privacy.mechanism import Mechanism
from fedsim.reports.document import blocks as doc
from fedsim.reports.document.first_screen import share, shares
from fedsim.reports.document.wording import DASH, counted, number, percent, span
from fedsim.reports.figures import drawings
from fedsim.reports.figures.drawings import Rates
from fedsim.reports.figures.plot import Plot
from fedsim.studies import page
from fedsim.studies.membership import membership_game
from fedsim.studies.membership.membership_game import MembershipGame

RATES = (0.001, 0.01, 0.1)
"""False positive rates at which true positive rates are reported, if there are enough pairs."""

DRAWN = np.geomspace(1e-5, 1, 101)
"""False positive rates at which curves are reported and drawn."""

LABEL = (
    "Attacks give lower bounds: another attack may succeed where these fail. Every second model "
    "is a shadow model, and the others are attacked. Intervals are over the attacked models, for "
    "these records and shadow models; others would give somewhat different numbers. The limit of "
    "differential privacy is for one record. It holds against an adversary that knows all other "
    "records and sees every global model, but is not a client."
)


@dataclass(frozen=True, eq=False)
class Attacked:
    attack: Attack
    measured: Performance

    @property
    def advantage(self) -> float:
        return self.measured.advantage.point

    @property
    def interval(self) -> tuple[float, float] | None:
        interval = self.measured.advantage.interval
        return interval and interval.ends

    @property
    def threshold(self) -> str:
        fixed = self.attack.threshold is not None
        return "fixed in advance" if fixed else "chosen on the shadow models"

    @cached_property
    def roc(self) -> Rates:
        curve = self.measured.curve
        least = curve.false_positive[curve.false_positive > 0][0]
        false: Floats = np.append(DRAWN[least <= DRAWN], 1.0)
        return false.tolist(), [curve.true_positive_at(rate) for rate in false]


@dataclass(frozen=True)
class Limits:
    """The limits of theory; true positive rates are at each of `DRAWN`, and by each of `RATES`.

    Without clipping there is no limit: epsilon is infinite, and the others are 1.
    """

    epsilon: float
    advantage: float
    true_positive: list[float]
    allowed_at: Mapping[float, float]

    @classmethod
    def of(cls, described: Mechanism | None, delta: float) -> "Limits":
        if described is None:
            return cls(math.inf, 1.0, [1.0] * len(DRAWN), dict.fromkeys(RATES, 1.0))
        drawn, at = (risks.true_positives(described, rates) for rates in (DRAWN, RATES))
        allowed_at = dict(zip(RATES, at.tolist(), strict=True))
        epsilon, advantage = PLD.epsilon(described, delta), PLD.delta(described, 0.0)
        return cls(epsilon, advantage, drawn.tolist(), allowed_at)


@dataclass(frozen=True, eq=False)
class MembershipReport:
    """The results of all attacks on the models of a game.

    Attributes:
        inclusion: which records each attacked model was trained on, [G, n].
    """

    config: Config
    confidence: float
    game: MembershipGame
    inclusion: Bools
    limits: Limits
    attacks: Mapping[str, Attacked]
    seconds: float

    @property
    def alarms(self) -> list[str]:
        # Any of the attacks can raise a false alarm, so that they divide its probability.
        return [
            name
            for name, each in self.attacks.items()
            if least_advantage(each.measured.advantage, len(self.attacks)) > self.limits.advantage
        ]

    @property
    def best_first(self) -> list[Attacked]:
        return sorted(self.attacks.values(), key=lambda each: -each.advantage)

    def as_json(self) -> dict[str, Any]:
        config, game, members = self.config, self.game, self.inclusion
        population, models = game.observations.population, len(game.observations.losses)
        report = {
            "kind": "membership inference",
            "label": LABEL,
            **page.settings(config),
            "held_out": config.data.held_out,
            "population": 0 if population is None else population.shape[1],
            "models": models,
            "shadow_models": models - len(members),
            "games": len(members),
            "pairs": members.size,
            "members": int(members.sum()),
            "noise_multiplier": game.noise_multiplier,
            "confidence": self.confidence,
            "accuracy": float(game.accuracy.mean()),
            "bounds": {
                "delta": config.privacy.delta,
                "epsilon": self.limits.epsilon,
                "advantage": self.limits.advantage,
                "roc": _curve((DRAWN.tolist(), self.limits.true_positive)),
            },
            "attacks": {name: self._attack(each) for name, each in self.attacks.items()},
            "alarms": self.alarms,
            "seconds": self.seconds,
        }
        return strict_json(report)

    def _attack(self, attacked: Attacked) -> dict[str, Any]:
        allowed = self.limits.allowed_at
        return {
            "title": attacked.attack.title,
            "source": attacked.attack.source,
            "advantage": attacked.advantage,
            "advantage_interval": attacked.interval,
            "threshold": attacked.threshold,
            "area": _estimate(attacked.measured.area),
            "true_positive_at": [
                {"false_positive_rate": rate, "allowed": allowed[rate]} | _estimate(estimate)
                for rate, estimate in attacked.measured.true_positive.items()
            ],
            "roc": _curve(attacked.roc),
        }


def assemble(
    config: Config,
    confidence: float,
    game: MembershipGame,
    attacks: Mapping[str, Attack],
    seconds: float,
) -> MembershipReport:
    """Return how each attack performs on the attacked models."""
    shadows = membership_game.of_shadows(len(game.observations.losses))
    members = game.observations.inclusion[~shadows]
    results = {}
    for name, attack in attacks.items():
        scores, threshold = membership_game.attacked(attack, game.observations)
        measured = performance(scores, members, confidence, RATES, threshold)
        results[name] = Attacked(attack, measured)
    limits = Limits.of(game.mechanism, config.privacy.delta)
    return MembershipReport(config, confidence, game, members, limits, results, seconds)


def _estimate(estimate: Estimate) -> dict[str, Any]:
    return {"point": estimate.point, "interval": estimate.interval and estimate.interval.ends}


def _curve(rates: Rates) -> dict[str, Any]:
    return {"false_positive": rates[0], "true_positive": rates[1]}


def least_advantage(advantage: MeanAdvantage, attacks: int) -> float:
    """Return a lower bound on an advantage, at `ALARM_CONFIDENCE` for all attacks together.

    Returns:
        The bound; -1 if the advantage has no standard error.
    """
    if advantage.standard_error is None:
        return -1.0
    # One-sided, with an equal share of the error for each attack (Bonferroni).
    quantile = stdtrit(advantage.trials - 1, 1 - (1 - ALARM_CONFIDENCE) / attacks)
    return float(advantage.point - quantile * advantage.standard_error)


SELECTED = (
    " The strongest of several is selected on the same models, so that its advantage is probably "
    "smaller on others."
)


def verdict(report: MembershipReport) -> list[str]:
    best, models = report.best_first[0], len(report.inclusion)
    between = "" if best.interval is None else f" ({span(best.interval, number)})"
    several = len(report.attacks) > 1
    sentences = [
        f"The {'strongest ' * several}attack, {best.attack.title}, has an advantage of "
        f"{number(best.advantage)}{between} on {models} models of "
        f"{report.config.data.records} records.{SELECTED * several}"
    ]
    if best.interval is not None and best.interval[0] <= 0:
        sentences.append("This may be chance: the interval reaches 0.")
    limits = report.limits
    allowed = (
        f"Differential privacy (ε = {number(limits.epsilon)} at δ = "
        f"{report.config.privacy.delta:g}, one record added or removed) allows an "
        f"advantage of {number(limits.advantage)}."
    )
    unlimited = "Differential privacy sets no limit, as without clipping or noise."
    return [*sentences, unlimited if limits.advantage >= 1 else allowed]


EXCEEDS = (
    "{}: more advantage than differential privacy allows, with confidence "
    f"{ALARM_CONFIDENCE:g} for all attacks together. The noise may be too small."
)


def headings(report: MembershipReport) -> list[str]:
    rates = next((each.measured.true_positive for each in report.attacks.values()), ())
    return ["attack", "advantage", "AUC", *(f"TPR at FPR {percent(rate)}" for rate in rates)]


def rows(report: MembershipReport) -> list[list[str]]:
    """Return a row of text for each attack, and a last row with the limit of theory."""
    cells = [
        [
            each.attack.title,
            _with(each.advantage, each.interval, number),
            _estimated(each.measured.area, number),
            *(_estimated(at, percent) for at in each.measured.true_positive.values()),
        ]
        for each in report.attacks.values()
    ]
    rates = next(iter(report.attacks.values())).measured.true_positive
    allowed = [percent(report.limits.allowed_at[rate]) for rate in rates]
    return [*cells, ["allowed", number(report.limits.advantage), DASH, *allowed]]


def _estimated(estimate: Estimate, wording: Any) -> str:
    return _with(estimate.point, estimate.interval and estimate.interval.ends, wording)


def _with(value: float, interval: tuple[float, float] | None, wording: Any) -> str:
    """Return a value, and its interval in a second line."""
    return wording(value) if interval is None else f"{wording(value)}\n{span(interval, wording)}"


CAPTION = (
    "True positive rate at each false positive rate, on log scales. The left side matters: there, "
    "an attacker rarely names a record that was not used."
)
HOW = (
    "Intervals of {:g}% are Student's t across {} attacked models. A fair coin puts each record of "
    "D into a model's training data. The other {} models are shadow models; they also choose the "
    "thresholds."
)


def told(report: MembershipReport) -> doc.Told:
    values = report.as_json()

    def sections() -> Iterator[doc.Block]:
        counts = values["games"], values["shadow_models"]
        yield doc.Prose(HOW.format(100 * report.confidence, *counts), small=True)
        yield doc.Figure("roc", roc(report), "", CAPTION)
        yield doc.Heading("The attacks")
        sources = [
            (each.attack.title, f"{each.attack.source}; threshold {each.threshold}")
            for each in report.attacks.values()
        ]
        yield doc.Listing(sources, several=True)

    above = ", ".join(report.attacks[name].attack.title for name in report.alarms)
    return page.told(
        report.config,
        values,
        LABEL,
        sections,
        kind="Membership inference",
        played=counted(values["models"], "model"),
        answer=verdict(report),
        alarms=[EXCEEDS.format(above)] if above else [],
        observers=[_bar(report, each) for each in report.best_first],
        caption="How often an attack is right about whether a record was used "
        f"({percent(report.confidence)} intervals).",
        table=doc.tabulated(headings(report), rows(report)),
        steps=[*filter(None, [_state(report, report.best_first[0]).advice])],
    )


def roc(report: MembershipReport) -> Plot:
    best = report.best_first[: drawings.MOST_CURVES]
    allowed = DRAWN.tolist(), report.limits.true_positive
    return drawings.roc({each.attack.title: each.roc for each in best}, allowed)


def _state(report: MembershipReport, attacked: Attacked) -> verdicts.StateWords:
    """Return how an attack compares with the limit of differential privacy."""
    alarmed = any(report.attacks[name] is attacked for name in report.alarms)
    most = report.limits.advantage
    state = verdicts.standing(attacked.interval, most, exact=False, alarmed=alarmed)
    unlimited = verdicts.NO_LIMIT if report.game.mechanism else verdicts.NO_GUARANTEE
    return verdicts.words_of(state, measured=True, unlimited=unlimited)


def _bar(report: MembershipReport, attacked: Attacked) -> doc.Bar:
    words, limit = _state(report, attacked), share(report.limits.advantage)
    mark, ends = doc.Mark(words.kind, words.text), shares(attacked.interval)
    return doc.Bar(attacked.attack.title, mark, share(attacked.advantage), ends, limit)
