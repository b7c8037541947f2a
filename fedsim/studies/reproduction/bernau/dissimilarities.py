"""Section 6.1 of the core paper: which dissimilarity finds the pair that moves a step most."""

from collections.abc import Mapping

import numpy as np
from scipy import stats

from adversaries.neighbours.rank_correlation import RankCorrelation
from fedsim.config import Scalar
from fedsim.report.figures import canvas
from fedsim.studies.reproduction.bernau.experiments import TITLES, configured
from fedsim.studies.reproduction.findings.finding import CONFIDENCE, Number, Picture, Reproduced
from fedsim.studies.reproduction.findings.item import Means
from fedsim.studies.sensitivity import sensitivity_study
from fedsim.studies.sensitivity.sensitivity_study import Study

TRAININGS = {"smoke": 3, "full": 50}

CHOSEN_BY = {
    "mnist": ("ssim", "ssim-flat", "euclidean"),
    "adult": ("manhattan", "euclidean"),
    "purchase-100": ("hamming", "cosine"),
}
"""The paper's measure first; on MNIST what its authors' code computed; one it is better than."""

NAMES = {
    "ssim": "SSIM in two dimensions",
    "ssim-flat": "SSIM of the flattened vector, as in the authors' code",
    "ssim-gaussian": "SSIM with a Gaussian window",
}


def compared(means: Means, data: str) -> Reproduced:
    """Return how well dissimilarities order pairs, and what the pairs that they choose come to."""
    # What a smoke run has in place of any data are images.
    measures = CHOSEN_BY["mnist" if means.smoke else data]
    studies = {name: _study(means, data, name) for name in measures}
    ordered = _correlations(next(iter(studies.values())))
    numbers = [
        Number(f"rank correlation, {_name(name)}", one.rho, (one.low, one.high))
        for name, one in ordered.items()
    ]
    numbers += [_rms(f"RMS LS of the pair chosen by {_name(n)}", s) for n, s in studies.items()]
    best, *_, worst = ordered
    return Reproduced(
        f"{better(measures[0], measures[-1], ordered)} Best at the first model is {_name(best)}, "
        f"worst {_name(worst)}.",
        tuple(numbers),
        (
            Picture(
                f"dissimilarities-{data}",
                f"Spearman's rank correlation of {TITLES[data]}'s dissimilarities with local "
                "sensitivity at the first model, with intervals of 95 %.",
                _drawn(ordered),
            ),
        ),
    )


def better(ours: str, other: str, correlations: Mapping[str, RankCorrelation]) -> str:
    """Return whether one dissimilarity orders pairs better than another, as the paper finds."""
    if not {ours, other} <= correlations.keys():
        return "What the paper compares has no rank correlation here."
    first, second = correlations[ours], correlations[other]
    said = f"The paper finds {_name(ours)} better than {_name(other)} at ordering pairs"
    values = f"rank correlations {first.rho:.3f} and {second.rho:.3f}"
    if first.low > second.high:
        return f"{said}, and so it is here: {values}, intervals apart."
    if second.low > first.high:
        return f"{said}; here it is the other way round: {values}, intervals apart."
    return f"{said}; no difference is seen here: {values}, and their intervals overlap."


def _study(means: Means, data: str, measure: str) -> Study:
    means.say(f"pairs of {data} by {measure}")
    changes: dict[str, Scalar] = {
        "privacy.neighbouring": "replace",
        "challenge.dissimilarity": measure,
    }
    config = configured(means, data, changes)
    return sensitivity_study.study(config, 1, TRAININGS[means.scale])


def _correlations(study: Study) -> dict[str, RankCorrelation]:
    """Return the rank correlations at the first model, the highest first."""
    comparison = study.views[0].comparison
    found = comparison.correlations if comparison else {}
    return dict(sorted(found.items(), key=lambda entry: -entry[1].rho))


def _name(measure: str) -> str:
    return NAMES.get(measure, measure.capitalize())


def _rms(name: str, study: Study) -> Number:
    """Return the root mean square of the pair in all steps, with its interval over trainings."""
    squares = np.mean(np.square(study.of("max")[0].course), axis=1)
    half = stats.t.ppf(0.5 + CONFIDENCE / 2, len(squares) - 1) * stats.sem(squares)
    middle = squares.mean()
    low, high = np.sqrt(max(0.0, middle - half)), np.sqrt(middle + half)
    return Number(name, float(np.sqrt(middle)), (float(low), float(high)))


def _drawn(ordered: dict[str, RankCorrelation]) -> str:
    with canvas.page_style():
        figure, axes = canvas.new_axes()
        for place, one in enumerate(reversed(ordered.values())):
            axes.hlines(place, one.low, one.high, color=canvas.BLUE, linewidth=2)
            axes.plot(one.rho, place, "o", color=canvas.BLUE)
        axes.set_yticks(range(len(ordered)), list(reversed(ordered)))
        axes.axvline(0, color=canvas.MUTED, linewidth=0.8)
        axes.set_xlabel("rank correlation with local sensitivity")
    return canvas.to_svg(figure)
