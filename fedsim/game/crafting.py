"""Crafted targets in D that are easy to notice: poisoned records, and a gradient of no record.

They are a function of the configuration, the records of D and the first model. Sources: Jagielski,
Ullman and Oprea, 2020 (ClipBKD); Nasr et al., "Adversary instantiation: lower bounds for
differentially private machine learning", 2021 (mislabelled, Dirac canary).
"""

from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import cached_property

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from adversaries.arrays import Floats, Ints
from adversaries.attacks.poisoning import clipbkd_point, least_liked
from adversaries.registry import lookup
from fedsim.common.randomness import StreamRole, generator
from fedsim.configuration import Config
from fedsim.configuration.challenge import ChallengeConfig
from fedsim.learning.data import Records, Split
from fedsim.privacy.mechanism import Neighbouring

Image = npt.NDArray[np.float32]
Logits = Callable[[Image], Floats]
"""Maps the features of one record to logits [c] of the first model."""

PLACE, TOWARDS, DIRECTION = 1, 2, 3
"""Rounds of the seed tree, one for each thing that is drawn with the role's stream."""


@dataclass(frozen=True, eq=False)
class Crafted:
    """The replacement of a record: another one, or C times a unit vector [P], or its opposite."""

    record: int
    features: Image | None = None
    label: int | None = None
    direction: Tensor | None = None
    opposed: bool = False


@dataclass(frozen=True, eq=False)
class Planted(Split):
    """A split with a crafted record in place of a member; `members` still has the original."""

    crafted: Crafted

    @classmethod
    def of(cls, split: Split, crafted: Crafted, replaced: bool) -> "Planted":
        """Return the split with a crafted record."""
        inherited = {field.name: getattr(split, field.name) for field in fields(Split)}
        if replaced:
            original = split.members[[crafted.record]]
            inherited["pool"] = np.concatenate([split.pool, original])
        return cls(**inherited, crafted=crafted)

    @cached_property
    def members_records(self) -> Records:
        """Records of D with the crafted one, in the order of `members`."""
        original = self.dataset.train.take(self.members)
        features, labels = original.features.copy(), original.labels.copy()
        assert self.crafted.features is not None
        assert self.crafted.label is not None
        features[self.crafted.record] = self.crafted.features
        labels[self.crafted.record] = self.crafted.label
        return Records(features, labels)


def place(challenge: ChallengeConfig, data_seed: int, client_of: Ints) -> int:
    """Return the position in D of the record that a target replaces."""
    if challenge.record >= 0:
        return challenge.record
    among = np.arange(len(client_of))
    if challenge.client >= 0:
        among = np.flatnonzero(client_of == challenge.client)
    return int(_stream(data_seed, PLACE).choice(among))


def craft(config: Config, split: Split, record: int, logits: Logits) -> Crafted:
    """Return the crafted record that replaces one of D.

    Its label is the class that the first model likes least. Where its features are the replaced
    record's, that record's own class is excluded.

    logits: the first model's, for features of one record.
    Raises InputError if there is no such kind.
    """
    kind = config.challenge.kind
    features = lookup(KINDS, kind, "challenge.kind")(config, split, record)
    own = int(split.members_records.labels[record])
    label = least_liked(logits(features), own if kind in RELABELLED else None)
    return Crafted(record, features, label)


def direction(neighbouring: Neighbouring, data_seed: int, record: int, parameters: int) -> Crafted:
    """Return a gradient in a random direction that replaces a record's in all trials and rounds.

    neighbouring: whether D' lacks the gradient or has its opposite.
    """
    unit = torch.from_numpy(_stream(data_seed, DIRECTION).standard_normal(parameters))
    unit /= unit.norm()
    return Crafted(record, direction=unit, opposed=neighbouring is Neighbouring.REPLACE)


def _stream(data_seed: int, drawn: int) -> np.random.Generator:
    return generator(data_seed, StreamRole.CRAFTED, round=drawn)


def _clipbkd(config: Config, split: Split, record: int) -> Image:
    """Return m V_d of the original records of D, where m is their mean norm (Algorithm 4)."""
    members = split.members_records.features
    rows = members.reshape(len(members), -1)
    towards = _stream(config.data.seed, TOWARDS).standard_normal(rows.shape[1])
    point = clipbkd_point(rows, towards)
    return point.reshape(members.shape[1:]).astype(np.float32)


KINDS: dict[str, Callable[[Config, Split, int], Image]] = {
    "clipbkd": _clipbkd,
    "mislabelled": lambda config, split, record: split.members_records.features[record].copy(),
}
"""By challenge.kind: functions of config, split and position that return features [*shape]."""

RELABELLED = frozenset({"mislabelled"})
"""Kinds that keep the features of the replaced record, but not its label."""
