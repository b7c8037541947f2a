"""Measurements of a loop's runs, without any code of the loop, and the process that makes them."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from pydantic import TypeAdapter

from fedsim.audits.child_process.channel import Channel, ProcessReply
from fedsim.audits.loop.step_sums import NO_INFLUENCE, Influence
from fedsim.audits.steps.classes import LoopStatement
from fedsim.audits.steps.noise import NOTHING, NoiseSums
from fedsim.audits.steps.step import Step

FEATURES = ("sampled", "total", "last", "largest", "energy", "steps")
"""Features of every attacked run, in the order of `Features`.

sampled: log-likelihood ratio of all steps, by the pilots' influence, noise and participation rate.
total, last, largest: shift of all steps, of the last and of the farthest along the target's
direction. energy: logarithm of the released numbers' squared length. steps: number of steps.
"""

Features = tuple[float, ...]
FULL = 0.95
Form = Literal["watched", "model", "models", "steps"]
"""What a loop releases: steps of Opacus's optimizer, one model, the model after each step, or the
steps themselves."""


@dataclass(frozen=True)
class Learnt:
    """Knowledge of a pair of worlds, learnt from pilots.

    Attributes:
        distance: approximate distance of the worlds, in standard deviations.
        rows: k, the number of rows released.
        rate: share of rows in which the target takes part, in (0, 1].
    """

    distance: float
    form: Form
    rows: int
    rate: float


@dataclass(frozen=True)
class ObservedRun:
    """Observations of one run.

    Attributes:
        steps: steps of Opacus's optimizers, () without any.
        statement: None where the loop did not query an accountant.
        size: n, the number of records of a loader; 0 without one.
        records: checksums of the records of a loader, sorted; () where they are not known.
        computed: class of a loader's data set that computes its records; "" for any other.
        explained: whether those steps alone moved the model.
        epochs: passes over the data that steps drew from, unfinished ones included; 0 without a
            loader.
        beside: names and checksums of the model's integer tensors.
        unnoised: steps of an ordinary optimizer on the same model, after the first of them.
        start: checksum of the model before the first step, and of its parts that no step changes.
        released: checksum of all releases.
        values: number of different numbers in the releases.
    """

    steps: tuple[Step, ...]
    statement: LoopStatement | None
    size: int
    records: tuple[str, ...]
    computed: str
    explained: bool
    epochs: int
    beside: tuple[tuple[str, str], ...]
    unnoised: int
    start: str
    released: str
    values: int

    @property
    def samplers(self) -> str:
        return ", then ".join(dict.fromkeys(step.sampling for step in self.steps if step.sampling))


World = Literal["present", "absent", "twin", "stranger"]


@dataclass(frozen=True)
class LoopOrder:
    function: str
    data: str
    records: int
    target: str
    neighbouring: str
    seed: int


@dataclass(frozen=True)
class LoopRequest:
    """A request after the order was answered.

    Attributes:
        kind: "observe" a run for each seed, "replay" one, "replace" single records in one, learn
            from "pilots", or "measure" runs; "share" what the pilots showed, or "take" it from
            another process.
        pair: index of the pair of worlds.
        world: world of observed runs.
        worlds: whether the target is in the data, for each measured run.
        direction: what another process shared.
    """

    kind: Literal["observe", "replay", "replace", "pilots", "measure", "share", "take"]
    pair: int
    seeds: tuple[int, ...]
    world: World = "present"
    worlds: tuple[bool, ...] = ()
    direction: str = ""


@dataclass(frozen=True)
class LoopAnswer(ProcessReply):
    pairs: tuple[str, ...] = ()
    many: bool = False
    learnt: Learnt | None = None
    runs: tuple[ObservedRun, ...] = ()
    echo: float = 1.0
    features: tuple[Features, ...] = ()
    noise: NoiseSums = NOTHING
    changed: tuple[str, ...] | None = ()
    influence: Influence = NO_INFLUENCE
    runs_made: int = 0
    direction: str = ""


ORDER, REQUEST, ANSWER = TypeAdapter(LoopOrder), TypeAdapter(LoopRequest), TypeAdapter(LoopAnswer)

LONGEST_DIRECTION = 2**30
"""Most bytes of a direction that processes share: about 100 million parameters."""


class LoopProcess:
    def __init__(self, order: LoopOrder, channel: Channel) -> None:
        self._channel, self.runs, self.noise = channel, 0, NoiseSums()
        answer = channel.ask(order, ANSWER)
        self.name, self.pairs, self.many = order.function, answer.pairs, answer.many

    def observed(
        self, pair: int, world: World, seeds: Sequence[int]
    ) -> tuple[tuple[ObservedRun, ...], float]:
        """Return honest runs, and the p-value of their noise's repetition."""
        self.runs += len(seeds)
        request = LoopRequest("observe", pair, tuple(seeds), world)
        answer = self._channel.ask(request, ANSWER)
        if len(answer.runs) != len(seeds):
            raise self._channel.no_measurement()
        return answer.runs, answer.echo

    def changed(self, pair: int, seed: int) -> tuple[str, ...] | None:
        self.runs += 4
        return self._channel.ask(LoopRequest("replay", pair, (seed,)), ANSWER).changed

    def influence(self, seed: int) -> Influence:
        """Return what a replaced record changes in the steps of a run with this seed."""
        answer = self._channel.ask(LoopRequest("replace", 0, (seed,)), ANSWER)
        self.runs += answer.runs_made
        return answer.influence

    def pilot(self, pair: int, seeds: Sequence[int]) -> Learnt:
        """Make the process learn a pair's direction from two runs a seed; return what it learnt."""
        self.runs += 2 * len(seeds)
        learnt = self._channel.ask(LoopRequest("pilots", pair, tuple(seeds)), ANSWER).learnt
        if learnt is None:
            raise self._channel.no_measurement()
        return learnt

    def take(self, pair: int, other: "LoopProcess") -> None:
        """Make the process measure as another one does, whose pilots it does not repeat."""
        # A direction has the size of the model.
        share = LoopRequest("share", pair, ())
        shared = other._channel.ask(share, ANSWER, LONGEST_DIRECTION).direction
        self._channel.ask(LoopRequest("take", pair, (), direction=shared), ANSWER)

    def features(
        self, pair: int, worlds: Sequence[bool], seeds: Sequence[int]
    ) -> tuple[tuple[Features, ...], NoiseSums]:
        """Return the features of each run, and the noise of their steps."""
        self.runs += len(seeds)
        request = LoopRequest("measure", pair, tuple(seeds), worlds=tuple(map(bool, worlds)))
        answer = self._channel.ask(request, ANSWER)
        if len(answer.features) != len(seeds):
            raise self._channel.no_measurement()
        return answer.features, answer.noise
