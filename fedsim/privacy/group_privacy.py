"""Privacy of k records together, for a challenge with k copies of its target.

Over full batches the steps are the Gaussian mechanism with the noise multiplier of one record
divided by k, and mu_k = k mu exactly (Dong, Roth and Su, "Gaussian differential privacy", 2022,
section 2.4).
"""

from dataclasses import replace

from adversaries.errors import InputError
from fedsim.privacy.releases import Releases


def of_group(releases: Releases, records: int) -> Releases:
    """Return the releases with the noise scaled to a group of records that are in or out together.

    Raises InputError for fewer than one record, and for sampled steps, with a coin for each record.
    """
    if records < 1:
        raise InputError(f"the group has {records} records; give at least 1")
    if records == 1:
        return releases
    if any(alike.sampling_rate < 1 for alike in releases.rounds):
        raise InputError(
            f"a group of {records} records is not accounted for under sampled steps, because each "
            "record is sampled by itself; give full batches, or a group of 1"
        )
    rounds = tuple(
        replace(alike, noise_multiplier=alike.noise_multiplier / records)
        for alike in releases.rounds
    )
    return replace(releases, rounds=rounds)
