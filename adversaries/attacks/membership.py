"""Membership inference from the losses of final models (Yeom et al.), trial by trial.

A record counts as a member if its loss is at most the mean loss of the training data: Yeom et al.,
"Privacy risk in machine learning: analyzing the connection to overfitting", 2018, as used by
Jayaraman and Evans, "Evaluating differentially private machine learning in practice", 2019. Losses
may be arrays or tensors on any device; results are NumPy arrays.
"""

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.special import stdtrit
from torch import Tensor

from adversaries.arrays import Bools, Floats
from adversaries.errors import InputError
from adversaries.statistics.intervals import Interval, significance

Losses = Tensor | npt.ArrayLike


@dataclass(frozen=True)
class MeanAdvantage:
    """The mean of TPR - FPR over trials; one trial shows no spread.

    Attributes:
        point: in [-1, 1].
        standard_error: of the mean over trials; None for one trial.
        interval: within [-1, 1]; None for one trial.
        trials: T, number of trials.
    """

    point: float
    standard_error: float | None
    interval: Interval | None
    trials: int


def yeom(
    member_losses: Losses, non_member_losses: Losses, inclusion: Losses | None = None
) -> tuple[Floats, Floats]:
    """Return the attack's true and false positive rates, float64 [T] each.

    Args:
        member_losses: [T, n], of the records that trials train on.
        non_member_losses: [T, h], of other records, h >= 1.
        inclusion: [T, n], weights of the members >= 0; 0 excludes a record. None for 1 throughout.

    Raises InputError for other shapes, a trial without members, or a loss that is not finite.
    """
    losses, weights = _members(member_losses, inclusion)
    non_members = _float64(non_member_losses)
    if non_members.ndim != 2 or len(non_members) != len(losses) or not non_members.size:
        raise InputError(
            f"losses of members are {losses.shape}, of non-members {non_members.shape}; give "
            "[T, n] and [T, h] with at least one non-member"
        )
    _check_finite(non_members)
    # Non-members among the records have an infinite loss and weight 0: they count in neither rate.
    threshold = _threshold(losses, weights)[:, None]
    true_positive = np.average(losses <= threshold, axis=1, weights=weights)
    return true_positive, np.mean(non_members <= threshold, axis=1)


def yeom_challenge(
    challenge_losses: Losses, member_losses: Losses, inclusion: Losses | None = None
) -> Bools:
    """Return whether the attack takes the target record for a member, bool [T].

    Args:
        challenge_losses: [T], of the target record.
        member_losses: [T, n], of the records that trials train on.
        inclusion: [T, n], weights of the members >= 0; None for 1 throughout.

    Raises InputError for other shapes, a trial without members, or a loss that is not finite.
    """
    losses, weights = _members(member_losses, inclusion)
    challenge = _float64(challenge_losses)
    if challenge.shape != losses.shape[:1]:
        raise InputError(
            f"losses of the challenge are {challenge.shape}, of members {losses.shape}; give [T] "
            "and [T, n]"
        )
    _check_finite(challenge)
    return challenge <= _threshold(losses, weights)


def membership_advantage(
    true_positive_rate: Floats, false_positive_rate: Floats, confidence: float
) -> MeanAdvantage:
    """Return the mean of TPR - FPR over the trials, with a t interval across them.

    Args:
        true_positive_rate: float64 [T].
        false_positive_rate: float64 [T].
        confidence: of the interval, in (0, 1).

    Raises InputError for confidence out of range, or for rates of different or empty shape.
    """
    alpha = significance(confidence)
    if true_positive_rate.ndim != 1 or true_positive_rate.shape != false_positive_rate.shape:
        raise InputError(
            f"true positive rates are {true_positive_rate.shape}, false positive rates "
            f"{false_positive_rate.shape}; give both as [trials]"
        )
    differences = true_positive_rate - false_positive_rate
    trials = differences.size
    if not trials:
        raise InputError("there are no trials; give the rates of at least one")
    point = float(differences.mean())
    if trials == 1:
        return MeanAdvantage(point, None, None, trials)
    # The spread is that of trials, not of records: the records of one trial share a model.
    error = float(differences.std(ddof=1)) / math.sqrt(trials)
    reach = float(stdtrit(trials - 1, 1 - alpha / 2)) * error
    interval = Interval(max(-1.0, point - reach), min(1.0, point + reach), confidence)
    return MeanAdvantage(point, error, interval, trials)


def _float64(values: Losses) -> Floats:
    if isinstance(values, Tensor):
        values = values.detach().cpu().double().numpy()
    return np.asarray(values, np.float64)


def _check_finite(losses: Floats) -> None:
    if not np.isfinite(losses).all():
        raise InputError("a loss is not finite: a model diverged; lower the learning rate")


def _members(member_losses: Losses, inclusion: Losses | None) -> tuple[Floats, Floats]:
    """Return losses [T, n], infinite where a record is no member, and their weights [T, n]."""
    losses = _float64(member_losses)
    weights = np.ones_like(losses) if inclusion is None else _float64(inclusion)
    if losses.ndim != 2 or weights.shape != losses.shape:
        raise InputError(
            f"losses of members are {losses.shape}, their inclusion {weights.shape}; give [T, n]"
        )
    if not (np.all(weights >= 0) and np.all(weights.sum(axis=1) > 0)):
        raise InputError("a trial has no member; give inclusion >= 0, above 0 for some records")
    _check_finite(losses[weights > 0])
    # Infinite, so that no record outside of the training is the smallest or passes a threshold.
    return np.where(weights > 0, losses, np.inf), weights


def _threshold(losses: Floats, weights: Floats) -> Floats:
    """Return the mean loss of the members, [T], so that rounding separates no equal losses."""
    # Equal losses have distances of exactly 0, so their mean cannot round to below them.
    smallest = losses.min(axis=1, keepdims=True)
    distance = np.where(weights > 0, losses - smallest, 0.0)
    return smallest[:, 0] + np.average(distance, axis=1, weights=weights)
