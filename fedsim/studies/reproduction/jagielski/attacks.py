"""Figure 2: membership inference, backdoor and ClipBKD against each other."""

import math

from fedsim.report.figures import canvas
from fedsim.studies.reproduction.findings.finding import Number, Picture, Reproduced
from fedsim.studies.reproduction.findings.item import Means
from fedsim.studies.reproduction.jagielski.setting import ATTACKS, Setting, Size
from fedsim.studies.reproduction.jagielski.table import MULTIPLIERS, ceiling
from fedsim.studies.reproduction.jagielski.trainings import Cell, Played, play

SIZES = {
    "logistic": Size(records=240, batch=10, trainings=200, copies=(1, 4), hidden=0, side=14),
    "two-layer": Size(records=240, batch=10, trainings=200, copies=(1, 4), side=14),
}
"""Shrunk until two cores make them in minutes; rate, steps and noise are the published ones."""

SMOKE = Size(records=60, batch=6, epochs=6, trainings=40, copies=(1, 4), hidden=8)

EPSILONS = (1.0, 4.0, 16.0, math.inf)

COLOURS = (canvas.BLUE, canvas.VERMILION, canvas.GREEN)


def compared(means: Means, network: str) -> Reproduced:
    """Return what each attack proves of a network, from one first model."""
    size = SMOKE if means.smoke else SIZES[network]
    epsilons = (math.inf,) if means.smoke else EPSILONS
    setting = Setting(means, size)
    found = {
        (attack, epsilon): play(means, setting, Cell("fixed", 1.0, MULTIPLIERS[epsilon], attack))
        for attack in ATTACKS
        for epsilon in epsilons
    }
    numbers = []
    for (attack, epsilon), played in found.items():
        best, (low, high) = played.best(paid=True), played.spread()
        name = f"{attack}, ε = {'∞' if math.isinf(epsilon) else f'{epsilon:g}'}"
        numbers.append(Number(name, best, (min(low, best), max(high, best))))
    return Reproduced(
        f"{_order(found, epsilons)} Not the published size: {size.records} records, batches of "
        f"{size.batch}, {size.trainings} trainings of a world, which prove "
        f"{ceiling(size.trainings):.2f} at most; rate, steps and noise, and with them ε of "
        "theory, are the published ones. All attacks start from one first model and see the "
        "released model alone; C = 1; best of k with 99 % for all k together.",
        tuple(numbers),
        (
            Picture(
                f"figure-2-{network}",
                "ε proven of one record against ε of theory, by attack.",
                _drawn(found, epsilons),
            ),
        ),
    )


Found = dict[tuple[str, float], Played]


def _order(found: Found, epsilons: tuple[float, ...]) -> str:
    """Return whether ClipBKD > backdoor > membership inference wherever anything is proven."""
    strong, middle, weak = ATTACKS
    held = {True: 0, False: 0}
    for epsilon in epsilons:
        bounds = [found[attack, epsilon].best(paid=True) for attack in (strong, middle, weak)]
        if max(bounds) > 0:
            held[bounds[0] >= bounds[1] >= bounds[2]] += 1
    total = sum(held.values())
    if not total:
        return "No attack proves anything in this size."
    return (
        f"The published order, {strong} before {middle} before {weak}, is seen at {held[True]} of "
        f"the {total} values of ε at which anything is proven."
    )


def _drawn(found: Found, epsilons: tuple[float, ...]) -> str:
    with canvas.page_style():
        figure, axes = canvas.new_axes()
        for attack, colour in zip(ATTACKS, COLOURS, strict=True):
            values = [found[attack, epsilon].best(paid=True) for epsilon in epsilons]
            axes.plot(range(len(epsilons)), values, marker="o", color=colour, label=attack)
        ticks = ["∞" if math.isinf(one) else f"{one:g}" for one in epsilons]
        axes.set_xticks(range(len(epsilons)), ticks)
        axes.set_xlabel("ε of theory")
        axes.set_ylabel("ε proven")
        canvas.legend_above(axes)
    return canvas.to_svg(figure)
