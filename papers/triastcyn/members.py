"""Figure 2: pairwise gradient distances of records that were trained on, and of others."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from scipy import stats

from adversaries.arrays import Floats
from fedsim.configuration import Scalar
from fedsim.game import federation
from fedsim.reports.figures import canvas
from papers.findings import ItemPicture, Means, Number, Reproduced
from papers.triastcyn import trainings

HELD_OUT: Mapping[str, Scalar] = {"data.held-out": 2_000}

UNCLIPPED = 1e12
"""A clipping norm that no gradient reaches."""

PAIRS = {"smoke": 90, "full": 1000}
"""Disjoint pairs of each kind: pairs that share a record are not independent."""

LEVEL = 0.05


@dataclass(frozen=True)
class Regime:
    """The length of a training, and whether it has the noise of `trainings.EPSILON`."""

    title: str
    changes: Mapping[str, Scalar]
    noisy: bool = False


ADAM: Mapping[str, Scalar] = {
    "training.optimizer": "adam",
    "training.learning-rate": 0.003,
    "training.clipping-norm": UNCLIPPED,
}

REGIMES = (
    Regime("DP-SGD", {"training.learning-rate": 2.0, "training.clipping-norm": 1.0}, noisy=True),
    Regime(
        "five passes",
        {**ADAM, "data.records": 10_000, "training.rounds": 200, "training.sampling-rate": 0.0256},
    ),
    Regime(
        "150 passes",
        {**ADAM, "data.records": 2_000, "training.rounds": 600, "training.sampling-rate": 0.256},
    ),
)
"""DP-SGD of Table 1; five passes over many records; few records until they are memorised."""


@dataclass(frozen=True)
class Distances:
    """Distances of pairs at every model, float64 [T, pairs]."""

    members: Floats
    others: Floats


def compared(means: Means) -> Reproduced:
    """Return the tests and histograms of both distributions, after little and long training."""
    distances = {}
    for regime in REGIMES:
        means.say(f"trains: {regime.title}")
        distances[regime.title] = _distances(means, regime)
    numbers = [one for name, of in distances.items() for one in _numbers(name, of)]
    results = [f"{name}, {_verdict(*p_values(of))}" for name, of in distances.items()]
    return Reproduced(
        "Welch's t-test and Levene's test compare the distances of members and of held-out "
        f"records. One kind of training is DP-SGD at ε = {trainings.EPSILON:g} on 20 000 records. "
        "Two others have no noise: five passes over 10 000 records, and 150 passes over 2000, "
        f"which the model then knows by heart. {'. '.join(results)}. The trainings share their "
        "records, so their p-values are not independent. Whether a difference is found depends "
        "on how much a model has memorised. The source's statement is about its own model. With "
        f"{PAIRS[means.scale]} pairs, it does not bound the leakage.",
        numbers,
        [_picture(name, of) for name, of in distances.items()],
    )


def p_values(distances: Distances) -> tuple[Floats, Floats]:
    """Return p of Welch's t-test and of Levene's test at every model, each [T]."""
    means = stats.ttest_ind(distances.members, distances.others, axis=1, equal_var=False)
    spreads = stats.levene(distances.members, distances.others, axis=1)
    return np.asarray(means.pvalue), np.asarray(spreads.pvalue)


def _distances(means: Means, regime: Regime) -> Distances:
    config = trainings.configured(means, {**HELD_OUT, **regime.changes})
    rounds, rate = config.training.rounds, config.training.sampling_rate
    noise = trainings.multiplier(rounds, rate) if regime.noisy else 0.0
    theta = trainings.trained(config, federation.load(config), noise)
    # Distances are of gradients as they are, also where training clips them.
    free = {**HELD_OUT, **regime.changes, "training.clipping-norm": UNCLIPPED}
    loaded = federation.load(trainings.configured(means, free))
    pairs = PAIRS[means.scale]
    groups = torch.arange(2 * pairs, device=loaded.device).reshape(pairs, 2)
    some = np.arange(2 * pairs)
    members, labels = loaded.members(some)
    features, targets = loaded.held_out()
    measured = [
        loaded.clipper.clipped_distances(theta, *records, groups).cpu().numpy()
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
    low = int(((equal < LEVEL) | (spread < LEVEL)).sum())
    spans = " and ".join(f"{one.min():.2g} to {one.max():.2g}" for one in (equal, spread))
    if low == 0:
        return f"p {spans}: no difference is found, as published"
    return f"p {spans}: they differ in {low} of {len(equal)} trainings, unlike the published result"


def _picture(name: str, distances: Distances) -> ItemPicture:
    most = float(np.quantile(np.concatenate([distances.members, distances.others]), 0.99))
    bins = np.linspace(0, most, 41).tolist()
    with canvas.panel("distance of two gradients", "pairs") as (figure, axes):
        for values, colour, label in (
            (distances.members, canvas.BLUE, "trained on"),
            (distances.others, canvas.VERMILION, "held out"),
        ):
            axes.hist(
                values.ravel(), bins=bins, histtype="step", color=colour, linewidth=2, label=label
            )
    return ItemPicture(
        f"figure-2-{name.lower().replace(' ', '-')}",
        f"Distances of the gradients of two records after {name}, all trainings; the longest "
        "hundredth is not shown.",
        canvas.to_svg(figure),
    )
