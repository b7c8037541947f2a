"""Table 2 and Figure 2: lower bounds by ClipBKD and other attacks, by the epsilon of theory."""

import math
from collections.abc import Mapping, Sequence

from fedsim.reports.figures import canvas
from papers.findings import ItemPicture, Means, Number, Reference, Reproduced
from papers.jagielski.setting import (
    ATTACKS,
    CONFIDENCE,
    INITIALISATIONS,
    JagielskiCell,
    JagielskiSetting,
    PoisonedScores,
    Size,
    play,
)

MULTIPLIERS = {1.0: 5.02, 2.0: 2.68, 4.0: 1.55, 8.0: 1.01, 16.0: 0.73, math.inf: 0.0}
"""Published noise multipliers, by the epsilon of theory."""

NORMS = (0.5, 1.0, 2.0)

PRINTED: Mapping[tuple[str, float], tuple[float, float, float]] = {
    ("fixed", 1.0): (0.13, 0.15, 0.13),
    ("fixed", 2.0): (0.33, 0.37, 0.28),
    ("fixed", 4.0): (0.89, 0.75, 0.71),
    ("fixed", 8.0): (1.61, 1.85, 1.90),
    ("fixed", 16.0): (2.15, 2.16, 2.43),
    ("fixed", math.inf): (4.54, 4.54, 4.54),
    ("half", 1.0): (0.13, 0.17, 0.13),
    ("half", 2.0): (0.27, 0.33, 0.39),
    ("half", 4.0): (0.28, 0.52, 0.78),
    ("half", 8.0): (0.33, 0.55, 1.27),
    ("half", 16.0): (0.36, 0.80, 1.39),
    ("half", math.inf): (0.29, 0.95, 2.36),
    ("glorot", 1.0): (0.06, 0.12, 0.09),
    ("glorot", 2.0): (0.10, 0.17, 0.27),
    ("glorot", 4.0): (0.08, 0.20, 0.54),
    ("glorot", 8.0): (0.07, 0.25, 0.53),
    ("glorot", 16.0): (0.13, 0.27, 0.72),
    ("glorot", math.inf): (0.10, 0.42, 0.79),
    ("double", 1.0): (0.01, 0.06, 0.08),
    ("double", 2.0): (0.01, 0.06, 0.17),
    ("double", 4.0): (0.02, 0.10, 0.18),
    ("double", 8.0): (0.01, 0.05, 0.20),
    ("double", 16.0): (0.02, 0.08, 0.16),
    ("double", math.inf): (0.03, 0.09, 0.27),
}
"""Published largest bound over k, each at 99 %, for C = 0.5, 1 and 2."""

SMALL = Size(records=240, batch=10, trainings=200, copies=(1, 4), side=14)
"""The published sampling rate and number of steps, hence its epsilon, for what minutes allow."""

SMOKE = Size(records=60, batch=6, epochs=6, trainings=40, copies=(1, 4), hidden=8)

WORDS = {
    "fixed": "one first model",
    "half": "first weights of .5 σ",
    "glorot": "first weights of σ",
    "double": "first weights of 2 σ",
}


def published(means: Means, initialisation: str) -> Reproduced:
    """Return a column of Table 2 in its published size."""
    size = SMOKE if means.smoke else Size()
    epsilons = (4.0, math.inf) if means.smoke else tuple(MULTIPLIERS)
    norms = (1.0,) if means.smoke else NORMS
    played_by = _play(means, size, (initialisation,), norms, epsilons)
    numbers: list[Number] = []
    for (_, norm, epsilon), played in played_by.items():
        printed = PRINTED[initialisation, epsilon][NORMS.index(norm)]
        numbers += _numbers(_name(initialisation, norm, epsilon), played, printed, size)
    return Reproduced(
        f"{WORDS[initialisation].capitalize()}: {_ceiling(size)} {_honest(played_by)}",
        numbers,
        [_picture(f"table-2-{initialisation}", played_by)],
    )


def small(means: Means) -> Reproduced:
    """Return Table 2 at one clipping norm, shrunk until two cores make it in minutes."""
    size = SMOKE if means.smoke else SMALL
    epsilons = (math.inf,) if means.smoke else (1.0, 4.0, 16.0, math.inf)
    played_by = _play(means, size, tuple(INITIALISATIONS), (1.0,), epsilons)
    numbers = [
        number
        for (initialisation, norm, epsilon), played in played_by.items()
        for number in _numbers(
            _name(initialisation, norm, epsilon),
            played,
            PRINTED[initialisation, epsilon][NORMS.index(norm)],
            size,
        )
    ]
    best = {
        key[0]: played.best(paid=False) for key, played in played_by.items() if key[2] == math.inf
    }
    order = sorted(best, key=lambda name: -best[name])
    return Reproduced(
        f"Not the published size: {size.records} records, batches of {size.batch}, images of "
        f"{size.side or 8} × {size.side or 8}, {size.trainings} trainings per world. Rate, steps "
        "and noise, and thus the ε of theory, are those of the table. Without noise, the bound "
        f"falls in the order {', '.join(WORDS[name] for name in order)}. So the randomness of the "
        f"first model hides the poison, as published. {_ceiling(size)} {_honest(played_by)}",
        numbers,
        [_picture("table-2-small", played_by)],
    )


Key = tuple[str, float, float]


def _play(
    means: Means,
    size: Size,
    initialisations: tuple[str, ...],
    norms: tuple[float, ...],
    epsilons: tuple[float, ...],
) -> dict[Key, PoisonedScores]:
    setting = JagielskiSetting(means, size)
    return {
        (initialisation, norm, epsilon): play(
            means, setting, JagielskiCell(initialisation, norm, MULTIPLIERS[epsilon])
        )
        for initialisation in initialisations
        for epsilon in epsilons
        for norm in norms
    }


