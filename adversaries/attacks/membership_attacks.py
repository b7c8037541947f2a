"""Attacks by membership inference: was this model trained on this record?

Every attack scores models and records at once, [N, n], from losses of the attacked models and of
shadow models, which are trained in the same way on data with and without the record. Without
`shadows` every model is attacked with all others as shadows.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np

from adversaries.arrays import Floats
from adversaries.attacks.shadow_models import Moments, Observations, confidence, moments
from adversaries.errors import InputError
from adversaries.registry import lookup

GAMMA = 1.0
"""RMIA: factor by which a record must beat another one of the population to count."""

Score = Callable[[Observations, Observations | None], Floats]
"""(targets, shadows) -> scores, float64 [N, n], higher where membership is likelier.

The N targets are attacked; shadows None stand for all other targets. With shadows, the targets'
`inclusion` cannot be read. Raises InputError for too few shadow models, or where something is
missing that the attack needs.
"""


@dataclass(frozen=True)
class Attack:
    """A membership inference attack.

    Attributes:
        score: the score of a model and a record.
        title: for readers.
        source: for readers: who described it.
        threshold: least score that calls a record a member; None leaves it to the user.
        needs: any of "members" (which records the same model was trained on, whose mean loss is
            published: only for attacks that cannot learn more from it), "shadows", "population".
    """

    score: Score
    title: str
    source: str
    threshold: float | None = None
    needs: frozenset[str] = frozenset()

    def scores(self, targets: Observations, shadows: Observations | None) -> Floats:
        """Return checked scores, float64 [N, n].

        Args:
            targets: the attacked models.
            shadows: shadow models; None stands for all other targets.

        Raises:
            InputError: `score` returned another shape, no numbers, or NaN.
        """
        seen = targets if shadows is None or "members" in self.needs else targets.unlabelled()
        values = np.asarray(self.score(seen, shadows))
        shape = targets.losses.shape
        if values.shape != shape or values.dtype.kind not in "fiub" or np.isnan(values).any():
            found = f"{values.dtype} of shape {values.shape}"
            found += ", with NaN" if values.dtype.kind == "f" and np.isnan(values).any() else ""
            raise InputError(
                f"the attack '{self.title}' returned {found}; return scores of shape {shape}, one "
                "for each model and record"
            )
        return values.astype(np.float64, copy=False)


def _mean_loss(targets: Observations, shadows: Observations | None) -> Floats:
    """Return by how much the loss is below the mean training loss, [N, n]."""
    inside = targets.inclusion.sum(axis=1)
    if not inside.all():
        raise InputError("a model was trained on no record; give every model a member")
    # Relative to the smallest, like `membership.yeom`: rounding must not separate equal losses.
    smallest = targets.losses.min(axis=1, keepdims=True)
    distances = targets.losses - smallest
    threshold = (distances * targets.inclusion).sum(axis=1) / inside
    return threshold[:, None] - distances


def _online(targets: Observations, shadows: Observations | None) -> Floats:
    """Return log N(c; in) - log N(c; out) of the scaled confidence c, [N, n]."""
    inside, outside = (_of(targets, shadows, _confidence, world) for world in (True, False))
    scaled, logs = _confidence(targets), []
    for law in (inside, outside):
        # A normal log-density; log(2 pi) cancels in the difference.
        logs.append(-((scaled - law.mean) ** 2 / law.variance + np.log(law.variance)) / 2)
    return logs[0] - logs[1]


def _offline(targets: Observations, shadows: Observations | None) -> Floats:
    """Return by how many standard deviations c is above its mean without the record."""
    outside = _of(targets, shadows, _confidence, False)
    return (_confidence(targets) - outside.mean) / np.sqrt(outside.variance)


def _rmia(targets: Observations, shadows: Observations | None) -> Floats:
    """Return the share of z with p(x)/Pr(x) >= gamma p(z)/Pr(z), Pr over shadow models, [N, n]."""
    models = targets if shadows is None else shadows
    if targets.population is None or models.population is None or not targets.population.size:
        raise InputError("the attack needs losses of records that no model trained on; give them")
    # Pr(x) weighs models with and without x equally, however many there are of each.
    inside, outside = (_of(targets, shadows, _probability, world).mean for world in (True, False))
    usual = (inside + outside) / 2
    others = np.exp(-models.population)
    total, count = others.sum(axis=0, keepdims=True), len(others)
    if shadows is None:
        # Without separate shadows, the attacked model is left out of its own mean.
        total, count = total - others, count - 1
    # Ratios p/Pr in logs; the floor covers records to which every shadow gives probability 0.
    tiny = np.finfo(np.float64).tiny
    record = -targets.losses - np.log(np.maximum(usual, tiny))
    population = -targets.population - np.log(np.maximum(total / count, tiny))
    # The number of population values up to a record's value is the record's place when both are
    # sorted together, the population first among equals.
    both = np.concatenate([population, record - np.log(GAMMA)], axis=1)
    order = np.argsort(both, axis=1, kind="stable")
    size = population.shape[1]
    below = np.cumsum(order < size, axis=1)
    share = np.empty(both.shape)
    np.put_along_axis(share, order, below / size, axis=1)
    return share[:, size:]


def _probability(models: Observations) -> Floats:
    return np.exp(-models.losses)


def _confidence(models: Observations) -> Floats:
    return confidence(models.losses)


def _of(
    targets: Observations,
    shadows: Observations | None,
    value: Callable[[Observations], Floats],
    world: bool,
) -> Moments:
    """Return the moments of a value over the shadow models with or without each record."""
    models = targets if shadows is None else shadows
    return moments(value(models), models.inclusion, world, leave_one_out=shadows is None)


LIRA = "Carlini et al. 2022"
SHADOWS, POPULATION = frozenset({"shadows"}), frozenset({"shadows", "population"})
EVEN_ODDS = 0.0
"""Threshold of a log-likelihood ratio at which both worlds are equally likely, from even odds."""

ATTACKS: dict[str, Attack] = {
    "yeom-mean": Attack(
        _mean_loss,
        "Yeom: at most the mean training loss",
        "Yeom et al. 2018",
        0.0,
        needs=frozenset({"members"}),
    ),
    "lira": Attack(_online, "LiRA, online", LIRA, EVEN_ODDS, needs=SHADOWS),
    "lira-offline": Attack(_offline, "LiRA, offline", LIRA, needs=SHADOWS),
    "rmia": Attack(_rmia, "RMIA", "Zarifzadeh et al. 2024", needs=POPULATION),
}
"""Attacks by name."""


def chosen(names: str) -> dict[str, Attack]:
    """Return the attacks that a configuration names, by name.

    names: separated by commas, or "all", or "none".
    Raises InputError for an unknown name, "all" or "none" beside others, or code that is no attack.
    """
    if names.strip() in ("all", "none"):
        return dict(ATTACKS) if names.strip() == "all" else {}
    listed = [name.strip() for name in names.split(",")]
    known: dict[str, Attack | None] = {**ATTACKS, "all": None, "none": None}
    attacks = {}
    for name in listed:
        attack = lookup(known, name, "audit.attacks")
        if attack is None:
            raise InputError(
                f"audit.attacks is '{names}', but '{name}' must stand alone; remove it, or all "
                "others"
            )
        attacks[name] = _as_attack(attack, name)
    return attacks


def rehearse(attacks: Iterable[Attack], models: int, records: int, others: int) -> None:
    """Call attacks of users on made-up losses, so that a faulty one fails before a training.

    Args:
        attacks: bundled ones are left out.
        models: of the later call; a rehearsal needs `LEAST`, half of them shadows, and makes up
            `MOST` at most.
        records: n of the later call.
        others: records that no model was trained on.

    Raises:
        InputError: an attack raises an error, or returns no scores.
    """
    generator, shape = np.random.default_rng(0), (min(models, MOST), records)
    if models < LEAST:
        return
    places = np.arange(shape[0])
    inclusion = np.add.outer(places, np.arange(records)) % 2 == 1
    population = generator.exponential(1.0, (shape[0], others)) if others else None
    seen = Observations(generator.exponential(1.0, shape), inclusion, population)
    shadow = places // 2 % 2 == 0
    for attack in attacks:
        if attack in ATTACKS.values():
            continue
        try:
            attack.scores(seen.of(~shadow), seen.of(shadow))
            if attack.threshold is None:
                attack.scores(seen.of(shadow), None)
        except InputError:
            raise
        except Exception as error:
            raise InputError(
                f"the attack '{attack.title}' ended with {type(error).__name__}: {error}"
            ) from error


LEAST, MOST = 24, 128
"""Models of a rehearsal."""


def _as_attack(code: object, name: str) -> Attack:
    """Return an attack; a function becomes one, with its name as the title."""
    if isinstance(code, Attack):
        return code
    if not callable(code) or isinstance(code, type):
        raise InputError(
            f"audit.attacks names {name}, a {type(code).__name__}; name an Attack, or a function "
            "(targets, shadows) that returns scores [N, n]"
        )
    return Attack(code, name.rpartition(":")[2], "user's own code")
