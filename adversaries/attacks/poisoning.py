"""Poisoned neighbours: a record in D and not in D' that a model reveals (arXiv:2006.07709)."""

import math
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from adversaries.arrays import Floats
from adversaries.errors import InputError
from adversaries.statistics.intervals import EpsilonBound
from adversaries.statistics.roots import find_root

NULL = 1e-10
"""Eigenvalues of X'X below this share of the largest are rounding."""

LARGEST = 700.0
"""Largest epsilon that is searched: beyond it exp overflows."""


def least_direction(features: npt.ArrayLike, towards: Floats) -> Floats:
    """Return the right singular vector for the smallest singular value, float64 [d].

    ClipBKD does not centre the features. Where many directions have singular value 0, the nearest
    one to `towards` is taken, so that machines agree.

    Args:
        features: [n, d], one flat row for each record, not centred.
        towards: float64 [d]; the result's inner product with it is not negative.

    Raises InputError for no features. Source: Algorithm 4.
    """
    rows = np.asarray(features, np.float64)
    if rows.ndim != 2 or not rows.size:
        raise InputError(f"features are {rows.shape}; give [records, features]")
    if len(rows) < rows.shape[1]:
        return _off_the_rows(rows, towards)
    # X'X has the right singular vectors of X, with the squares of its singular values.
    values, vectors = np.linalg.eigh(rows.T @ rows)  # ascending
    null = values <= max(values[0], NULL * values[-1])
    basis = vectors[:, null]
    # The projection is the same for every basis of the null space that a library may return.
    direction: Floats = basis @ (basis.T @ towards)
    return direction / np.linalg.norm(direction)


def _off_the_rows(rows: Floats, towards: Floats) -> Floats:
    """Return `least_direction` for fewer rows than features: `towards` less its part in them."""
    _, values, vectors = np.linalg.svd(rows, full_matrices=False)
    basis = vectors[values**2 > NULL * values[0] ** 2]
    direction = towards
    # A second pass removes what rounding left of the rows after the first.
    for _ in range(2):
        direction = direction - basis.T @ (basis @ direction)
    return direction / np.linalg.norm(direction)


def clipbkd_point(features: npt.ArrayLike, towards: Floats) -> Floats:
    """Return x_p = m V_d, float64 [d]: `least_direction` at the records' mean norm m.

    Args:
        features: [n, d], of the records.
        towards: float64 [d]; the result's inner product with it is not negative.

    Raises InputError for no features.
    """
    norm = np.linalg.norm(np.asarray(features, np.float64), axis=1).mean()
    return float(norm) * least_direction(features, towards)


def least_liked(logits: npt.ArrayLike, but: int | None = None) -> int:
    """Return the class with the least logit, argmin f(x); the first of several.

    Args:
        logits: [c], or [1], the log-odds of class 1.
        but: a class to exclude; None excludes none.
    """
    scores = np.atleast_1d(np.asarray(logits, np.float64)).copy()
    if len(scores) == 1:
        # The log-odds of class 1 are its logit where class 0 has the logit 0.
        scores = np.array([0.0, scores[0]])
    if but is not None:
        scores[but] = np.inf
    return int(scores.argmin())


def logit_gain(logits: npt.ArrayLike, baseline: npt.ArrayLike, label: int) -> Floats:
    """Return (f(x_p) - f(0)) . y_p of T models, float64 [T]: the statistic of CLIPBKDTEST.

    Args:
        logits: [T, c], of the poison; with c = 1 the log-odds of class 1.
        baseline: [T, c], of the all-zero record: the model's bias towards the class.
        label: the poison's, in 0..c-1, or 0 or 1 where c = 1.
    """
    gain = np.asarray(logits, np.float64) - np.asarray(baseline, np.float64)
    if gain.shape[1] == 1:
        return gain[:, 0] if label else -gain[:, 0]
    return gain[:, label]


def per_record(bound: EpsilonBound, records: int) -> EpsilonBound:
    """Return the bound for one record that follows from a bound for a group of k records.

    (epsilon, delta)-privacy of one record is (k epsilon, delta_k)-privacy of k, with delta_k =
    delta (e^{k epsilon} - 1)/(e^epsilon - 1). The bound is the largest epsilon whose rates break
    TPR <= e^{k epsilon} FPR + delta_k, or the same for TNR and FNR.

    Args:
        bound: of the Clopper-Pearson kind, with its rates in the details, at the delta of one
            record. A bound with a reason is returned unchanged.
        records: k, at least 1.

    Raises InputError for another bound or an empty group. Source: Jagielski et al., Algorithm 2.
    """
    if records < 1:
        raise InputError(f"the group has {records} records; give at least 1")
    if bound.reason:
        return bound
    names = "true_positive_rate_low", "false_positive_rate_high"
    if any(name not in bound.details for name in names):
        raise InputError(
            f"the bound by {bound.method} has no limits of the true and false positive rates to "
            "convert; use a Clopper-Pearson bound"
        )
    tpr, fpr = (bound.details[name] for name in names)
    # The second pair is the same inequality for TNR and FNR.
    epsilon = max(
        _refuted(tpr, fpr, bound.delta, records), _refuted(1 - fpr, 1 - tpr, bound.delta, records)
    )
    return replace(bound, epsilon=epsilon, method=f"{bound.method}, by group privacy of {records}")


def group_delta(epsilon: float, delta: float, records: int) -> float:
    """Return delta_k = delta (e^{k epsilon} - 1)/(e^epsilon - 1), for a group of k records.

    Args:
        epsilon: of one record, >= 0.
        delta: of one record, in [0, 1).
        records: k, at least 1.
    """
    # The quotient as its geometric series, which also holds at epsilon = 0.
    exponents = epsilon * np.arange(records)
    with np.errstate(over="ignore"):
        return float(delta * np.exp(exponents).sum())


def _refuted(true: float, false: float, delta: float, records: int) -> float:
    """Return the largest epsilon at which the rates break group privacy; 0 if there is no such."""

    def excess(epsilon: float) -> float:
        """Return ln(true) - ln(e^{k epsilon} false + delta_k), which falls with epsilon."""
        allowed = [records * epsilon + math.log(false)] if false > 0 else []
        if delta > 0:
            allowed.append(math.log(group_delta(epsilon, delta, records)))
        return math.log(true) - float(np.logaddexp.reduce(allowed)) if allowed else math.inf

    if true <= 0 or excess(0.0) <= 0:
        return 0.0
    # Keep e^(k epsilon) finite: a smaller epsilon than the rates refute is still refuted.
    high = LARGEST / records
    return high if excess(high) > 0 else find_root(excess, 0.0, high, xtol=1e-12)
