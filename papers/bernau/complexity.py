"""Table 1 of the core paper: how the cost grows with records and steps, as measured exponents."""

import time
from collections.abc import Callable

import numpy as np
import torch
from scipy import stats
from torch import nn

from adversaries.neighbours import dataset_sensitivity
from adversaries.statistics import estimators
from fedsim.learning.training.clipping import Clipper
from fedsim.reports.figures import canvas
from papers.findings import CONFIDENCE, ItemPicture, Means, Number, Reference, Reproduced

REPEATED = 5
"""Number of time measurements; the shortest counts, since disturbances only add time."""

FEATURES, PIXELS = 64, 784
"""Numbers of a record for distances, and for gradients."""

Sizes = tuple[int, ...]


def exponents(means: Means) -> Reproduced:
    """Return Table 1: measured exponents of the running time."""
    records: Sizes = (200, 400, 800) if means.smoke else (2000, 4000, 8000, 16000)
    rounds: Sizes = (2, 4, 8) if means.smoke else (10, 20, 40, 80)
    worlds, log_odds = np.array([True, False]), np.array([0.3, -0.2])
    rows = (
        ("DS in n", 2.0, records, _sensitivity),
        ("β in n", 1.0, records, lambda n: _belief(n, 4)),
        ("β in k", 1.0, rounds, lambda k: _belief(records[0], k)),
        ("Adv in n", 0.0, records, lambda n: estimators.advantage(worlds, log_odds, CONFIDENCE)),
    )
    numbers, courses = [], {}
    for name, published, sizes, work in rows:
        means.say(f"timing {name}")
        seconds = [_shortest(work, size) for size in sizes]
        fitted = stats.linregress(np.log(sizes), np.log(seconds))
        half = float(stats.t.ppf(0.5 + CONFIDENCE / 2, len(sizes) - 2) * fitted.stderr)
        slope = float(fitted.slope)
        # An order O(n^a) is an upper bound: anything below it agrees.
        reference = Reference(published, (-np.inf, published))
        interval = (slope - half, slope + half)
        numbers.append(Number(f"exponent of {name}", slope, interval, None, [reference]))
        courses[name] = (sizes, seconds)
    return Reproduced(
        "Choosing the neighbouring dataset compares every two records. A belief needs a gradient "
        "of every record in every step. The decision costs nothing. Work that does not grow with "
        "the records (starting threads, cutting into blocks) keeps exponents a little low.",
        numbers,
        [
            ItemPicture(
                "table-1",
                "Running time against size, both on logarithmic axes: the slope is the exponent.",
                _drawn(courses),
            )
        ],
    )


def _sensitivity(records: int) -> None:
    features = torch.rand(records, FEATURES, generator=torch.Generator().manual_seed(1))
    dataset_sensitivity.select(features.numpy(), None, "manhattan", "add-remove")


def _belief(records: int, rounds: int) -> None:
    """Compute both hypotheses of a belief: the clipped sum of every step."""
    draw = torch.Generator().manual_seed(2)
    features = torch.rand(records, PIXELS, generator=draw)
    labels = torch.randint(10, (records,), generator=draw)
    model = nn.Linear(PIXELS, 10)
    theta = torch.cat([one.detach().flatten() for one in model.parameters()])[None]
    clipper = Clipper(model, 1.0)
    for _ in range(rounds):
        clipper.clipped_sum(theta, features, labels)


def _shortest(work: Callable[[int], object], size: int) -> float:
    """Return seconds of the fastest of a few calls, after one to warm up."""
    work(size)
    seconds = []
    for _ in range(REPEATED):
        begun = time.perf_counter()
        work(size)
        seconds.append(time.perf_counter() - begun)
    return min(seconds)


def _drawn(courses: dict[str, tuple[Sizes, list[float]]]) -> str:
    colours = (canvas.BLUE, canvas.VERMILION, canvas.GREEN, canvas.PURPLE)
    with canvas.panel("records, or steps", "seconds") as (figure, axes):
        for (name, (sizes, seconds)), colour in zip(courses.items(), colours, strict=True):
            axes.loglog(sizes, seconds, color=colour, marker="o", linewidth=2, label=name)
    return canvas.to_svg(figure)
