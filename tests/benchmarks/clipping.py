"""Per-example clipped gradients per second: fedsim, torch.func, Opacus and no privacy."""

import math
import statistics
import time
from contextlib import nullcontext, suppress
from textwrap import shorten

from contestants import CONTESTANTS, FEDSIM, OPACUS, PLAIN, game
from tables import Table

TRIALS = {"cpu": (1, 8, 64), "cuda": (1, 8, 64, 1000)}
TURN = 0.5
"""Seconds of a contestant's turn in a round, if a step does not take longer."""

PATIENCE = 20.0
"""Seconds that a step may take, by the time it took with fewer trials; else it is left out."""

AGREEMENT = 1e-4
"""Relative L2 distance of two contestants' sums: float32, and 1e-6 that Opacus adds to norms."""


NOTE = (
    "Medians of steps, in rounds that alternate between the contestants. fedsim and torch.func "
    "work on all T models at once, the others on one model after another. The contestants' clipped "
    "sums were compared before: their relative distance is below 1e-4."
)


def measure(smoke, where, networks):
    """Yield the times of every contestant, and fedsim's against the better mode of Opacus."""
    rows = []
    ratios = []
    for name, network in networks.items():
        check_agreement(game(network, 2, 2 if smoke else 4, where))
        per_trial = {}
        for trials in (2,) if smoke else TRIALS[where.type]:
            if trials > network.most_trials:
                continue
            played = game(network, trials, 2 if smoke else network.records, where)
            medians, remarks = seconds(played, 1 if smoke else 5, per_trial)
            per_trial |= {who: median / trials for who, median in medians.items()}
            shape = (name, len(played.labels), trials)
            for who in CONTESTANTS:
                median = medians.get(who)
                rate = trials * len(played.labels) / median if median else None
                rows.append((*shape, who, rate, _ratio(median, medians), remarks[who]))
            better = min(OPACUS, key=lambda who: medians.get(who, math.inf))
            if better in medians:
                ratios.append((*shape, better, _ratio(medians[better], medians)))
    title, size = "Per-example clipped gradients", ("network", "records", "T")
    columns = ("contestant", "gradients/s", "fedsim is faster by", "remark")
    yield Table(title, (*size, *columns), rows, NOTE)
    columns = ("the better mode", "fedsim is faster by")
    yield Table(f"{title}, against the better mode of Opacus", (*size, *columns), ratios)


def seconds(played, rounds, per_trial):
    """Return each contestant's median seconds for a step, and remarks.

    A contestant that does not run has a remark alone. per_trial: what is known of the seconds for
    one trial, from fewer trials.
    """
    entered = {}
    remarks = {}
    for who, enter in CONTESTANTS.items():
        estimate = per_trial.get(who, 0.0) * len(played.parameters)
        if estimate > PATIENCE:
            remarks[who] = f"left out: about {estimate:.0f} s"
            continue
        try:
            contestant = enter(played)
            contestant()
        except (NotImplementedError, RuntimeError) as error:
            remarks[who] = _first_line(error)
        else:
            entered[who] = contestant
            remarks[who] = contestant.remark
    taken = {who: [] for who in entered}
    for _ in range(rounds):
        for who, contestant in entered.items():
            taken[who] += turn(contestant, 0.0 if rounds == 1 else TURN)
    return {who: statistics.median(times) for who, times in taken.items()}, remarks


def turn(contestant, least):
    """Return the seconds of the steps that a contestant takes in at least so many seconds.

    Without the first if there are others: caches are cold then, and the threads of the contestant
    before may still be spinning.
    """
    times = []
    while not times or sum(times) < least:
        start = time.perf_counter()
        contestant()
        times.append(time.perf_counter() - start)
    return times[1:] or times


def check_agreement(played):
    """Raise RuntimeError unless all contestants that run compute the same clipped sums."""
    sums = {}
    for who, enter in CONTESTANTS.items():
        if who == PLAIN:
            continue
        # What Opacus cannot run is left out here as it is in the table.
        with suppress(NotImplementedError, RuntimeError) if who in OPACUS else nullcontext():
            sums[who] = enter(played)().double()
    first, *others = sums
    for who in others:
        distance = float((sums[who] - sums[first]).norm() / sums[first].norm())
        if not distance < AGREEMENT:
            raise RuntimeError(
                f"{who} and {first} differ by {distance:.1e} on {played.network.model}"
            )


def _first_line(error):
    return shorten(next(iter(str(error).splitlines()), type(error).__name__), 80)


def _ratio(median, medians):
    return median / medians[FEDSIM] if median and FEDSIM in medians else None
