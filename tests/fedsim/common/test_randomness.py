"""Every random number is a function of its path in the seed tree and of nothing else."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from fedsim.common.randomness import StreamRole, gaussian_noise, generator, key


@given(st.integers(0, 2**63), st.integers(0, 2**40), st.integers(1, 10**6), st.integers(-1, 1000))
def test_every_part_of_the_path_changes_the_key(seed, trial, round, partition):
    def stream(**changed):
        path = {"trial": trial, "round": round, "partition": partition} | changed
        return key(path.pop("seed", seed), StreamRole.NOISE, **path)

    keys = {
        stream(),
        stream(seed=seed + 1),
        stream(trial=trial + 1),
        stream(round=round + 1),
        stream(partition=partition + 1),
        key(seed, StreamRole.WORLD, trial=trial, round=round, partition=partition),
    }
    assert len(keys) == 6


def test_a_trials_noise_does_not_depend_on_the_trials_beside_it():
    together = gaussian_noise(7, range(10), 3, 1, 50)
    apart = np.concatenate(
        [gaussian_noise(7, range(4), 3, 1, 50), gaussian_noise(7, range(4, 10), 3, 1, 50)]
    )
    np.testing.assert_array_equal(together, apart)


def test_noise_is_standard_normal_and_independent_between_trials():
    noise = gaussian_noise(0, range(200), 1, 0, 1000)
    assert stats.kstest(noise.ravel(), "norm").pvalue > 1e-3
    correlation = np.corrcoef(noise)[np.triu_indices(200, 1)]
    # Under independence a correlation of 1000 pairs has standard deviation 1/sqrt(1000).
    assert abs(correlation.std() * np.sqrt(1000) - 1) < 0.05


def test_noise_from_the_operating_system_is_not_reproducible():
    assert not np.array_equal(
        gaussian_noise(None, range(2), 1, 0, 10), gaussian_noise(None, range(2), 1, 0, 10)
    )


def test_the_tree_is_stable_between_releases():
    assert key(0, StreamRole.WORLD) == 18941130794418219926919687425931478448
    first = generator(1, StreamRole.NOISE, trial=2, round=3, partition=4).standard_normal()
    assert first == -1.2445253934785678
