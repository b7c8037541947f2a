"""An owner sums its own records, and nobody else's."""

from collections.abc import Callable

import numpy as np
import pytest
import torch

from fedsim import federation, models
from fedsim.config import Config
from fedsim.owner import challenge_gradients, clean_sum, noise

Make = Callable[..., Config]


def _federation(config: Config) -> tuple[federation.Federation, torch.Tensor]:
    known = federation.load(config)
    theta = models.initial_parameters(
        lambda: federation.build_model(config, known.split.dataset), 0, range(4)
    )
    return known, theta


@pytest.mark.parametrize("scheme", ["iid", "dirichlet"])
def test_the_owners_sums_add_up_to_the_sum_over_d(scheme: str, small: Make) -> None:
    known, theta = _federation(small({"federation.partition": scheme}))
    whole = known.clipper.clipped_sum(theta, *known.members(np.arange(24)))
    parts = torch.stack([clean_sum(known, owner, theta) for owner in range(3)])
    torch.testing.assert_close(parts.sum(0), whole, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("replacement", [None, 5])
def test_the_two_worlds_differ_by_the_challenge_and_nothing_else(
    replacement: int | None, small: Make
) -> None:
    known, theta = _federation(small({"privacy.neighbouring": "replace"} if replacement else {}))
    record = 7
    owner = int(known.owner_of[record])
    sums = [
        clean_sum(known, owner, theta, record, replacement, torch.full((4,), world))
        for world in (True, False)
    ]
    torch.testing.assert_close(sums[0], clean_sum(known, owner, theta), rtol=1e-5, atol=1e-6)
    present, absent = challenge_gradients(known, theta, record, replacement)
    torch.testing.assert_close(sums[0] - sums[1], present - absent, rtol=1e-5, atol=1e-6)
    assert bool((absent == 0).all()) == (replacement is None)


def test_each_trial_trains_on_its_own_world(small: Make) -> None:
    known, theta = _federation(small())
    theta[:] = theta[0]
    worlds = torch.tensor([True, False, True, False])
    sums = clean_sum(known, int(known.owner_of[7]), theta, 7, None, worlds)
    torch.testing.assert_close(sums[0], sums[2])
    torch.testing.assert_close(sums[1], sums[3])
    assert not torch.allclose(sums[0], sums[1])


def test_noise_has_the_standard_deviation_of_its_trial() -> None:
    std = torch.tensor([0.0, 2.0, 5.0], dtype=torch.float64)
    drawn = noise(0, range(3), 1, 0, std, 20_000)
    # The standard deviation of n normals is known to 1/sqrt(2n): 0.5 %, here 4 of them.
    torch.testing.assert_close(drawn.std(1), std, rtol=0.02, atol=0.0)
