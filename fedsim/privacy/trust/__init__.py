"""Trust models: who adds the noise, who sees which messages, and what each onlooker cannot know.

One module a model; `Trust` is their registry. `config.federation.trust.model` answers for a run.
"""

from enum import StrEnum
from typing import Self

from fedsim.privacy.trust.central import Central
from fedsim.privacy.trust.distributed import Distributed
from fedsim.privacy.trust.local import Local
from fedsim.privacy.trust.model import TrustModel


class Trust(StrEnum):
    """The trust models by the names that configurations give them.

    Attributes:
        model: what the trust model says; callers ask it and do not compare members.
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
