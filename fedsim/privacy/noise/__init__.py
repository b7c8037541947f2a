"""Noise mechanisms: what the server adds to a round's sum, and what adversaries learn from it."""

from enum import StrEnum
from typing import Self

from fedsim.privacy.noise.isotropic import Isotropic
from fedsim.privacy.noise.mechanism import NoiseMechanism
from fedsim.privacy.noise.pac import Pac


class Noise(StrEnum):
    """The noise mechanisms by their names in configurations.

    Attributes:
        mechanism: the class; callers use it instead of comparing members.
    """

    mechanism: type[NoiseMechanism]

    ISOTROPIC = "isotropic", Isotropic
    PAC = "pac", Pac

    def __new__(cls, name: str, mechanism: type[NoiseMechanism]) -> Self:
        """Return a member: a string that carries its mechanism."""
        member = str.__new__(cls, name)
        member._value_ = name
        member.mechanism = mechanism
        return member
