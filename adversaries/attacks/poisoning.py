"""Poisoned neighbours: what D has that D' has not, made so that a model betrays it.

After Jagielski, Ullman and Oprea, "Auditing differentially private machine learning: how private
is private SGD?", 2020 (arXiv:2006.07709).
"""

import math
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import scipy

from adversaries.errors import InputError
from adversaries.statistics.intervals import LowerBound

Floats = npt.NDArray[np.float64]

NULL = 1e-10
"""Eigenvalues of X'X below this share of the largest are 0, but for rounding."""

LARGEST = 700.0
"""The largest epsilon that is looked for: beyond it exp overflows."""


def least_direction(features: npt.ArrayLike, towards: Floats) -> Floats:
    """Return the right singular vector for the smallest singular value, float64 [d].

    ClipBKD does not centre the features, since it is <x_p, x> that must be small for every x. Where
    many directions have singular value 0, as pixels that are black in all records, every unit
    vector among them is one: the one nearest to `towards`, so that machines agree.

    Args:
        features: [n, d], one flat row for each record, as they are.
        towards: float64 [d]; the result's inner product with it is not negative.

    Raises:
        InputError: no features.

    Source:
        Algorithm 4.
    """
    rows = np.asarray(features, np.float64)
    if rows.ndim != 2 or not rows.size:
        raise InputError(f"features are {rows.shape}; give [records, features]")
    if len(rows) < rows.shape[1]:
        return _off_the_rows(rows, towards)
    values, vectors = np.linalg.eigh(rows.T @ rows)  # ascending
    null = values <= max(values[0], NULL * values[-1])
    basis = vectors[:, null]
    direction: Floats = basis @ (basis.T @ towards)
    return direction / np.linalg.norm(direction)


def _off_the_rows(rows: Floats, towards: Floats) -> Floats:
    """Return `least_direction` of fewer rows than features, without any d x d matrix.

    All that the rows do not span has singular value 0: what is left of `towards` when its part in
    their span is taken away, twice, since the first time leaves its rounding there.
    """
    _, values, vectors = np.linalg.svd(rows, full_matrices=False)
    basis = vectors[values**2 > NULL * values[0] ** 2]
    direction = towards
    for _ in range(2):
        direction = direction - basis.T @ (basis @ direction)
    return direction / np.linalg.norm(direction)


def clipbkd_point(features: npt.ArrayLike, towards: Floats) -> Floats:
    """Return x_p = m V_d, float64 [d]: `least_direction` at the records' mean norm m.

    Its gradient in a first linear layer, e x_p', is nearly orthogonal to those of the records, and
    is not small: clipping takes no more from it than from theirs.

    Args:
        features: [n, d], of the records.
        towards: float64 [d], as of `least_direction`.

    Raises:
        InputError: no features.
    """
    norm = np.linalg.norm(np.asarray(features, np.float64), axis=1).mean()
    return float(norm) * least_direction(features, towards)


def least_liked(logits: npt.ArrayLike, but: int | None = None) -> int:
    """Return the class that a model likes least, argmin f(x); the first of several.

    The label with the largest loss, hence the largest error at the output.

    Args:
        logits: [c], or [1], the log-odds of class 1.
        but: a class that is not to be returned; None for none.
    """
    scores = np.atleast_1d(np.asarray(logits, np.float64)).copy()
    if len(scores) == 1:
        scores = np.array([0.0, scores[0]])
    if but is not None:
        scores[but] = np.inf
    return int(scores.argmin())


def logit_gain(logits: npt.ArrayLike, baseline: npt.ArrayLike, label: int) -> Floats:
    """Return (f(x_p) - f(0)) . y_p of T models, float64 [T]: the statistic of CLIPBKDTEST.

    Args:
        logits: [T, c], of the poison; c = 1: the log-odds of class 1.
        baseline: [T, c], of the all-zero record: what the model gives to the class without looking.
        label: the poison's, in 0..c-1, or 0 or 1 where c = 1.
    """
    gain = np.asarray(logits, np.float64) - np.asarray(baseline, np.float64)
    if gain.shape[1] == 1:
        return gain[:, 0] if label else -gain[:, 0]
    return gain[:, label]


def per_record(bound: LowerBound, records: int) -> LowerBound:
    """Return what a bound for a group of k records proves about one record.

    (epsilon, delta)-privacy of one record is (k epsilon, delta_k)-privacy of k, with
    delta_k = delta (e^{k epsilon} - 1)/(e^epsilon - 1) (group privacy). So epsilon is refuted where
    the limits of the rates break TPR <= e^{k epsilon} FPR + delta_k, or the same of TNR and FNR;
    the bound is the largest such epsilon. At delta = 0 it is epsilon/k.

    Args:
        bound: of the Clopper-Pearson kind, whose details have true_positive_rate_low and
            false_positive_rate_high, at the delta of one record. One that was refused is returned
            as it is.
        records: k, at least 1.

    Raises:
        InputError: a bound of another kind; an empty group.

    Source:
        Jagielski et al., Algorithm 2.
    """
    if records < 1:
        raise InputError(f"the group has {records} records; give at least 1")
    if bound.reason:
        return bound
    names = "true_positive_rate_low", "false_positive_rate_high"
    if any(name not in bound.details for name in names):
        raise InputError(f"the bound by {bound.method} has no limits of the rates to divide")
    tpr, fpr = (bound.details[name] for name in names)
    epsilon = max(
        _refuted(tpr, fpr, bound.delta, records), _refuted(1 - fpr, 1 - tpr, bound.delta, records)
    )
    return replace(bound, epsilon=epsilon, method=f"{bound.method}, by group privacy of {records}")


def group_delta(epsilon: float, delta: float, records: int) -> float:
    """Return delta_k = delta (e^{k epsilon} - 1)/(e^epsilon - 1), of a group of k records.

    k delta at epsilon = 0; inf beyond what a float holds.

    Args:
        epsilon: of one record, >= 0.
        delta: of one record, in [0, 1).
        records: k, at least 1.
    """
    exponents = epsilon * np.arange(records)
    with np.errstate(over="ignore"):
        return float(delta * np.exp(exponents).sum())


def _refuted(true: float, false: float, delta: float, records: int) -> float:
    """Return the largest epsilon at which the rates break group privacy, 0 if at none."""

    def excess(epsilon: float) -> float:
        """Return ln(true) - ln(e^{k epsilon} false + delta_k), which falls with epsilon."""
        allowed = [records * epsilon + math.log(false)] if false > 0 else []
        if delta > 0:
            allowed.append(math.log(group_delta(epsilon, delta, records)))
        return math.log(true) - float(np.logaddexp.reduce(allowed)) if allowed else math.inf

    if true <= 0 or excess(0.0) <= 0:
        return 0.0
    high = LARGEST / records
    return high if excess(high) > 0 else float(scipy.optimize.brentq(excess, 0.0, high, xtol=1e-12))
