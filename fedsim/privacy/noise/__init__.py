"""Noise mechanisms: what the server adds to a round's sum, and what that tells an adversary.

One module a mechanism; `Noise` is their registry. `config.privacy.noise.mechanism` is a run's.
"""

from enum import StrEnum
from typing import Self

from fedsim.privacy.noise.isotropic import Isotropic
from fedsim.privacy.noise.mechanism import NoiseMechanism
from fedsim.privacy.noise.pac import Pac


class Noise(StrEnum):
    """The noise mechanisms by the names that configurations give them.

    Attributes:
        mechanism: its class; callers ask it and do not compare members.
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
