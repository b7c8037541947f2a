"""The steps of Opacus that the clients of an app take in an honest run, round by round."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace

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
        self.watched.clear()
        self.released.clear()
        room = LONGEST_NOISE - sum(map(len, self.noises[:-1]))
        self.noises[-1] = self.noises[-1][:room].copy()


@dataclass
class _Client:
    """Rounds of one client; `bare`: those that changed the model without a step of Opacus."""

    rounds: list[ObservedRun] = field(default_factory=list)
    noises: list[Floats] = field(default_factory=list)
    bare: int = 0

    def run(self) -> ClientRun:
        steps = [step for each in self.rounds for step in each.steps]
        whole = replace(
            self.rounds[-1],
            steps=tuple(replace(step, place=place) for place, step in enumerate(steps, 1)),
            explained=all(each.explained for each in self.rounds),
            epochs=sum(each.epochs for each in self.rounds),
            beside=tuple(pair for each in self.rounds for pair in each.beside),
            unnoised=sum(each.unnoised for each in self.rounds),
            start="",
        )
        noise = np.concatenate([*self.noises, np.empty(0)])[:LONGEST_NOISE]
        return ClientRun(whole, len(self.rounds), self.bare, echo_p_value(noise))


class ClientSteps:
    """Watches the clients of one run.

    Attributes:
        late: whether a training imported Opacus itself, and ran unobserved.
    """

    def __init__(self, watch: ClientWatch) -> None:
        self._watch, self.late = watch, False
        self._clients: dict[int, _Client] = {}

    def trained(self, partition: int, message: Message, train: Callable[[], Message]) -> Message:
        """Return the reply to a message, and note the steps that made it."""
        wrap(self._watch)
        self._watch.clear()
        reply = train()
        self.late |= wrap(self._watch)
        if reply.has_content() and len(reply.content.array_records) == 1:
            self._note(self._clients.setdefault(partition, _Client()), message, reply)
        return reply

    def runs(self) -> dict[int, ClientRun]:
        return {partition: client.run() for partition, client in self._clients.items()}

    def _note(self, client: _Client, message: Message, reply: Message) -> None:
        received, sent = (
            {name: array.numpy() for name, array in model_of(each.content).items()}
            for each in (message, reply)
        )
        before, after = vector(received), vector(sent)
        metrics = [
            (name, f"{value!r}")
            for record in reply.content.metric_records.values()
            for name, value in record.items()
        ]
        # Integer arrays and metrics that differ between runs tell more than the steps do.
        number = len(client.rounds) + 1
        beside = ((f"{name} of round {number}", text) for name, text in (*metrics, *carried(sent)))
        seen = self._watch.seen(after, after, tuple(beside), None)
        # Apart from what steps made, the reply must be the model that the client received.
        made = self._watch.start, self._watch.state
        parts = [
            rest(model, np.empty(0) if own is None else own)
            for model, own in zip((before, after), made, strict=True)
        ]
        same = all(each is not None for each in parts) and np.array_equal(*parts)  # type: ignore
        client.rounds.append(replace(seen, explained=same and not self._watch.moved))
        client.bare += not seen.steps and not same
        if sum(map(len, client.noises)) < LONGEST_NOISE:
            client.noises += self._watch.noises
