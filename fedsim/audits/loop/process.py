"""A training function in a process of its own, and what may be asked of it there."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from pydantic import TypeAdapter

from fedsim.audits.loop.measurement import Features, Learnt, Seen
from fedsim.audits.loop.noise import NOTHING, NoiseSums
from fedsim.audits.sandbox.channel import Channel, Reply

World = Literal["present", "absent", "twin", "stranger"]


@dataclass(frozen=True)
class Order:
    """Which function is loaded, and what it is run on; the first message to the process.

    Attributes:
        records: of D, the target among them.
        target: "crafted" or "real".
        neighbouring: a value of `Neighbouring`.
        seed: of the target and of which records are taken.
    """

    function: str
    data: str
    records: int
    target: str
    neighbouring: str
    seed: int


@dataclass(frozen=True)
class Request:
    """What is asked for after an order was answered.

    Attributes:
        kind: "observe" a run for each seed, "replay" one, learn from "pilots", or "measure" runs.
        pair: the place of the pair of worlds.
        world: in which they are observed.
        worlds: whether the target is there, in each that is measured.
    """

    kind: Literal["observe", "replay", "pilots", "measure"]
    pair: int
    seeds: tuple[int, ...]
    world: World = "present"
    worlds: tuple[bool, ...] = ()


@dataclass(frozen=True)
class Answer(Reply):
    """What the process says.

    Attributes:
        pairs: the names of the pairs, in answer to an order.
        many: whether the function trains several models at once, likewise.
        learnt: by pilots.
        noise: of the steps of these, together.
        changed: as `Loop.changed` returns it, in answer to a replay.
    """

    pairs: tuple[str, ...] = ()
    many: bool = False
    learnt: Learnt | None = None
    seen: tuple[Seen, ...] = ()
    features: tuple[Features, ...] = ()
    noise: NoiseSums = NOTHING
    changed: tuple[str, ...] | None = ()


ORDER, REQUEST, ANSWER = TypeAdapter(Order), TypeAdapter(Request), TypeAdapter(Answer)


class LoopProcess:
    """A training function that runs in another process.

    Attributes:
        runs: of the function, so far.
        noise: of all runs whose features were measured.
    """

    def __init__(self, order: Order, channel: Channel) -> None:
        self._channel, self.runs, self.noise = channel, 0, NoiseSums()
        answer = channel.ask(order, ANSWER)
        self.name, self.pairs, self.many = order.function, answer.pairs, answer.many

    def observed(self, pair: int, world: World, seeds: Sequence[int]) -> tuple[Seen, ...]:
        """Return what a run for each seed showed.

        Args:
            world: with the target, without it, with another record in its place, or with other
                features of all.

        Raises:
            AppFailedError: the loop fails, its process ends, or it is silent past the time limit.
        """
        self.runs += len(seeds)
        asked = Request("observe", pair, tuple(seeds), world)
        seen = self._channel.ask(asked, ANSWER).seen
        if len(seen) != len(seeds):
            raise self._channel.no_measurement()
        return seen

    def changed(self, pair: int, seed: int) -> tuple[str, ...] | None:
        """Return what of the model follows the data while every released step stays the same.

        Returns:
            Names of tensors; None where a replay cannot tell.
        """
        self.runs += 4
        return self._channel.ask(Request("replay", pair, (seed,)), ANSWER).changed

    def pilot(self, pair: int, seeds: Sequence[int]) -> Learnt:
        """Have the process learn a pair's direction, and return what else it learnt.

        Args:
            seeds: of runs in two worlds each.
        """
        self.runs += 2 * len(seeds)
        learnt = self._channel.ask(Request("pilots", pair, tuple(seeds)), ANSWER).learnt
        if learnt is None:
            raise self._channel.no_measurement()
        return learnt

    def features(
        self, pair: int, worlds: Sequence[bool], seeds: Sequence[int]
    ) -> tuple[Features, ...]:
        self.runs += len(seeds)
        asked = Request("measure", pair, tuple(seeds), worlds=tuple(map(bool, worlds)))
        answer = self._channel.ask(asked, ANSWER)
        if len(answer.features) != len(seeds):
            raise self._channel.no_measurement()
        self.noise += answer.noise
        return answer.features
