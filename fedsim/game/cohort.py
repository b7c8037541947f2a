"""Clients of one process that train as one batch, in blocks that fit memory.

Where whole clients are the unit, the first client to train also trains some later, announced ones.
Each message is still a function of the client's own received message.
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
    waiting: set[int]
    played_with: tuple[GameRules, int] | None = None
    game: tuple[int, range] | None = None
    parameters: Tensor | None = None
    trained: dict[int, Tensor] = field(default_factory=dict)

    def is_of(self, knowledge: KnownRound) -> bool:
        """Return whether a client's message equals the one that the others trained for."""
        played_with = knowledge.rules, id(knowledge.federation)
        game = knowledge.game.round, knowledge.game.trials
        if self.parameters is None:
            self.played_with, self.parameters, self.game = played_with, knowledge.parameters, game
        same = self.game == game and self.played_with == played_with
        return same and self.parameters.equal(knowledge.parameters)


_PLAYED: ContextVar[_Cohort | None] = ContextVar("played", default=None)


@contextmanager
def played(clients: Iterable[int]) -> Iterator[None]:
    """Let this process train some clients together, while it answers for them."""
    token = _PLAYED.set(_Cohort(set(clients)))
    try:
        yield
    finally:
        _PLAYED.reset(token)


def sent(knowledge: KnownRound, client: int) -> Tensor:
    """Return a client's message, float64 [T, P]. Raises FloatingPointError."""
    cohort = _PLAYED.get()
    if cohort is None or not cohort.is_of(knowledge):
        (update,) = local_training.trained(knowledge, [client])
    else:
        if client not in cohort.trained:
            _train_with(cohort, knowledge, client)
        update = cohort.trained.pop(client)
    # Clipped one by one, so that an update that is not finite fails only its own client.
    return local_training.clip(update, knowledge.rules.scheme.training.clipping_norm)


def _train_with(cohort: _Cohort, knowledge: KnownRound, client: int) -> None:
    """Train a client, and waiting clients that fit into one batch with it."""
    waiting = cohort.waiting | {client}
    groups = local_training.alike(knowledge.federation, waiting, knowledge.parameters)
    batch = next(group for group in groups if client in group)
    try:
        updates = local_training.trained(knowledge, batch)
    except FloatingPointError:
        # One client's training diverges: from now on each client trains, and fails, by itself.
        cohort.waiting, batch = set(), [client]
        updates = local_training.trained(knowledge, batch)
    cohort.trained |= dict(zip(batch, updates, strict=True))
    cohort.waiting -= set(batch)
