"""The places of records in a sum that real noise protects: a record's content decides its place.

A kernel may round a row differently at another place in memory, and a hostile model makes that
rounding as large as a gradient. So a record's absence must move no other record. A hash of its
content gives each record one of `SLOTS` slots. Records with equal slots go to different groups, and
every group is computed alike (docs/explanation/training.md has the proof).
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Self

import numpy as np
import torch
from torch import Tensor

SLOTS = 16
"""Records in a group. A group of any array of 4-byte numbers, whatever its width, has a multiple of
64 bytes, so that all groups are aligned alike."""


WORDS = 2**20
"""Numbers that are hashed at once."""


@dataclass(frozen=True, eq=False)
class Contents:
    """What places need to know of records.

    Attributes:
        hashes: of each record's features and label, int64 [n].
        kinds: the same number for equal records alone, int64 [n].
    """

    hashes: Tensor
    kinds: Tensor
    _whole: dict[int, tuple[Tensor, Tensor]] = field(default_factory=dict, init=False, repr=False)

    @classmethod
    def of(cls, features: Tensor, labels: Tensor) -> Self:
        """Return the contents of records [n, *shape] and their labels [n].

        The hash is multilinear modulo 2^64 (Lemire and Kaser, arXiv:1202.4961). Its multipliers
        spread records and hide nothing. They are fixed: a round that is repeated has the same sum.
        """
        everyone = torch.arange(len(labels), device=labels.device)
        hashes = torch.cat([_hashes(*part) for part in _parts(features, labels, everyone)])
        order = hashes.argsort(stable=True)
        alike = hashes[order][1:] == hashes[order][:-1]
        first, second = order[:-1][alike], order[1:][alike]
        kinds = torch.unique(hashes, return_inverse=True)[1]
        pairs = _parts(features, labels, first), _parts(features, labels, second)
        if any(not torch.equal(_words(*a), _words(*b)) for a, b in zip(*pairs, strict=True)):
            # Different records with one hash: compare all that share one.
            shared = torch.unique(torch.cat([first, second]))
            words = _words(features[shared], labels[shared])
            kinds[shared] = len(kinds) + torch.unique(words, dim=0, return_inverse=True)[1]
        return cls(hashes, kinds)

    def whole(self, groups: int) -> tuple[Tensor, Tensor]:
        """Return `arranged` for one trial of all records, which is the same in every round."""
        if groups not in self._whole:
            everyone = torch.ones(1, len(self.hashes), dtype=torch.bool, device=self.hashes.device)
            self._whole[groups] = arranged(self, everyone, groups)
        return self._whole[groups]

    def at(self, positions: Tensor) -> Self:
        """Return the contents of the records at some positions, of any shape."""
        return type(self)(self.hashes[positions], self.kinds[positions])

    def slots(self) -> Tensor:
        """Return the slot of each record; for contents [T, n].

        The k-th of k equal records has the slot of its content and k, so that copies spread over
        the slots, which saves groups. Without one of them, the slot of k is empty.
        """
        kinds, order = self.kinds.sort(dim=1, stable=True)
        places = torch.arange(kinds.shape[1], device=kinds.device)
        copies = torch.empty_like(kinds)
        copies.scatter_(1, order, places - torch.searchsorted(kinds, kinds))
        # Two rounds of multiplication and shift: the low bits of a product depend on few bits.
        mixed = (self.hashes + 0x9E3779B97F4A7C1 * copies) * 0x2545F4914F6CDD1D
        return (((mixed ^ (mixed >> 32)) * 0x9E3779B97F4A7C1) >> 40) % SLOTS


Part = tuple[Tensor, Tensor]


def _parts(features: Tensor, labels: Tensor, at: Tensor) -> Iterator[Part]:
    """Yield the records at some positions in parts, which take little memory beside them."""
    step = max(1, WORDS // max(1, features[:1].numel()))
    for part in at.split(step):
        yield features[part], labels[part]


def _hashes(features: Tensor, labels: Tensor) -> Tensor:
    words = _words(features, labels)
    generator = np.random.Generator(np.random.Philox(key=0))
    multipliers = torch.from_numpy(generator.integers(-(2**63), 2**63, words.shape[1]))
    return (words * multipliers.to(words.device)).sum(1)


def _words(*values: Tensor) -> Tensor:
    """Return the bits of numbers [n, *shape] beside each other as integers, int64 [n, w]."""
    flat = [each[..., None].flatten(1) for each in values]
    kinds = {2: torch.int16, 4: torch.int32, 8: torch.int64}
    return torch.cat(
        [each.view(kinds.get(each.element_size(), each.dtype)).long() for each in flat], 1
    )


def in_front(present: Tensor, most: int) -> Tensor:
    """Return each trial's records that take part, [T, most], in order; others fill up a row.

    present: bool [T, n].
    most: the largest number of them in a trial.
    """
    # A stable sort moves them to the front and keeps their order.
    order = present.byte().sort(dim=1, descending=True, stable=True).indices
    return order[:, :most]


def arranged(contents: Contents, present: Tensor, groups: int) -> tuple[Tensor, Tensor]:
    """Return the record at each place, int64 [T, m], and whether one is there, bool [T, m].

    Place p has the records of slot p modulo `SLOTS`.

    contents: of n records.
    present: bool [T, n], the records that take part in each trial.
    groups: the number of groups is a multiple of it.
    """
    most = int(present.sum(1).max())
    records = in_front(present, most)
    absent = ~present.gather(1, records)
    chosen = contents.at(records)
    # Absent records are no copies of present ones.
    kinds = chosen.kinds.masked_fill(absent, -1)
    slots = Contents(chosen.hashes, kinds).slots().masked_fill(absent, SLOTS)
    slots, order = slots.sort(dim=1, stable=True)
    edges = torch.arange(SLOTS + 1, device=slots.device).repeat(len(slots), 1)
    first = torch.searchsorted(slots, edges)
    longest = int(first.diff(dim=1).max())
    places = SLOTS * groups * max(1, -(-longest // groups))
    group = torch.arange(most, device=slots.device) - first.gather(1, slots)
    # Absent records go to one more place behind the last.
    place = (SLOTS * group + slots).masked_fill(slots == SLOTS, places)
    at, filled = (records.new_zeros(len(records), places + 1) for _ in range(2))
    at.scatter_(1, place, records.gather(1, order))
    filled.scatter_(1, place, 1)
    return at[:, :-1], filled[:, :-1] > 0
