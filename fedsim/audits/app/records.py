"""One record of a client that trains with Opacus: the steps of an app's honest runs.

The steps of all rounds compose, whatever engine took them. The observer is the server, which sees
every reply. Neighbours are a record in a client's data, or nothing in its place, so that the number
of a client's records counts as public.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from flwr.app import ArrayRecord, Message, RecordDict

from adversaries.arrays import Floats
from adversaries.bounds.canaries import vector
from fedsim.audits.child_process.channel import AppFailedError
from fedsim.audits.judgement.claim import Evidence, Finding, alarms
from fedsim.audits.loop.contract import carried
from fedsim.audits.loop.running import observed_run
from fedsim.audits.results.rows import Limit, View
from fedsim.audits.steps import rules, theory
from fedsim.audits.steps.classes import LoopWatch, rest, wrap
from fedsim.audits.steps.noise import LONGEST_NOISE, echo_p_value
from fedsim.audits.steps.observation import Observation, ObservedRun
from fedsim.audits.steps.theory import Composition, MeasuredNoise
from fedsim.audits.steps.watch import WatchedStep
from fedsim.privacy.mechanism import Neighbouring
from fedsim.privacy.trust import Vantage

BARE = (
    "client {}: its reply differs from the model that it received in {} of {} rounds without a "
    "step of Opacus's optimizer: nothing adds noise to that training"
)
MEND = "train with the optimizer that make_private returned, in every client and round"
SAMPLED = (
    "client {} trained in {} of {} rounds. Another run may draw it more often; audit the app with "
    "every client in every round"
)
MORE = (
    "client {}: its reply differs from the model that it received by more than the steps of "
    "Opacus's optimizer made; train and send these parameters alone"
)
SUPPORTED = (
    "{0} clients took up to {1} steps of Opacus's optimizer each, and all steps of a client "
    "compose. The number of a client's records counts as public. Each step's noise agrees with the "
    "configured noise, and at least {2.at_least:.1%} of it was measured"
)
UNMOVED = (
    "the audit changes no record, and does not show how far one moves a step. A client that holds "
    "a record twice, or mixes records, gives less privacy; fedsim audit measures it"
)


# In the app's process


@dataclass(frozen=True)
class ClientRun:
    """The training of one client in an honest run."""

    run: ObservedRun
    rounds: int
    bare: int
    echo: float


def model_of(content: RecordDict) -> ArrayRecord:
    """Return a message's one model. Raises AppFailedError if it holds more, or none."""
    records = list(content.array_records.values())
    if len(records) != 1:
        raise AppFailedError(
            f"a message holds {len(records)} models; this audit needs exactly one in each message"
        )
    return records[0]


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
    """Watches the clients of one run; `late`: whether one imported Opacus, and ran unobserved."""

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
        seen = observed_run(self._watch, after, after, tuple(beside), [])
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


# In the process of the audit


@dataclass(frozen=True)
class RecordAudit:
    """The protection of one record of the least protected client.

    Attributes:
        limit: of all steps of all rounds; None where theory does not know every client.
        evidence: what speaks for and against a claim.
    """

    clients: int
    steps: int
    noise: MeasuredNoise | None
    limit: Limit | None
    findings: tuple[Finding, ...]
    evidence: Evidence

    @property
    def counts(self) -> dict[str, int]:
        return {"clients": self.clients, "steps": self.steps}

    @property
    def view(self) -> View:
        return View(
            observer=Vantage.SERVER.value,
            limit=self.limit,
            noise=None if self.noise is None else self.noise.ratio,
            detects=[] if self.noise is None else [self.noise.seen_below],
            note="no attack was made on a record",
        )


def judged(
    runs: Sequence[Mapping[int, ClientRun]],
    rounds: int,
    neighbouring: Neighbouring,
    delta: float,
    confidence: float,
) -> RecordAudit | None:
    """Return what honest runs with different seeds show; None if no client took a step of Opacus.

    Args:
        runs: runs of the clients by partition.
        rounds: number of rounds of the app.
    """
    everyone = [client.run for run in runs for client in run.values() if client.run.steps]
    if not everyone:
        return None
    together = _observation(everyone, runs[0][min(runs[0])].echo, neighbouring)
    found = {each.rule: each for each in rules.findings(together) if each.rule == "seeded-noise"}
    limits, unsure, unknown = list[Limit | None](), list[str](), list[str]()
    for partition in sorted(set().union(*runs)):
        clients = [run[partition] for run in runs if partition in run]
        if bare := max(client.bare for client in clients):
            text = BARE.format(partition, bare, rounds)
            found.setdefault("untold-steps", Finding(text, MEND, rule="untold-steps"))
            limits.append(Composition().limit(delta, "theory"))
        if not (clients := [client for client in clients if client.run.steps]):
            continue
        # Bonferroni: an equal share of the error for each run.
        echo = min(1.0, len(clients) * min(client.echo for client in clients))
        seen = _observation([client.run for client in clients], echo, neighbouring)
        shown = theory.judged(seen, delta)
        for each in shown.findings:
            named = replace(each, why=f"client {partition}: {each.why}")
            found.setdefault(each.rule, named)
        limits.append(shown.limit)
        stray = not seen.beside and not seen.explained
        unknown += [MORE.format(partition)] if stray else shown.unknown
        unsure += shown.unsure
        if (most := max(client.rounds for client in clients)) < rounds:
            unsure.append(SAMPLED.format(partition, most, rounds))
    noise, limit = theory.measured(together, delta, confidence), None
    known = [each for each in limits if each is not None]
    if len(known) == len(limits):
        epsilon, advantage = max(e.epsilon for e in known), max(e.rho_alpha for e in known)
        limit = Limit.of_epsilon(epsilon, advantage, "theory")
    number, steps = len(set().union(*runs)), max(len(run.steps) for run in everyone)
    return RecordAudit(
        clients=number,
        steps=steps,
        noise=noise,
        limit=limit,
        findings=tuple(found.values()),
        evidence=Evidence(
            broken=alarms(found.values()) > 0,
            unknown=tuple(dict.fromkeys(unknown)),
            unsure=tuple(dict.fromkeys(unsure)),
            in_favour=[SUPPORTED.format(number, steps, noise), UNMOVED] if noise else [],
        ),
    )


def _observation(
    runs: Sequence[ObservedRun], echo: float, neighbouring: Neighbouring
) -> Observation:
    size = max(run.size for run in runs)
    return Observation(tuple(runs), records=size, neighbouring=neighbouring, echo=echo)
