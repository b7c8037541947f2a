"""Figures 4 and 5 and Section 6.1 of the core paper: local sensitivity of chosen pairs."""

import numpy as np

from adversaries.arrays import Floats
from fedsim.configuration import Scalar
from fedsim.federation.server import plan
from fedsim.reports.figures import canvas, drawings
from fedsim.studies.sensitivity import sensitivity_study
from fedsim.studies.sensitivity.sensitivity_study import PairCandidate, Study
from papers.bernau.experiments import TITLES, configured
from papers.findings import ItemPicture, Means, Number, Reproduced, averaged

TRAININGS = {"smoke": 4, "full": 250}
TOP = {"smoke": 1, "full": 3}

WORDS = {"replace": "bounded", "add-remove": "unbounded"}


def followed(means: Means, data: str) -> Reproduced:
    """Return Figures 4 and 5 of a data set."""
    studies = {neighbouring: _study(means, data, neighbouring) for neighbouring in WORDS}
    bounded = studies["replace"]
    numbers = []
    for neighbouring, study in studies.items():
        for one in (*study.of("max"), *study.of("min")):
            name = f"{one.choice} {one.place}"
            numbers.append(_rms(f"RMS LS, {WORDS[neighbouring]}, {name}", one))
    highest, lowest = bounded.of("max")[0], bounded.of("min")[0]
    pairs = {
        name: {each.label: each.course for each in bounded.of(name)} for name in ("max", "min")
    }
    relations = {
        WORDS[name]: (study.of("max")[0].course, _bound(study)) for name, study in studies.items()
    }
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
                canvas.to_svg(drawings.by_pair(pairs, _bound(bounded)).figure),
            ),
            ItemPicture(
                f"figure-5-{data}",
                "Local sensitivity of the most dissimilar pair over the steps, against the global "
                "sensitivity, bounded and unbounded.",
                canvas.to_svg(drawings.over_training(relations).figure),
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
    return sensitivity_study.study(config, batch, top, trainings)


def _bound(study: Study) -> float:
    """Return the bound of clipping: C, or 2C if a record is replaced."""
    config = study.config
    norm = config.training.clipping_norm
    return 2 * norm if config.privacy.neighbouring == "replace" else norm


def _root(course: Floats) -> float:
    return float(np.sqrt(np.mean(np.square(course))))


def _rms(name: str, one: PairCandidate) -> Number:
    """Return the root mean square of all steps."""
    low, high = averaged("", np.mean(np.square(one.course), axis=1)).interval or (0.0, 0.0)
    interval = float(np.sqrt(max(0.0, low))), float(np.sqrt(high))
    return Number(name, _root(one.course), interval)
