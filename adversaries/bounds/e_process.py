"""E-processes: evidence that is valid at every time, for any number of further observations.

An e-process against a hypothesis is a process E_t >= 0, E_0 = 1, at most a supermartingale under
every law in the hypothesis. By Ville's inequality it ever reaches 1/alpha with probability at most
alpha, whenever an auditor looks or stops. Averages are e-processes again, from which `closed`
accuses no true hypothesis with probability 1 - alpha (the closure principle). The limits of noise
in `adversaries.statistics.noise_limit` are e-processes.

Sources:
    Ville, "Étude critique de la notion de collectif", 1939; Ramdas, Grünwald, Vovk and Shafer,
    "Game-theoretic statistics and safe anytime-valid inference", 2023; Vovk and Wang, "E-values:
    calibration, combination and applications", 2021 (averages and their closure).
"""

import numpy as np

from adversaries.arrays import Floats


def closed(log_e: Floats) -> Floats:
    """Return log e-values [k] that hold for all hypotheses together.

    Each is the least average over the groups that contain the hypothesis. If at one time all values
    belong to e-processes on the same observations, the probability is at most alpha that any true
    hypothesis ever reaches log 1/alpha.

    log_e: float64 [k], at one time; 0 for a process that has not begun.
    Source:
        Vovk and Wang, 2021, Algorithm 2.
    """
    order = np.argsort(log_e)
    ascending = log_e[order]
    # sums[j]: log of the sum of the j smallest.
    sums = np.concatenate([[-np.inf], np.logaddexp.accumulate(ascending)])
    sizes = np.arange(1, log_e.size + 1)
    least = np.empty_like(log_e)
    for rank, value in enumerate(ascending):
        # Groups with j smaller values, for each j; then groups of the smallest values that have it.
        fewer = np.logaddexp(sums[: rank + 1], value) - np.log(sizes[: rank + 1])
        more = sums[rank + 1 :] - np.log(sizes[rank:])
        least[order[rank]] = min(fewer.min(), more.min())
    return least
