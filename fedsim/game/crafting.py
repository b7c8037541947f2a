"""What is put into D to be noticed: poisoned records, and a gradient that no record has.

A function of the configuration, the records of D and the first model, so that everybody who forms
D forms the same. The record of D whose place it takes is given, or drawn from the data's seed.
Sources: Jagielski, Ullman and Oprea, 2020 (backdoor, ClipBKD); Nasr et al., "Adversary
instantiation: lower bounds for differentially private machine learning", 2021 (mislabelled, and
the Dirac canary in gradient space); Nasr et al., "Tight auditing of differentially private machine
learning", 2023 (blank).
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import cached_property

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from adversaries.attacks.poisoning import clipbkd_point, least_liked
from adversaries.errors import InputError
from adversaries.registry import lookup
from fedsim.common.randomness import Role, generator
from fedsim.config.challenge import ChallengeConfig
from fedsim.config.objects import GameRules
from fedsim.learning.data import Records, Split
from fedsim.privacy.mechanism import Neighbouring

Image = npt.NDArray[np.float32]
Logits = Callable[[Image], npt.NDArray[np.float64]]
"""Features of one record -> logits [c] of the first model."""

STAMP = 0.2
"""The side of a backdoor's square, as a share of the image's: 5 of 28 pixels."""

COLUMNS = 0.1
"""The share of a table's features that a backdoor sets."""

PATTERN, PLACE, TOWARDS, DIRECTION = range(4)
"""Rounds of the seed tree: what is drawn with a random stream of the role."""


@dataclass(frozen=True, eq=False)
class Crafted:
    """What takes the place of a record of D: another record, or a gradient.

    Attributes:
        record: the position in D whose place it takes.
        features: float32 [*shape] of a record, None of a gradient.
        label: of a record, None of a gradient.
        direction: of a gradient, a unit vector float64 [P] that the sum gets C times where it would
            get the record's clipped gradient; None of a record.
        opposed: whether the sum gets -C times the direction under D', and not nothing.
    """

    record: int
    features: Image | None = None
    label: int | None = None
    direction: Tensor | None = None
    opposed: bool = False


@dataclass(frozen=True, eq=False)
class Planted(Split):
    """A split whose member at one position was replaced by a crafted record.

    `members` still says whose place it takes.

    Attributes:
        crafted: the record and its position.
    """

    crafted: Crafted

    @classmethod
    def of(cls, split: Split, crafted: Crafted, replaced: bool) -> "Planted":
        """Return a split with a crafted record in it.

        replaced: whether D' has the original, which is then at the end of the pool.
        """
        inherited = {field.name: getattr(split, field.name) for field in fields(Split)}
        if replaced:
            original = split.members[[crafted.record]]
            inherited["pool"] = np.concatenate([split.pool, original])
        return cls(**inherited, crafted=crafted)

    @cached_property
    def members_records(self) -> Records:
        """The records of D, with the crafted one, in the order of `members`."""
        original = self.dataset.train.take(self.members)
        features, labels = original.features.copy(), original.labels.copy()
        assert self.crafted.features is not None
        assert self.crafted.label is not None
        features[self.crafted.record] = self.crafted.features
        labels[self.crafted.record] = self.crafted.label
        return Records(features, labels)


def place(
    challenge: ChallengeConfig, adversary: int, data_seed: int, client_of: npt.NDArray[np.int64]
) -> int:
    """Return the position in D of the record that makes room.

    challenge.record, or one drawn from the records of challenge.client, or else of all clients but
    the configured adversary, who would know its own.

    client_of: int64 [n], the client of each record of D.
    """
    if challenge.record >= 0:
        return challenge.record
    among = np.flatnonzero(
        client_of == challenge.client if challenge.client >= 0 else client_of != adversary
    )
    return int(_stream(data_seed, PLACE).choice(among))


def craft(rules: GameRules, split: Split, record: int, logits: Logits) -> Crafted:
    """Return the crafted record that takes the place of one of D.

    Its label is challenge.label, or what the first model likes least: the class other than that of
    the record that makes room where its features are that record's, any class otherwise.

    logits: the first model's, for features of one record.
    Raises InputError if there is no such kind or class, or the record has that label already.
    """
    kind, classes = rules.challenge.kind, split.dataset.classes
    features = lookup(KINDS, kind, "challenge.kind")(rules, split, record)
    own = int(split.members_records.labels[record])
    label = rules.challenge.label
    if label >= classes:
        raise InputError(f"challenge.label is {label}, but the labels of D are 0 to {classes - 1}")
    if label < 0:
        label = least_liked(logits(features), own if kind in RELABELLED else None)
    elif label == own and kind in RELABELLED:
        raise InputError(
            f"challenge.label is {label}, which is the label that record {record} of D has "
            f"already; give another for a {kind} record"
        )
    return Crafted(record, features, label)


def direction(
    coordinate: int, neighbouring: Neighbouring, data_seed: int, record: int, parameters: int
) -> Crafted:
    """Return a gradient that takes the place of a record's: a coordinate or a random direction.

    The same in all trials and rounds.

    neighbouring: whether that record or client is missing, or replaced by another.
    Raises InputError if the model has no such coordinate.
    """
    if coordinate >= parameters:
        raise InputError(
            f"challenge.coordinate is {coordinate}, but the model has parameters 0 to "
            f"{parameters - 1}"
        )
    if coordinate >= 0:
        unit = torch.zeros(parameters, dtype=torch.float64)
        unit[coordinate] = 1.0
    else:
        unit = torch.from_numpy(_stream(data_seed, DIRECTION).standard_normal(parameters))
        unit /= unit.norm()
    return Crafted(record, direction=unit, opposed=neighbouring is Neighbouring.REPLACE)


def _stream(data_seed: int, what: int) -> np.random.Generator:
    return generator(data_seed, Role.CRAFTED, round=what)


def _backdoor(rules: GameRules, split: Split, record: int) -> Image:
    """Return the record with a pattern: the brightest square in a corner, or a table's columns.

    Of a table, a tenth of the features, drawn from the seed, have their largest value in D.
    """
    members = split.members_records.features
    crafted = members[record].copy()
    if split.dataset.kind == "image":
        height, width = (math.ceil(STAMP * side - 1e-9) for side in crafted.shape[-2:])
        crafted[..., :height, :width] = members.max()
        return crafted
    columns = _stream(rules.data_seed, PATTERN).choice(
        crafted.size, max(1, round(COLUMNS * crafted.size)), replace=False
    )
    crafted.reshape(-1)[columns] = members.reshape(len(members), -1)[:, columns].max(axis=0)
    return crafted


def _clipbkd(rules: GameRules, split: Split, record: int) -> Image:
    """Return m V_d of the records of D as they were, m their mean norm (Algorithm 4)."""
    members = split.members_records.features
    rows = members.reshape(len(members), -1)
    towards = _stream(rules.data_seed, TOWARDS).standard_normal(rows.shape[1])
    point = clipbkd_point(rows, towards)
    return point.reshape(members.shape[1:]).astype(np.float32)


KINDS: dict[str, Callable[[GameRules, Split, int], Image]] = {
    "backdoor": _backdoor,
    "clipbkd": _clipbkd,
    "mislabelled": lambda rules, split, record: split.members_records.features[record].copy(),
    "blank": lambda rules, split, record: np.zeros_like(split.members_records.features[record]),
}
"""By challenge.kind: a function of rules, split and position -> features [*shape]."""

RELABELLED = frozenset({"backdoor", "mislabelled"})
"""The kinds that keep features of the record whose place they take, and not its label."""
