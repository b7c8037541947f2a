"""The privacy of k records together, where a challenge has k copies of its target.

k clipped gradients move a sum k times as far as one, under the same noise: over full batches the
steps are the Gaussian mechanism whose noise multiplier is that of one record over k, mu_k = k mu
exactly (Dong, Roth and Su, "Gaussian differential privacy", 2022, section 2.4). That is tighter
than any conversion of a single (epsilon, delta).
"""

from dataclasses import replace

from adversaries.errors import InputError
from fedsim.privacy.releases import Releases


def of_group(releases: Releases, records: int) -> Releases:
    """Return what stands between a vantage point and records that differ together.

    records: how many, at least 1.
    Raises InputError for fewer than one; for sampled steps, in which each of the records has a coin
    of its own and the group's loss is no Gaussian mechanism's.
    """
    if records < 1:
        raise InputError(f"the group has {records} records; give at least 1")
    if records == 1:
        return releases
    if any(alike.sampling_rate < 1 for alike in releases.rounds):
        raise InputError(
            f"a group of {records} records under sampled steps is not accounted for: each of them "
            "is sampled by itself; give full batches, or a group of 1"
        )
    rounds = tuple(
        replace(alike, noise_multiplier=alike.noise_multiplier / records)
        for alike in releases.rounds
    )
    return replace(releases, rounds=rounds)
