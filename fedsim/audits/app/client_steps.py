"""The steps of Opacus that the clients of an app take in an honest run, round by round."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
from flwr.app import Message

from adversaries.arrays import Floats
from adversaries.bounds.canaries import vector
from fedsim.audits.app.introspection import model_of
from fedsim.audits.app.process import ClientRun
from fedsim.audits.loop.contract import carried
from fedsim.audits.loop.measurement import ObservedRun
from fedsim.audits.loop.watching import LoopWatch
from fedsim.audits.steps.classes import rest, wrap
from fedsim.audits.steps.noise import LONGEST_NOISE, echo_p_value
from fedsim.audits.steps.watch import WatchedStep


class ClientWatch(LoopWatch):
    """Keeps of each step only what it says, and some of its noise: models may be large."""

    def take(self, step: WatchedStep) -> None:
        super().take(step)
        self.sums.clear()
        self.released.clear()
        room = LONGEST_NOISE - sum(map(len, self.noises[:-1]))
        self.noises[-1] = self.noises[-1][:room].copy()


class ClientSteps:
    """Watches the clients of one run.

    Attributes:
        late: whether a training imported Opacus itself, and ran unobserved.
    """

    def __init__(self, watch: ClientWatch) -> None:
        self._watch, self.late = watch, False
        self._rounds: dict[int, list[ObservedRun]] = {}
        self._noises: dict[int, list[Floats]] = {}
        self._bare: dict[int, int] = {}

    def trained(self, partition: int, message: Message, train: Callable[[], Message]) -> Message:
        """Return the reply to a message, and note the steps that made it."""
        wrap(self._watch)
        self._watch.clear()
        reply = train()
        self.late |= wrap(self._watch)
        if reply.has_content() and len(reply.content.array_records) == 1:
            self._note(partition, message, reply)
        return reply

    def runs(self) -> dict[int, ClientRun]:
        return {partition: self._run(partition) for partition in self._rounds}

    def _note(self, partition: int, message: Message, reply: Message) -> None:
        received, sent = (
            {name: array.numpy() for name, array in model_of(each.content).items()}
            for each in (message, reply)
        )
        before, after = vector(received), vector(sent)
        rounds = self._rounds.setdefault(partition, [])
        beside = _beside(reply, carried(sent), len(rounds) + 1)
        seen = self._watch.seen(after, after, beside, None)
        made = self._watch.start, self._watch.state
        # Apart from what steps made, the reply must be the model that the client received.
        parts = [
            rest(model, np.empty(0) if own is None else own)
            for model, own in zip((before, after), made, strict=True)
        ]
        same = all(each is not None for each in parts) and np.array_equal(*parts)  # type: ignore
        rounds.append(replace(seen, explained=same and not self._watch.moved))
        self._bare[partition] = self._bare.get(partition, 0) + (not seen.steps and not same)
        noises = self._noises.setdefault(partition, [])
        noises += self._watch.noises if sum(map(len, noises)) < LONGEST_NOISE else []

    def _run(self, partition: int) -> ClientRun:
        rounds = self._rounds[partition]
        steps = [step for each in rounds for step in each.steps]
        numbered = (replace(step, place=place) for place, step in enumerate(steps, 1))
        whole = replace(
            rounds[-1],
            steps=tuple(numbered),
            explained=all(each.explained for each in rounds),
            epochs=sum(each.epochs for each in rounds),
            beside=tuple(pair for each in rounds for pair in each.beside),
            unnoised=sum(each.unnoised for each in rounds),
            start="",
        )
        noise = np.concatenate([*self._noises[partition], np.empty(0)])[:LONGEST_NOISE]
        return ClientRun(whole, len(rounds), self._bare[partition], echo_p_value(noise))


def _beside(
    reply: Message, whole: tuple[tuple[str, str], ...], number: int
) -> tuple[tuple[str, str], ...]:
    """Return integer arrays and metrics of a reply; those that differ between runs tell more."""
    named = [
        (name, f"{value!r}")
        for metrics in reply.content.metric_records.values()
        for name, value in metrics.items()
    ]
    return tuple((f"{name} of round {number}", text) for name, text in (*whole, *named))
