"""Figures 4 and 5 of the core paper: local sensitivity of chosen pairs, and over training."""

import numpy as np
import numpy.typing as npt
from scipy import stats

from fedsim.report.figures import canvas, sensitivity_figures
from fedsim.report.figures.sensitivity_figures import Followed, Relation
from fedsim.studies.reproduction.bernau.experiments import TITLES, configured
from fedsim.studies.reproduction.findings.finding import (
    CONFIDENCE,
    Number,
    Picture,
    Reference,
    Reproduced,
)
from fedsim.studies.reproduction.findings.item import Means
from fedsim.studies.sensitivity import sensitivity_study
from fedsim.studies.sensitivity.sensitivity_study import Candidate, Study

TRAININGS = {"smoke": 4, "full": 250}
TOP = {"smoke": 1, "full": 3}

RECORDED = {"mnist": (4.377, 3), "adult": (2.116, 3), "purchase-100": (4.244, 3)}
"""RMS local sensitivity of the most dissimilar pair that the authors' code printed, and digits."""

WORDS = {"replace": "bounded", "add-remove": "unbounded"}


def followed(means: Means, data: str) -> Reproduced:
    """Return Figures 4 and 5 of a data set."""
    studies = {neighbouring: _study(means, data, neighbouring) for neighbouring in WORDS}
    bounded = studies["replace"]
    numbers = [
        _rms(f"RMS LS, bounded, {_name(one)}", one, data if one.choice == "max" else "")
        for one in (*bounded.of("max"), *bounded.of("min"))
    ]
    numbers += [
        _rms(f"RMS LS, unbounded, {_name(one)}", one, "")
        for one in (*studies["add-remove"].of("max"), *studies["add-remove"].of("min"))
    ]
    highest, lowest = bounded.of("max")[0], bounded.of("min")[0]
    relations = [
        Relation(WORDS[name], study.of("max")[0].course, _bound(study))
        for name, study in studies.items()
    ]
    return Reproduced(
        f"Dissimilar pairs move a step more than similar ones do: {_root(highest.course):.3f} "
        f"against {_root(lowest.course):.3f} under bounded privacy, of {_bound(bounded):g} that "
        "clipping allows.",
        tuple(numbers),
        (
            Picture(
                f"figure-4-{data}",
                f"Local sensitivity of {TITLES[data]}'s most and least dissimilar pairs in all "
                "steps of all trainings: median and the range of 90 %, bounded.",
                canvas.to_svg(sensitivity_figures.by_pair(_followed(bounded), _bound(bounded))),
            ),
            Picture(
                f"figure-5-{data}",
                "Local sensitivity of the most dissimilar pair over the steps, against the global "
                "sensitivity, bounded and unbounded.",
                canvas.to_svg(sensitivity_figures.over_training(relations)),
            ),
        ),
    )


def _study(means: Means, data: str, neighbouring: str) -> Study:
    trainings = TRAININGS[means.scale]
    means.say(f"{trainings} trainings of {data}, {neighbouring}")
    config = configured(means, data, {"privacy.neighbouring": neighbouring})
    return sensitivity_study.study(config, TOP[means.scale], trainings)


def _followed(study: Study) -> list[Followed]:
    return [
        Followed(_name(one), one.pair.distance, one.choice, one.course)
        for one in (*study.of("max"), *study.of("min"))
    ]


def _name(one: Candidate) -> str:
    return f"{one.choice} {one.place}"


def _bound(study: Study) -> float:
    """Return what clipping allows: C, or 2C where a record is replaced."""
    norm = study.config.training.clipping_norm
    return 2 * norm if study.config.privacy.neighbouring == "replace" else norm


def _root(course: npt.NDArray[np.float64]) -> float:
    return float(np.sqrt(np.mean(np.square(course))))


def _rms(name: str, one: Candidate, data: str) -> Number:
    """Return the root mean square of all steps, with its interval over trainings.

    data: whose authors' code printed the same number; "" for none.
    """
    squares = np.mean(np.square(one.course), axis=1)
    half = stats.t.ppf(0.5 + CONFIDENCE / 2, len(squares) - 1) * stats.sem(squares)
    low, high = max(0.0, squares.mean() - half), squares.mean() + half
    interval = float(np.sqrt(low)), float(np.sqrt(high))
    references: tuple[Reference, ...] = ()
    if data:
        value, decimals = RECORDED[data]
        digit = 0.5 * 10**-decimals
        references = (Reference(value, (value - digit, value + digit), "recorded"),)
    return Number(name, _root(one.course), interval, None, references)
