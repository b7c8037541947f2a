"""Figure 2: pairwise gradient distances of records that were trained on, and of others."""

from dataclasses import dataclass

import numpy as np
import torch
from scipy import stats

from fedsim.config import Scalar
from fedsim.figures import canvas
from fedsim.figures.canvas import Floats
from fedsim.game import federation
from fedsim.reproduction.findings.finding import Finding, Number, Picture
from fedsim.reproduction.findings.item import Means
from fedsim.reproduction.triastcyn import trainings

UNCLIPPED = 1e12
"""A clipping norm that no gradient reaches."""

PAIRS = {"smoke": 90, "full": 500}
"""Disjoint pairs of each kind: pairs that share a record are not independent."""

USUAL: dict[str, Scalar] = {
    "data.records": 10_000,
    "training.rounds": 200,
    "training.sampling-rate": 0.0256,
}
MEMORISED: dict[str, Scalar] = {
    "data.records": 1_000,
    "training.rounds": 600,
    "training.sampling-rate": 0.256,
}
"""Five passes over many records; and 150 over few, until they are known by heart."""


@dataclass(frozen=True)
class Distances:
    """Distances of pairs at every model, float64 [T, pairs].

    Attributes:
        members: of records that were trained on.
        others: of held-out records.
    """

    members: Floats
    others: Floats


def compared(means: Means) -> Finding:
    """Return the tests and histograms of both distributions, after little and long training.

    Args:
        means: its scale and data.

    Raises:
        InputError: the data are not there.
    """
    found = {}
    for name, changes in (("five passes", USUAL), ("150 passes", MEMORISED)):
        means.say(f"trains for {name}")
        found[name] = _distances(means, changes)
    numbers = tuple(one for name, of in found.items() for one in _numbers(name, of))
    usual, long = (p_values(one) for one in found.values())
    return Finding(
        f"After five passes over 10 000 records the t-test's p is between {usual[0].min():.2g} and "
        f"{usual[0].max():.2g} over the trainings and Levene's between {usual[1].min():.2g} and "
        f"{usual[1].max():.2g}: {_verdict(*usual)}. After 150 passes over 1000 records, which are "
        f"then known by heart, p is at most {long[0].max():.2g} and {long[1].max():.2g}: "
        f"{_verdict(*long)}. That no difference is found is a matter of how little a model has "
        f"memorised, and of {PAIRS[means.scale]} pairs; it bounds no leakage.",
        numbers,
        tuple(_picture(name, of) for name, of in found.items()),
    )


def p_values(distances: Distances) -> tuple[Floats, Floats]:
    """Return p of Welch's t-test and of Levene's test at every model, each [T].

    Args:
        distances: of both kinds.
    """
    means = stats.ttest_ind(distances.members, distances.others, axis=1, equal_var=False)
    spreads = stats.levene(distances.members, distances.others, axis=1)
    return np.asarray(means.pvalue), np.asarray(spreads.pvalue)


def _distances(means: Means, changes: dict[str, Scalar]) -> Distances:
    config = trainings.configured(
        means,
        "mnist",
        {
            "training.optimizer": "adam",
            "training.learning-rate": 0.003,
            "training.clipping-norm": UNCLIPPED,
            "data.held-out": 1_000,
            **changes,
        },
    )
    known = federation.load(config)
    theta = trainings.noiseless(config, known)
    pairs, trials = PAIRS[means.scale], config.trials.count
    groups = torch.arange(2 * pairs, device=known.device).reshape(1, pairs, 2)
    groups = groups.expand(trials, -1, -1)
    some = np.arange(2 * pairs)
    members, labels = known.members(some)
    features, targets = known.held_out()
    measured = [
        known.clipper.clipped_distances(theta, *records, groups).cpu().numpy()
        for records in ((members, labels), (features[: 2 * pairs], targets[: 2 * pairs]))
    ]
    return Distances(*measured)


def _numbers(name: str, distances: Distances) -> list[Number]:
    equal, spread = p_values(distances)
    return [
        Number(f"{name}: mean distance, trained on", float(distances.members.mean())),
        Number(f"{name}: mean distance, held out", float(distances.others.mean())),
        Number(f"{name}: p of Welch's t-test, median of trainings", float(np.median(equal))),
        Number(f"{name}: p of Levene's test, median of trainings", float(np.median(spread))),
    ]


def _verdict(equal: Floats, spread: Floats) -> str:
    low = int(((equal < 0.05) | (spread < 0.05)).sum())
    if low == 0:
        return "nearly alike, as published"
    if low == len(equal):
        return "they differ in every training, against what is published"
    return f"they differ in {low} of {len(equal)} trainings, against what is published"


def _picture(name: str, distances: Distances) -> Picture:
    most = float(np.quantile(np.concatenate([distances.members, distances.others]), 0.99))
    bins = np.linspace(0, most, 41).tolist()
    with canvas.page_style():
        figure, axes = canvas.new_axes()
        for values, colour, label in (
            (distances.members, canvas.BLUE, "trained on"),
            (distances.others, canvas.VERMILION, "held out"),
        ):
            axes.hist(
                values.ravel(), bins=bins, histtype="step", color=colour, linewidth=2, label=label
            )
        axes.set_xlabel("distance of two gradients")
        axes.set_ylabel("pairs")
        canvas.legend_above(axes)
    return Picture(
        f"figure-2-{name.replace(' ', '-')}",
        f"Distances of the gradients of two records after {name}, all trainings; the longest "
        "hundredth is not shown.",
        canvas.to_svg(figure),
    )
