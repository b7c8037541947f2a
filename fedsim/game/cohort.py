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
from fedsim.game.federation import Federation
from fedsim.game.round_game import RoundGame


@dataclass
class _Cohort:
    """The clients that are still to be asked, and what those send that trained already."""

    waiting: set[int]
    played_with: tuple[GameRules, int] | None = None
    game: tuple[int, range] | None = None
    parameters: Tensor | None = None
    trained: dict[int, Tensor] = field(default_factory=dict)

    def is_of(
        self, rules: GameRules, known: Federation, game: RoundGame, parameters: Tensor
    ) -> bool:
        """Whether a client's message is like those that the others trained for."""
        played_with = rules, id(known)
        if self.parameters is None:
            self.played_with, self.parameters = played_with, parameters
            self.game = game.round, game.trials
        same = self.game == (game.round, game.trials) and self.played_with == played_with
        return same and self.parameters.equal(parameters)


_PLAYED: ContextVar[_Cohort | None] = ContextVar("played", default=None)


@contextmanager
def played(clients: Iterable[int]) -> Iterator[None]:
    """Let this process train some clients together, while it answers for them."""
    token = _PLAYED.set(_Cohort(set(clients)))
    try:
        yield
    finally:
        _PLAYED.reset(token)


def sent(
    rules: GameRules, federation: Federation, client: int, parameters: Tensor, game: RoundGame
) -> Tensor:
    """Return what a client sends of its own data, float64 [T, P].

    parameters: float32 [T, P].
    Raises FloatingPointError if a client's training diverges.
    """
    cohort = _PLAYED.get()
    if cohort is None or not cohort.is_of(rules, federation, game, parameters):
        (update,) = local_training.trained(rules, federation, [client], parameters, game)
    else:
        if client not in cohort.trained:
            _train_with(cohort, rules, federation, client, parameters, game)
        update = cohort.trained.pop(client)
    # Clipped one by one: an update that is not finite is its own client's failure alone.
    return local_training.clip(update, rules.scheme.training.clipping_norm)


def _train_with(
    cohort: _Cohort,
    rules: GameRules,
    federation: Federation,
    client: int,
    parameters: Tensor,
    game: RoundGame,
) -> None:
    """Train a client, and those that wait and train as one batch with it."""
    waiting = cohort.waiting | {client}
    groups = local_training.alike(federation, waiting, parameters)
    batch = next(group for group in groups if client in group)
    try:
        found = local_training.trained(rules, federation, batch, parameters, game)
    except FloatingPointError:
        # Somebody's training diverges: from here on everybody trains, and fails, alone.
        cohort.waiting, batch = set(), [client]
        found = local_training.trained(rules, federation, batch, parameters, game)
    cohort.trained |= dict(zip(batch, found, strict=True))
    cohort.waiting -= set(batch)
