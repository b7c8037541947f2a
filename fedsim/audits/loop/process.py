"""A training function in its own process, and the messages to and from it."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from pydantic import TypeAdapter

from fedsim.audits.loop.measurement import NOTHING, Features, Learnt, NoiseSums, Seen
from fedsim.audits.sandbox.channel import Channel, Reply

World = Literal["present", "absent", "twin", "stranger"]


@dataclass(frozen=True)
class Order:
    """The function to load, and its data; the first message to the process."""

    function: str
    data: str
    records: int
    target: str
    neighbouring: str
    seed: int


@dataclass(frozen=True)
class Request:
    """A request after the order was answered.

    Attributes:
        kind: "observe" a run for each seed, "replay" one, learn from "pilots", or "measure" runs.
        pair: index of the pair of worlds.
        world: world of observed runs.
        worlds: whether the target is in the data, for each measured run.
    """

    kind: Literal["observe", "replay", "pilots", "measure"]
    pair: int
    seeds: tuple[int, ...]
    world: World = "present"
    worlds: tuple[bool, ...] = ()


@dataclass(frozen=True)
class Answer(Reply):
    """The answer of the process."""

    pairs: tuple[str, ...] = ()
    many: bool = False
    learnt: Learnt | None = None
    runs: tuple[Seen, ...] = ()
    features: tuple[Features, ...] = ()
    noise: NoiseSums = NOTHING
    changed: tuple[str, ...] | None = ()


ORDER, REQUEST, ANSWER = TypeAdapter(Order), TypeAdapter(Request), TypeAdapter(Answer)


class LoopProcess:
    """A training function that runs in another process."""

    def __init__(self, order: Order, channel: Channel) -> None:
        self._channel, self.runs, self.noise = channel, 0, NoiseSums()
        answer = channel.ask(order, ANSWER)
        self.name, self.pairs, self.many = order.function, answer.pairs, answer.many

    def observed(self, pair: int, world: World, seeds: Sequence[int]) -> tuple[Seen, ...]:
        self.runs += len(seeds)
        request = Request("observe", pair, tuple(seeds), world)
        runs = self._channel.ask(request, ANSWER).runs
        if len(runs) != len(seeds):
            raise self._channel.no_measurement()
        return runs

    def changed(self, pair: int, seed: int) -> tuple[str, ...] | None:
        self.runs += 4
        return self._channel.ask(Request("replay", pair, (seed,)), ANSWER).changed

    def pilot(self, pair: int, seeds: Sequence[int]) -> Learnt:
        """Make the process learn a pair's direction from two runs a seed; return what it learnt."""
        self.runs += 2 * len(seeds)
        learnt = self._channel.ask(Request("pilots", pair, tuple(seeds)), ANSWER).learnt
        if learnt is None:
            raise self._channel.no_measurement()
        return learnt

    def features(
        self, pair: int, worlds: Sequence[bool], seeds: Sequence[int]
    ) -> tuple[Features, ...]:
        self.runs += len(seeds)
        request = Request("measure", pair, tuple(seeds), worlds=tuple(map(bool, worlds)))
        answer = self._channel.ask(request, ANSWER)
        if len(answer.features) != len(seeds):
            raise self._channel.no_measurement()
        self.noise += answer.noise
        return answer.features
