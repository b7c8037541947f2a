"""Trust models: who adds the noise, who sees which messages, and which noise an observer lacks."""

from enum import StrEnum
from typing import Self

from fedsim.privacy.trust.model import TrustModel
from fedsim.privacy.trust.models import Central, Distributed, Local


class Trust(StrEnum):
    """The trust models by their names in configurations.

    Attributes:
        model: the trust model; callers use it instead of comparing members.
    """

    model: TrustModel

    CENTRAL = "central", Central()
    LOCAL = "local", Local()
    DISTRIBUTED = "distributed", Distributed()

    def __new__(cls, name: str, model: TrustModel) -> Self:
        """Return a member: a string that carries its model."""
        member = str.__new__(cls, name)
        member._value_ = name
        member.model = model
        return member
