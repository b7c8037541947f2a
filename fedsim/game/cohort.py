"""Clients that one process plays in one round: they train as one batch, in blocks that fit memory.

Where whole clients are the unit, and a runtime that has several messages to answer says so, the
first of the clients to be asked trains some others with it, whose turn is later. What each sends
is the same function of its own message.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field

from torch import Tensor

from fedsim.config.objects import GameRules
from fedsim.game import local_training
from fedsim.game.known_round import KnownRound


@dataclass
class _Cohort:
    """The clients that are still to be asked, and what those send that trained already."""

    waiting: set[int]
    played_with: tuple[GameRules, int] | None = None
    game: tuple[int, range] | None = None
    parameters: Tensor | None = None
    trained: dict[int, Tensor] = field(default_factory=dict)

    def is_of(self, seen: KnownRound) -> bool:
        """Whether a client's message is like those that the others trained for."""
        played_with = seen.rules, id(seen.federation)
        game = seen.game.round, seen.game.trials
        if self.parameters is None:
            self.played_with, self.parameters, self.game = played_with, seen.parameters, game
        same = self.game == game and self.played_with == played_with
        return same and self.parameters.equal(seen.parameters)


_PLAYED: ContextVar[_Cohort | None] = ContextVar("played", default=None)


@contextmanager
def played(clients: Iterable[int]) -> Iterator[None]:
    """Let this process train some clients together, while it answers for them."""
    token = _PLAYED.set(_Cohort(set(clients)))
    try:
        yield
    finally:
        _PLAYED.reset(token)


def sent(seen: KnownRound, client: int) -> Tensor:
    """Return what a client sends of its own data, float64 [T, P].

    Raises FloatingPointError if a client's training diverges.
    """
    cohort = _PLAYED.get()
    if cohort is None or not cohort.is_of(seen):
        (update,) = local_training.trained(seen, [client])
    else:
        if client not in cohort.trained:
            _train_with(cohort, seen, client)
        update = cohort.trained.pop(client)
    # Clipped one by one: an update that is not finite is its own client's failure alone.
    return local_training.clip(update, seen.rules.scheme.training.clipping_norm)


def _train_with(cohort: _Cohort, seen: KnownRound, client: int) -> None:
    """Train a client, and those that wait and train as one batch with it."""
    waiting = cohort.waiting | {client}
    groups = local_training.alike(seen.federation, waiting, seen.parameters)
    batch = next(group for group in groups if client in group)
    try:
        found = local_training.trained(seen, batch)
    except FloatingPointError:
        # Somebody's training diverges: from here on everybody trains, and fails, alone.
        cohort.waiting, batch = set(), [client]
        found = local_training.trained(seen, batch)
    cohort.trained |= dict(zip(batch, found, strict=True))
    cohort.waiting -= set(batch)
