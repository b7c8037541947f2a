"""Poisoned neighbours: a record in D and not in D' that a model reveals (arXiv:2006.07709)."""

import numpy as np
import numpy.typing as npt

from adversaries.arrays import Floats
from adversaries.errors import InputError

NULL = 1e-10
"""Eigenvalues of X'X below this share of the largest are rounding."""


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