def _numbers(name: str, played: PoisonedScores, printed: float, size: Size) -> list[Number]:
    best, (low, high) = played.best(paid=False), played.spread()
    smaller = ""
    if size.trainings < Size().trainings:
        smaller = (
            f"{size.trainings} trainings prove at most {ceiling(size.trainings):.2f}, the data "
            f"have {size.records} records instead of {Size().records}, "
        )
    # The source's number varies with its trainings as ours does.
    half = max(0.005, (high - low) / 2)
    reference = Reference(printed, (printed - half, printed + half), sampled=True)
    return [
        Number(
            f"{name}: best of k",
            best,
            (min(low, best), max(high, best)),
            references=[reference],
            departs=f"batches here are Poisson samples, {smaller}and the two classes and the "
            "poison's direction are our choice",
        ),
        Number(f"{name}: best of k, with {CONFIDENCE:.0%} for all", played.best(paid=True)),
        Number(f"{name}: accuracy", played.accuracy),
    ]


def _name(initialisation: str, norm: float, epsilon: float) -> str:
    return f"{WORDS[initialisation]}, ε = {_epsilon(epsilon)}, C = {norm:g}"


def _epsilon(epsilon: float) -> str:
    return "∞" if math.isinf(epsilon) else f"{epsilon:g}"


def ceiling(trainings: int) -> float:
    """Return the largest lower bound that this many trainings can prove, at delta = 0 and k = 1.

    Half of them judge; their rates are 1 and 0 at best: ln((1 - a)/a), a = 1 - .005^(1/n).
    """
    judging = trainings // 2
    missed = -math.expm1(math.log((1 - CONFIDENCE) / 2) / judging)
    return math.log((1 - missed) / missed)


def _ceiling(size: Size) -> str:
    return (
        f"{size.trainings} trainings per world can prove at most {ceiling(size.trainings):.2f} "
        "(published: 4.54, from 1000)."
    )


def _honest(played_by: dict[Key, PoisonedScores]) -> str:
    above = [key for key, played in played_by.items() if played.best(paid=True) > key[2]]
    if above:
        return (
            f"In {len(above)} cells, the bound is above the ε of theory: it refutes theory, or it "
            "is wrong."
        )
    return "No bound is above the ε of theory, so that the bounds do not contradict the accounting."


def _picture(name: str, played_by: dict[Key, PoisonedScores]) -> ItemPicture:
    epsilons = list(dict.fromkeys(epsilon for _, _, epsilon in played_by))
    curves: dict[str, list[float]] = {}
    for (initialisation, norm, _), played in played_by.items():
        label = f"{WORDS[initialisation]}, C = {norm:g}"
        curves.setdefault(label, []).append(played.best(paid=False))
    caption = "ε of one record that ClipBKD proves at 99 %, best of k, against the ε of theory."
    return ItemPicture(name, caption, _drawn(epsilons, curves))


def _drawn(epsilons: Sequence[float], curves: Mapping[str, list[float]]) -> str:
    with canvas.panel("ε of theory", "ε proven") as (figure, axes):
        canvas.draw_curves(axes, range(len(epsilons)), curves, marker="o")
        axes.set_xticks(range(len(epsilons)), list(map(_epsilon, epsilons)))
    return canvas.to_svg(figure)


ATTACK_SIZES = {
    "logistic": Size(records=240, batch=10, trainings=200, copies=(1, 4), hidden=0, side=14),
    "two-layer": Size(records=240, batch=10, trainings=200, copies=(1, 4), side=14),
}
"""Sizes for minutes on two cores; rate, steps and noise are the published ones."""

EPSILONS = (1.0, 4.0, 16.0, math.inf)


def compared(means: Means, network: str) -> Reproduced:
    """Return the lower bounds of each attack on a network, from one first model."""
    size = SMOKE if means.smoke else ATTACK_SIZES[network]
    epsilons = (math.inf,) if means.smoke else EPSILONS
    setting = JagielskiSetting(means, size)
    played_by = {
        (attack, epsilon): play(
            means, setting, JagielskiCell("fixed", 1.0, MULTIPLIERS[epsilon], attack)
        )
        for attack in ATTACKS
        for epsilon in epsilons
    }
    numbers, curves = [], dict[str, list[float]]()
    for (attack, epsilon), played in played_by.items():
        best, (low, high) = played.best(paid=True), played.spread()
        name = f"{attack}, ε = {_epsilon(epsilon)}"
        numbers.append(Number(name, best, (min(low, best), max(high, best))))
        curves.setdefault(attack, []).append(best)
    return Reproduced(
        f"{_order(curves)} Not the published size: {size.records} records, batches of "
        f"{size.batch}, {size.trainings} trainings per world, which can prove at most "
        f"{ceiling(size.trainings):.2f}. Rate, steps and noise, and thus the ε of theory, are the "
        "published ones. All attacks start from one first model and see only the released model. "
        "C = 1. Each number is the best over group sizes k. The confidence is 99 % for all k "
        "together.",
        numbers,
        [
            ItemPicture(
                f"figure-2-{network}",
                "ε of one record that each attack proves, against the ε of theory.",
                _drawn(epsilons, curves),
            )
        ],
    )


def _order(bounds: Mapping[str, list[float]]) -> str:
    """Return whether ClipBKD > backdoor > membership inference for all positive bounds."""
    proven = [each for each in zip(*bounds.values(), strict=True) if max(each) > 0]
    if not proven:
        return "No attack proves anything at this size."
    held = sum(strong >= middle >= weak for strong, middle, weak in proven)
    return (
        f"The published order, {' before '.join(ATTACKS)}, holds at {held} of the {len(proven)} "
        "values of ε at which an attack proves anything."
    )
