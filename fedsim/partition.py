"""Which owner holds which record of D."""

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from fedsim.errors import InputError
from fedsim.registry import lookup

REDRAWS = 100
"""Draws before a partition that leaves an owner without a record is refused."""


def _iid(
    labels: npt.NDArray[np.int64], owners: int, alpha: float, generator: np.random.Generator
) -> npt.NDArray[np.int64]:
    """Deal the records like cards: sizes differ by at most one."""
    return generator.permutation(np.arange(len(labels)) % owners)


def _dirichlet(
    labels: npt.NDArray[np.int64], owners: int, alpha: float, generator: np.random.Generator
) -> npt.NDArray[np.int64]:
    """Draw each class's shares from Dirichlet(alpha), and its records' owners from those shares.

    Label skew: small alpha gives a class to few owners; as alpha grows, all owners get the same
    mix. Source: Yurochkin et al. (2019), Bayesian nonparametric federated learning, section 4.
    """
    classes, class_of = np.unique(labels, return_inverse=True)
    shares = generator.dirichlet(np.full(owners, alpha), size=len(classes))
    upper = shares.cumsum(axis=1)[:, :-1]
    above = generator.random((len(labels), 1)) >= upper[class_of]
    owner_of: npt.NDArray[np.int64] = above.sum(axis=1, dtype=np.int64)
    return owner_of


Scheme = Callable[[npt.NDArray[np.int64], int, float, np.random.Generator], npt.NDArray[np.int64]]
PARTITIONS: dict[str, Scheme] = {"iid": _iid, "dirichlet": _dirichlet}
"""Schemes by name: (labels [n], owners, alpha, generator) -> owner of each record [n]."""


def partition(
    labels: npt.NDArray[np.int64], owners: int, scheme: str, alpha: float, seed: int
) -> npt.NDArray[np.int64]:
    """Return the owner of each record, int64 [n] in 0..owners-1, from the seed alone.

    labels [n]; `alpha` is the concentration of `dirichlet`, which `iid` ignores. Every owner gets a
    record: a draw that leaves one without is repeated. Raises InputError if none of them will do.
    """
    draw_owners = lookup(PARTITIONS, scheme, "federation.partition")
    if not 1 <= owners <= len(labels):
        raise InputError(
            f"{len(labels)} records cannot give each of {owners} owners one; lower "
            "federation.owners or raise data.records"
        )
    if not alpha > 0:
        raise InputError(f"federation.dirichlet-alpha is {alpha}; give a number above 0")
    for draw in range(REDRAWS):
        # Hashed, and keyed by the draw: the split of the dataset uses the bare seed as its key.
        key = np.random.SeedSequence(seed, spawn_key=(draw,))
        generator = np.random.Generator(np.random.Philox(key))
        owner_of = draw_owners(labels, owners, alpha, generator)
        if len(np.unique(owner_of)) == owners:
            return owner_of
    raise InputError(
        f"with federation.dirichlet-alpha = {alpha}, {REDRAWS} draws left some of the {owners} "
        "owners without a record; raise it or data.records, or lower federation.owners"
    )
