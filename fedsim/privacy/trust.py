"""Trust models: who adds the noise, who sees which messages, and which noise an observer lacks."""

import math
from collections.abc import Collection
from dataclasses import dataclass
from enum import StrEnum
from typing import Self

from fedsim.common.randomness import SERVER

FEWEST_SUMMED = 4
"""Honest clients of a secure sum that hides a message. Of fewer, at most two masks are left to
find, whose seeds have 32 bits in Flower's SecAgg+ (docs/explanation/secure-aggregation.md)."""

FEW_MASKS = (
    f"Secure aggregation has fewer than {FEWEST_SUMMED} honest clients. Their masks can be "
    "guessed: a hostile server may read each message under that client's share of the noise."
)


class Vantage(StrEnum):
    """What the adversary sees: every message; the aggregate of each round; the last model."""

    SERVER = "server"
    PARTICIPANT = "participant"
    RELEASED_MODEL = "released-model"


@dataclass(frozen=True)
class TrustModel:
    """Who adds the noise, how messages are summed, and whose noise hides the target from whom.

    Attributes:
        words: the model in a sentence.
        server: what the server sees.
        participant: what a participant sees.
        caution: what a reader must know before the numbers, "" for nothing.
        server_draws: whether the server adds the noise to the sum; else each client to its message.
        summed_securely: whether messages are integers modulo 2^32 of which only the sum may show;
            each client then adds a share of the noise, else all of it.
        local_steps: whether clients may take several noisy steps within a round.
    """

    words: str
    server: str
    participant: str = "sees the aggregate of every round, and removes its own noise from it"
    caution: str = ""
    server_draws: bool = False
    summed_securely: bool = False
    local_steps: bool = False

    def noise_share(self, clients: float, sources: int) -> float:
        """Return the noise of several sources together, as a multiple of the nominal noise.

        Args:
            clients: number of clients, or expected number in a round.
            sources: where clients add noise at least one counts: the target's client.
        """
        if self.server_draws:
            return 1.0 if sources else 0.0
        # Each of m shares has 1/m of the variance; without shares each source has the whole.
        return math.sqrt(max(1, sources) / (clients if self.summed_securely else 1))

    def hides(self, vantage: Vantage, target: bool, adversary: bool, colluder: bool) -> bool:
        """Return whether a client's own noise hides the target from a vantage.

        Args:
            vantage: the observer.
            target: whether this client holds the target record, or is the target.
            adversary: whether this client is the curious participant.
            colluder: whether this client discloses its noise to the adversary and the server.
        """
        if self.server_draws:
            return False  # clients have no noise
        if vantage is Vantage.SERVER and not self.summed_securely:
            return target  # it sees the target's own message
        return not (colluder or (vantage is Vantage.PARTICIPANT and adversary))

    def sees(self, vantage: Vantage, clients: float, in_the_clear: bool) -> str:
        """Return what a server or participant sees, in words.

        Args:
            vantage: server or participant.
            clients: number of clients, or expected number in a round.
            in_the_clear: whether messages that should be summed securely are not.
        """
        if vantage is not Vantage.SERVER:
            return self.participant
        return (
            AS_IF_SECURE.format(clients) if in_the_clear and self.summed_securely else self.server
        )

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
        if self.server_draws:
            return frozenset() if vantage is Vantage.SERVER else frozenset({SERVER})
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
        if self.server_draws:
            return int(vantage is not Vantage.SERVER)
        seen_by = Vantage.SERVER if vantage is Vantage.SERVER else Vantage.PARTICIPANT
        crowd = (
            (1, (True, False, False)),
            (1, (False, True, False)),
            (colluders, (False, False, True)),
            (participants - 2 - colluders, (False, False, False)),
        )
        return sum(count for count, who in crowd if self.hides(seen_by, *who))


AS_IF_SECURE = (
    "as if aggregated securely: aggregation was simulated, and the server received every message "
    "under one client's share of the noise (the nominal multiplier over the square root of {:g} "
    "clients)"
)


class Trust(StrEnum):
    """The trust models by their names in configurations.

    Attributes:
        model: the trust model; callers use it instead of comparing members.
    """

    model: TrustModel

    CENTRAL = (
        "central",
        TrustModel(
            "Here the server is trusted to add the noise to the sum of the clients' messages.",
            "sees sums without noise: no protection",
            "sees the aggregate of every round, and did not draw its noise",
            "With central trust, the server sees each client's sum of gradients without noise. "
            "Nothing protects the client's records from the server.",
            server_draws=True,
        ),
    )
    LOCAL = (
        "local",
        TrustModel(
            "Here every client adds the whole noise to its own message.",
            "sees every client's sum with that client's own noise in it",
            local_steps=True,
        ),
    )
    DISTRIBUTED = (
        "distributed",
        TrustModel(
            "Here every client adds a share of the noise. Every observer is assumed to see no more "
            "of the messages than their sum.",
            "sees only the aggregate, as long as secure aggregation holds",
            summed_securely=True,
        ),
    )

    def __new__(cls, name: str, model: TrustModel) -> Self:
        """Return a member: a string that carries its model."""
        member = str.__new__(cls, name)
        member._value_ = name
        member.model = model
        return member
