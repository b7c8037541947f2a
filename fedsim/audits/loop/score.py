"""The score that tells a loop's two worlds apart, chosen on runs that judge nothing."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from adversaries.arrays import Bools, Floats
from adversaries.bounds.lower_bounds import clopper_pearson_bound
from fedsim.audits.loop.measurement import FEATURES

LEARNING_CONFIDENCE = 0.9
OF_STEPS = ("sampled", "total")
THRESHOLDS = 32


@dataclass(frozen=True)
class Score:
    """A score of runs; above 0 it names the world with the target.

    Attributes:
        name: name of the feature, or "all together".
        weights: of the features.
    """

    name: str
    weights: Floats
    threshold: float = 0.0

    def of(self, features: Floats) -> Floats:
        return features @ self.weights - self.threshold


def separation(worlds: Bools, features: Floats) -> float:
    """Return the distance of the worlds by the best feature, in standard deviations."""
    with_it, without = features[worlds], features[~worlds]
    apart = np.abs(with_it.mean(axis=0) - without.mean(axis=0))
    spread = np.sqrt((with_it.var(axis=0) + without.var(axis=0)) / 2)
    # The floor keeps a feature without spread finite: a few runs may agree by chance.
    return float((apart / np.maximum(spread, 1e-3 * apart + 1e-12)).max())


def steps_apart(worlds: Bools, features: Floats) -> float:
    """Return the distance of the worlds by all steps, in standard deviations of one world.

    It uses the features that sum over steps, whichever score was chosen: less noise changes them in
    proportion.
    """
    return separation(worlds, features[:, [FEATURES.index(name) for name in OF_STEPS]])


def best_score(worlds: Bools, features: Floats, delta: float) -> Score:
    """Return the score and threshold that prove most epsilon on these trials, which judge nothing.

    The candidates are each feature alone, and Fisher's discriminant of all.
    """

    def proven(scores: Floats) -> float:
        return clopper_pearson_bound(worlds, scores, delta, LEARNING_CONFIDENCE, 0.0).epsilon

    return _best(worlds, features, _candidates(worlds, features), proven)


def learnt_of_steps(worlds: Bools, features: Floats) -> Score:
    """Return the score of Gaussian steps, and the threshold at which the rates differ most.

    It is for a bound that knows the trade-off curve. All points of the curve prove the same, and
    counts are most precise in its middle.
    """

    def apart(scores: Floats) -> float:
        rates = clopper_pearson_bound(worlds, scores, 0.0, LEARNING_CONFIDENCE, 0.0).details
        return rates["true_positive_rate_low"] - rates["false_positive_rate_high"]

    candidates = [each for each in _candidates(worlds, features) if each.name in OF_STEPS]
    return _best(worlds, features, candidates, apart)


def _best(
    worlds: Bools, features: Floats, candidates: Sequence[Score], worth: Callable[[Floats], float]
) -> Score:
    best, chosen = (-1.0, -1.0), candidates[0]
    for candidate in candidates:
        values = np.unique(candidate.of(features))
        cuts = (values[1:] + values[:-1]) / 2
        if len(cuts) > THRESHOLDS:
            cuts = cuts[np.linspace(0, len(cuts) - 1, THRESHOLDS).astype(int)]
        for cut in cuts:
            score = Score(candidate.name, candidate.weights, float(cut))
            scores = score.of(features)
            gap = float((scores[worlds] > 0).mean() - (scores[~worlds] > 0).mean())
            rank = worth(scores), gap
            if rank > best:
                best, chosen = rank, score
    return chosen


def _candidates(worlds: Bools, features: Floats) -> list[Score]:
    with_it, without = features[worlds].mean(axis=0), features[~worlds].mean(axis=0)
    units = np.diag(np.where(with_it >= without, 1.0, -1.0))
    within = np.concatenate([features[worlds] - with_it, features[~worlds] - without])
    # Standardised features, and a ridge: few runs estimate nearly collinear features badly.
    scale = np.maximum(within.std(axis=0), 1e-9)
    covariance = np.cov(within / scale, rowvar=False) + 0.1 * np.eye(len(scale))
    fisher = np.linalg.solve(covariance, (with_it - without) / scale) / scale
    single = [Score(name, unit) for name, unit in zip(FEATURES, units, strict=True)]
    return [*single, Score("all together", fisher)]
