"""What theory makes of a loop, and what it rests on."""

import math

import numpy as np
from scipy.stats import norm

from adversaries.statistics import gaussian


def test_an_epoch_of_shuffled_batches_is_as_private_as_one_release_of_the_bound():
    """Five records of -1 and 1 in batches of three and two, of three and one without the target.

    The target moves a sum by one; a record of the last batch takes its place in the first. The loss
    is integrated on a grid, over both places that the shuffle may give the target.
    """
    std = 1.5
    grid = np.arange(-16, 12, 0.04)
    first, last = np.meshgrid(grid, grid, indexing="ij")

    def density(*sums):
        return norm.pdf(first, sums[0], std) * norm.pdf(last, sums[1], std)

    others = -1.0
    present = 3 / 5 * density(2 * others + 1, 2 * others) + 2 / 5 * density(3 * others, others + 1)
    absent = density(3 * others, others)
    mu = math.sqrt(5) / std
    for epsilon in (0.0, 0.5, 1.0, 2.0):
        for one, other in ((present, absent), (absent, present)):
            delta = float(np.maximum(one - math.exp(epsilon) * other, 0).sum() * 0.04**2)
            assert delta + (epsilon > 0.5) > 0.01
            assert delta <= gaussian.delta(mu, epsilon) + 1e-6
