"""Figures 4 and 5 and Section 6.1 of the core paper: local sensitivity of chosen pairs."""

from collections.abc import Mapping

import numpy as np

from adversaries.arrays import Floats
from adversaries.neighbours.rank_correlation import RankCorrelation
from fedsim.configuration import Scalar
from fedsim.federation.server import plan
from fedsim.reports.figures import canvas, training_figures
from fedsim.reports.figures.training_figures import Followed, Relation
from fedsim.studies.sensitivity import sensitivity_study
from fedsim.studies.sensitivity.sensitivity_study import PairCandidate, Study
from papers.bernau.experiments import TITLES, configured
from papers.findings import (
    ItemPicture,
    Means,
    Number,
    Reproduced,
    averaged,
)

TRAININGS = {"smoke": 4, "full": 250}
TOP = {"smoke": 1, "full": 3}

WORDS = {"replace": "bounded", "add-remove": "unbounded"}


def followed(means: Means, data: str) -> Reproduced:
    """Return Figures 4 and 5 of a data set."""
    studies = {neighbouring: _study(means, data, neighbouring) for neighbouring in WORDS}
    bounded = studies["replace"]
    numbers, pairs = [], []
    for neighbouring, study in studies.items():
        for one in (*study.of("max"), *study.of("min")):
            name = f"{one.choice} {one.place}"
            numbers.append(_rms(f"RMS LS, {WORDS[neighbouring]}, {name}", one))
            if study is bounded:
                pairs.append(Followed(name, one.pair.distance, one.choice, one.course))
    highest, lowest = bounded.of("max")[0], bounded.of("min")[0]
    relations = [
        Relation(WORDS[name], study.of("max")[0].course, _bound(study))
        for name, study in studies.items()
    ]
    return Reproduced(
        f"Dissimilar pairs change a step more than similar ones do: {_root(highest.course):.3f} "
        f"against {_root(lowest.course):.3f} under bounded privacy, of {_bound(bounded):g} that "
        "clipping allows.",
        numbers,
        [
            ItemPicture(
                f"figure-4-{data}",
                f"Local sensitivity of {TITLES[data]}'s most and least dissimilar pairs in all "
                "steps of all trainings: median and the range of 90 %, bounded.",
                canvas.to_svg(training_figures.by_pair(pairs, _bound(bounded)).figure),
            ),
            ItemPicture(
                f"figure-5-{data}",
                "Local sensitivity of the most dissimilar pair over the steps, against the global "
                "sensitivity, bounded and unbounded.",
                canvas.to_svg(training_figures.over_training(relations).figure),
            ),
        ],
    )


def _study(means: Means, data: str, neighbouring: str) -> Study:
    trainings = TRAININGS[means.scale]
    means.say(f"{trainings} trainings of {data}, {neighbouring}")
    changes: dict[str, Scalar] = {"privacy.neighbouring": neighbouring}
    return _studied(means, data, changes, TOP[means.scale], trainings)


def _studied(
    means: Means, data: str, changes: dict[str, Scalar], top: int, trainings: int
) -> Study:
    config = configured(means, data, changes)
    batch = plan.fit_batch(config).trials.batch
    return sensitivity_study.study(
        config.experiment, config.audit.confidence, batch, top, trainings
    )


def _bound(study: Study) -> float:
    """Return the bound of clipping: C, or 2C if a record is replaced."""
    scheme = study.experiment.game.scheme
    norm = scheme.training.clipping_norm
    return 2 * norm if scheme.privacy.neighbouring == "replace" else norm


def _root(course: Floats) -> float:
    return float(np.sqrt(np.mean(np.square(course))))


def _rms(name: str, one: PairCandidate) -> Number:
    """Return the root mean square of all steps."""
    low, high = averaged("", np.mean(np.square(one.course), axis=1)).interval or (0.0, 0.0)
    interval = float(np.sqrt(max(0.0, low))), float(np.sqrt(high))
    return Number(name, _root(one.course), interval)


COMPARED = {"smoke": 3, "full": 50}

CHOSEN_BY = {
    "mnist": ("ssim", "euclidean"),
    "adult": ("manhattan", "euclidean"),
    "purchase-100": ("hamming", "cosine"),
}
"""The paper's measure first, then one it is better than."""


def compared(means: Means, data: str) -> Reproduced:
    """Return how well dissimilarities order pairs, and the sensitivity of their choices."""
    # What a smoke run has in place of any data are images.
    measures = CHOSEN_BY["mnist" if means.smoke else data]
    studies = {}
    for name in measures:
        means.say(f"pairs of {data} by {name}")
        changes: dict[str, Scalar] = {
            "privacy.neighbouring": "replace",
            "challenge.dissimilarity": name,
        }
        studies[name] = _studied(means, data, changes, 1, COMPARED[means.scale])
    correlations = next(iter(studies.values())).views[0].correlations
    ordered = dict(sorted(correlations.items(), key=lambda entry: -entry[1].rho))
    numbers = [
        Number(f"rank correlation, {_measure(name)}", one.rho, (one.low, one.high))
        for name, one in ordered.items()
    ]
    numbers += [
        _rms(f"RMS LS of the pair chosen by {_measure(name)}", study.of("max")[0])
        for name, study in studies.items()
    ]
    best, *_, worst = ordered
    return Reproduced(
        f"{better(measures[0], measures[-1], ordered)} At the first model, {_measure(best)} is "
        f"best and {_measure(worst)} worst.",
        numbers,
        [
            ItemPicture(
                f"dissimilarities-{data}",
                f"Spearman's rank correlation of {TITLES[data]}'s dissimilarities with local "
                "sensitivity at the first model, with intervals of 95 %.",
                _drawn(ordered),
            )
        ],
    )


def better(ours: str, other: str, correlations: Mapping[str, RankCorrelation]) -> str:
    """Return whether one dissimilarity orders pairs better than another, as in the paper."""
    if not {ours, other} <= correlations.keys():
        return "The measures that the paper compares have no rank correlation here."
    first, second = correlations[ours], correlations[other]
    said = f"The paper finds {_measure(ours)} better than {_measure(other)} at ordering pairs"
    values = f"rank correlations {first.rho:.3f} and {second.rho:.3f}"
    if first.low > second.high:
        return f"{said}. The same holds here: {values}, and their intervals do not overlap."
    if second.low > first.high:
        return (
            f"{said}. Here it is the other way round: {values}, and their intervals do not overlap."
        )
    return f"{said}. No difference is seen here: {values}, and their intervals overlap."


def _measure(measure: str) -> str:
    return "SSIM" if measure == "ssim" else measure.capitalize()


def _drawn(ordered: dict[str, RankCorrelation]) -> str:
    with canvas.panel("rank correlation with local sensitivity") as (figure, axes):
        for place, one in enumerate(reversed(ordered.values())):
            axes.hlines(place, one.low, one.high, color=canvas.BLUE, linewidth=2)
            axes.plot(one.rho, place, "o", color=canvas.BLUE)
        axes.set_yticks(range(len(ordered)), list(reversed(ordered)))
        axes.axvline(0, color=canvas.MUTED, linewidth=0.8)
    return canvas.to_svg(figure)
