"""The interface of trust models, and the vantage points."""

from abc import ABC, abstractmethod
from collections.abc import Collection
from enum import StrEnum
from typing import ClassVar


class Vantage(StrEnum):
    """What the adversary sees: every message; the aggregate of each round; the last model."""

    SERVER = "server"
    PARTICIPANT = "participant"
    RELEASED_MODEL = "released-model"


class TrustModel(ABC):
    """Who adds the noise, how messages are summed, and whose noise hides the target from whom.

    Attributes:
        server_draws: whether the server adds the noise to the sum; else each client to its message.
        summed_securely: whether messages are integers modulo 2^32 of which only the sum may show.
        local_steps: whether clients may take several noisy steps within a round.
        words: the model in a sentence.
        caution: what a reader must know before the numbers, "" for nothing.
    """

    server_draws: ClassVar[bool] = False
    summed_securely: ClassVar[bool] = False
    local_steps: ClassVar[bool] = False
    words: ClassVar[str]
    caution: ClassVar[str] = ""

    @abstractmethod
    def noise_share(self, clients: float, sources: int) -> float:
        """Return the noise of several sources together, as a multiple of the nominal noise.

        Args:
            clients: number of clients, or expected number in a round.
            sources: where clients add noise at least one counts: the target's client.
        """

    @abstractmethod
    def hides(self, vantage: Vantage, target: bool, adversary: bool, colluder: bool) -> bool:
        """Return whether a client's own noise hides the target from a vantage.

        Args:
            vantage: the observer.
            target: whether this client holds the target record, or is the target.
            adversary: whether this client is the curious participant.
            colluder: whether this client discloses its noise to the adversary and the server.
        """

    @abstractmethod
    def sees(self, vantage: Vantage, clients: float, in_the_clear: bool) -> str:
        """Return what a server or participant sees, in words.

        Args:
            vantage: server or participant.
            clients: number of clients, or expected number in a round.
            in_the_clear: whether messages that should be summed securely are not.
        """

    def unknown_noise(
        self,
        vantage: Vantage,
        participants: Collection[int],
        target: int,
        adversary: int,
        colluders: Collection[int] = (),
    ) -> frozenset[int]:
        """Return the sources of the noise that hides the target from a vantage.

        Args:
            vantage: the observer.
            participants: the clients that took part.
            target: the client that holds the target record, or is the target.
            adversary: the curious client.
            colluders: the clients that disclose their noise to the adversary.
        """
        return frozenset(
            client
            for client in participants
            if self.hides(vantage, client == target, client == adversary, client in colluders)
        )

    def unknown_sources(self, vantage: Vantage, participants: int, colluders: int) -> int:
        """Return how many sources of noise hide the target from a vantage.

        Args:
            vantage: the observer. The released model counts as the participant, who sees more.
            participants: Target, adversary and colluders are counted too; it may be negative.
            colluders: number of clients that disclose their noise.
        """
        seen_by = Vantage.SERVER if vantage is Vantage.SERVER else Vantage.PARTICIPANT
        crowd = (
            (1, (True, False, False)),
            (1, (False, True, False)),
            (colluders, (False, False, True)),
            (participants - 2 - colluders, (False, False, False)),
        )
        return sum(count for count, who in crowd if self.hides(seen_by, *who))
