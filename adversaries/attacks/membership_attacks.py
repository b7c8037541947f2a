"""Attacks by membership inference: was this model trained on this record?

Every attack scores models and records at once, [N, n], from losses of the attacked models and of
shadow models, which are trained in the same way on data with and without the record. Without
`shadows` every model is attacked with all others as shadows.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from adversaries.arrays import Floats
from adversaries.attacks.shadow_models import (
    Moments,
    Observations,
    confidence,
    moments,
    pooled_covariance,
)
from adversaries.errors import InputError
from adversaries.registry import lookup

GAMMA = 1.0
"""RMIA: factor by which a record must beat another one of the population to count."""

OFFLINE_SHARE = 0.3
"""RMIA offline: a, where a Pr(x) + 1 - a of models without x estimates Pr(x) of models with x."""

Score = Callable[[Observations, Observations | None], Floats]
"""(targets, shadows) -> scores, float64 [N, n], higher where membership is likelier.

The N targets are attacked; shadows None stand for all other targets. Raises InputError for too few
shadow models, or where something is missing that the attack needs.
"""


@dataclass(frozen=True)
class Attack:
    """A membership inference attack.

    Attributes:
        score: the score of a model and a record.
        title: for readers.
        source: for readers: who described it.
        threshold: least score that calls a record a member; None leaves it to the user.
        randomised: whether the score is the probability of calling the record a member.
        needs: any of "members" (the losses of all records of the same model), "records" (several),
            "shadows", "population", "trajectory".
    """

    score: Score
    title: str
    source: str
    threshold: float | None = None
    randomised: bool = False
    needs: frozenset[str] = frozenset()


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


def _bounded_loss(targets: Observations, shadows: Observations | None) -> Floats:
    """Return 1 - error/B, the probability of answering "member", with error 1 - p, B = 1."""
    # The loss is -log p, so 1 - error is p itself.
    return np.exp(-targets.losses)


def _gaussian_error(targets: Observations, shadows: Observations | None) -> Floats:
    """Return log N(e; 0, s_in^2) - log N(e; 0, s_out^2) of the error e = 1 - p, [N, n]."""
    # 1 - p from the loss -log p; expm1 keeps errors near 0 exact.
    errors = -np.expm1(-targets.losses)
    # A model that fits every record has variance 0; the floor keeps the ratio finite.
    inside, outside = (
        np.maximum(_mean_square(targets, shadows, world), 1e-24) for world in (True, False)
    )
    return (np.log(outside / inside) + errors**2 * (1 / outside - 1 / inside)) / 2


def _mean_square(targets: Observations, shadows: Observations | None, world: bool) -> Floats:
    """Return the mean square error over records and shadow models of one kind, [N or 1, 1]."""
    models = targets if shadows is None else shadows
    chosen = models.inclusion == world
    own = np.where(chosen, np.expm1(-models.losses) ** 2, 0.0).sum(1, keepdims=True)
    count = chosen.sum(1, keepdims=True)
    # Pool over all records and models: the attack assumes one error variance for each world.
    squares, counts = own.sum(0, keepdims=True), count.sum(0, keepdims=True)
    if shadows is None:
        # Without separate shadows, all models except the attacked one are its shadows.
        squares, counts = squares - own, counts - count
    if not counts.all():
        raise InputError("all shadow models were trained on the same records; train more models")
    return squares / counts


def _calibrated_loss(targets: Observations, shadows: Observations | None) -> Floats:
    """Return how far the loss is below its mean over shadow models without the record, [N, n]."""
    usual = _of(targets, shadows, lambda models: models.losses, False)
    return usual.mean - targets.losses


def _online(targets: Observations, shadows: Observations | None) -> Floats:
    """Return log N(c; in) - log N(c; out) of the scaled confidence c, [N, n]."""
    return _log_ratio(targets, shadows, lambda law: law.variance)


def _online_fixed(targets: Observations, shadows: Observations | None) -> Floats:
    """Return `_online` with variances common to all records, [N, n], for few shadow models."""
    return _log_ratio(targets, shadows, lambda law: law.pooled_variance)


def _offline(targets: Observations, shadows: Observations | None) -> Floats:
    """Return by how many standard deviations c is above its mean without the record."""
    return _deviation(targets, shadows, lambda law: law.variance)


def _offline_fixed(targets: Observations, shadows: Observations | None) -> Floats:
    """Return `_offline` with a variance common to all records, [N, n]."""
    return _deviation(targets, shadows, lambda law: law.pooled_variance)


def _rmia(targets: Observations, shadows: Observations | None) -> Floats:
    """Return the share of z with p(x)/Pr(x) >= gamma p(z)/Pr(z), Pr over shadow models, [N, n]."""
    # Pr(x) weighs models with and without x equally, however many there are of each.
    inside, outside = (_of(targets, shadows, _probability, world).mean for world in (True, False))
    return _beaten(targets, shadows, (inside + outside) / 2, lambda usual: usual)


def _rmia_offline(targets: Observations, shadows: Observations | None) -> Floats:
    """Return `_rmia` with Pr = (1 + a)/2 Pr_out + (1 - a)/2, a = `OFFLINE_SHARE`, [N, n]."""

    def corrected(usual: Floats) -> Floats:
        return (1 + OFFLINE_SHARE) / 2 * usual + (1 - OFFLINE_SHARE) / 2

    outside = _of(targets, shadows, _probability, False).mean
    return _beaten(targets, shadows, corrected(outside), corrected)


def _trajectory(targets: Observations, shadows: Observations | None) -> Floats:
    """Return the log-likelihood ratio of the confidences at all global models, [N, n].

    The attack of a client in a federation. The vector [k] of each model and record is normal around
    the record's mean over shadow models with or without it, with one covariance S, shrunk towards
    its diagonal by k/(k + M) for M shadow models. A record's effect is shrunk towards the mean
    effect of all records, with the prior N(mean, t S) and t by the method of moments.
    """
    if targets.trajectory is None:
        raise InputError("the attack needs the losses of the models along training; give them")
    models = targets if shadows is None else shadows

    def along(observed: Observations) -> Floats:
        assert observed.trajectory is not None
        return confidence(observed.trajectory)

    # S, shrunk towards its diagonal.
    covariance = pooled_covariance(along(models), models.inclusion, shadows is None)
    size = covariance.shape[-1]
    shrinkage = size / (size + len(models.losses) - (shadows is None))
    diagonal = np.eye(size) * np.maximum(covariance, 1e-12)
    covariance = (1 - shrinkage) * covariance + shrinkage * diagonal
    # The effect of each record on its confidences, [N or 1, k, n], and how much of it is chance.
    laws = [_of(targets, shadows, along, world) for world in (True, False)]
    effect = laws[0].mean - laws[1].mean
    chance = (1 / laws[0].count + 1 / laws[1].count)[:, None, :]
    common = effect.mean(axis=2, keepdims=True)
    # In coordinates where S is the unit matrix, each number of an effect has variance `chance`.
    root = np.linalg.cholesky(covariance)
    apart = np.linalg.solve(root, effect - common)
    varies = np.mean(apart**2 - chance, axis=(1, 2), keepdims=True).clip(min=0)
    # Shrink each effect towards the mean effect; then the ratio of two normal laws.
    believed = common + varies / (varies + chance) * (effect - common)
    towards = np.linalg.solve(covariance, believed)
    middle = (laws[0].mean + laws[1].mean) / 2
    return ((along(targets) - middle) * towards).sum(axis=1)


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


def _log_ratio(
    targets: Observations, shadows: Observations | None, variance: Callable[[Moments], Floats]
) -> Floats:
    inside, outside = (_of(targets, shadows, _confidence, world) for world in (True, False))
    scaled, logs = _confidence(targets), []
    for law in (inside, outside):
        # A normal log-density; log(2 pi) cancels in the difference.
        spread = variance(law)
        logs.append(-((scaled - law.mean) ** 2 / spread + np.log(spread)) / 2)
    return logs[0] - logs[1]


def _deviation(
    targets: Observations, shadows: Observations | None, variance: Callable[[Moments], Floats]
) -> Floats:
    outside = _of(targets, shadows, _confidence, False)
    return (_confidence(targets) - outside.mean) / np.sqrt(variance(outside))


def _beaten(
    targets: Observations,
    shadows: Observations | None,
    usual: Floats,
    corrected: Callable[[Floats], Floats],
) -> Floats:
    """Return the share of the population whose likelihood ratio the record's ratio reaches.

    usual: Pr(x), [N or 1, n]; corrected: turns the mean of p(z) over shadow models into Pr(z).
    """
    models = targets if shadows is None else shadows
    if targets.population is None or models.population is None or not targets.population.size:
        raise InputError("the attack needs losses of records that no model trained on; give them")
    others = np.exp(-models.population)
    total, count = others.sum(axis=0, keepdims=True), len(others)
    if shadows is None:
        # Without separate shadows, the attacked model is left out of its own mean.
        total, count = total - others, count - 1
    if not count:
        raise InputError("the attack needs shadow models; train more models")
    # Ratios p/Pr in logs; the floor covers records to which every shadow gives probability 0.
    tiny = np.finfo(np.float64).tiny
    record = -targets.losses - np.log(np.maximum(usual, tiny))
    population = -targets.population - np.log(np.maximum(corrected(total / count), tiny))
    # The number of population values up to a record's value is the record's place when both are
    # sorted together, the population first among equals.
    both = np.concatenate([population, record - np.log(GAMMA)], axis=1)
    order = np.argsort(both, axis=1, kind="stable")
    size = population.shape[1]
    below = np.cumsum(order < size, axis=1)
    share = np.empty(both.shape)
    np.put_along_axis(share, order, below / size, axis=1)
    return share[:, size:]


YEOM = "Yeom et al. 2018"
LIRA = "Carlini et al. 2022"
RMIA = "Zarifzadeh et al. 2024"
SHADOWS, POPULATION = frozenset({"shadows"}), frozenset({"shadows", "population"})
ALL_RECORDS = frozenset({"shadows", "records"})
EVEN_ODDS = 0.0
"""Threshold of a log-likelihood ratio at which both worlds are equally likely, from even odds."""

ATTACKS: dict[str, Attack] = {
    "yeom-mean": Attack(
        _mean_loss, "Yeom: at most the mean training loss", YEOM, 0.0, needs=frozenset({"members"})
    ),
    "yeom-bounded": Attack(
        _bounded_loss, "Yeom: bounded loss, at random", f"{YEOM}, Adversary 1", randomised=True
    ),
    "yeom-gaussian": Attack(
        _gaussian_error, "Yeom: Gaussian errors", f"{YEOM}, Adversary 2", 0.0, needs=SHADOWS
    ),
    "calibrated": Attack(_calibrated_loss, "Calibrated loss", "Watson et al. 2022", needs=SHADOWS),
    "lira": Attack(_online, "LiRA, online", LIRA, EVEN_ODDS, needs=SHADOWS),
    "lira-fixed": Attack(
        _online_fixed, "LiRA, online, fixed variance", LIRA, EVEN_ODDS, needs=ALL_RECORDS
    ),
    "lira-offline": Attack(_offline, "LiRA, offline", LIRA, needs=SHADOWS),
    "lira-offline-fixed": Attack(
        _offline_fixed, "LiRA, offline, fixed variance", LIRA, needs=ALL_RECORDS
    ),
    "rmia": Attack(_rmia, "RMIA, online", RMIA, needs=POPULATION),
    "rmia-offline": Attack(_rmia_offline, "RMIA, offline", RMIA, needs=POPULATION),
    "trajectory": Attack(
        _trajectory,
        "LiRA on all global models",
        "after Carlini et al. 2022",
        EVEN_ODDS,
        needs=frozenset({"shadows", "trajectory"}),
    ),
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


def needed(names: str) -> frozenset[str]:
    """Return the union of `Attack.needs` over the named attacks.

    names, InputError: as for `chosen`.
    """
    return frozenset[str]().union(*(attack.needs for attack in chosen(names).values()))
