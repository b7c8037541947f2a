"""A client's own report: its releases, their cost, and the exposure of its records.

It must not leave the machine: its numbers about single records have no noise.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
import torch

from adversaries import registry
from adversaries.errors import InputError
from adversaries.statistics import gaussian
from fedsim.configuration import Config, Scalar
from fedsim.configuration.federation import OWN
from fedsim.federation.client import admission, client_ledger, kept_models
from fedsim.federation.client.client_ledger import AnsweredMessage
from fedsim.federation.client.kept_models import AnsweredTraining, SeenTraining
from fedsim.federation.protocol import consent
from fedsim.federation.protocol.consent import RefusedError, Terms
from fedsim.game import federation
from fedsim.game.federation import Federation
from fedsim.learning.training.clipped_block import MARGIN
from fedsim.privacy import identifiability, risks
from fedsim.privacy.mechanism import Mechanism, sensitivity

WHOLE = (1 - MARGIN) * (1 - 1e-6)
"""A gradient counts as clipped from this share of the bound on, because of rounding."""

SHOWN = 10


@dataclass(frozen=True)
class Signal:
    """The signal mu of a record, and what it means."""

    mu: float
    epsilon: float
    advantage: float

    @classmethod
    def of(cls, mu: float, delta: float) -> "Signal":
        return cls(mu, gaussian.epsilon(mu, delta), gaussian.advantage(mu))


@dataclass(frozen=True)
class ExposedRecord(Signal):
    """The signal of one record, by its position among the client's."""

    record: int = 0


@dataclass(frozen=True)
class Exposure:
    """Exposure of a client's records by a training.

    Attributes:
        rounds: rounds whose models were kept.
        answered: number of all rounds that were answered. In a round whose model was not kept,
            every record counts as clipped.
        clipped_share: share of the records whose gradients were clipped, for each of `rounds`.
        median: signal that half of the records do not exceed; under "replace", towards a
            replacement that differs most.
        allowed: signal of a record whose gradient is clipped in all rounds.
        most_exposed: the `SHOWN` most exposed records, the highest signal first.
    """

    rounds: list[int]
    answered: int
    clipped_share: list[float]
    median: Signal
    highest: Signal
    allowed: Signal
    most_exposed: list[ExposedRecord]


@dataclass(frozen=True)
class ClientTraining:
    """A training of the client.

    Attributes:
        gone: whether data-path no longer holds the records that took part; nothing is measured.
        records: number of records that took part.
        advantage_bound: largest advantage by the charged noise; None if nothing was charged.
        risks: success of an attack without the model, and its largest success with it.
        exposure: None if nothing is measured, or the noise protects the client as a whole.
    """

    run: str
    name: str
    gone: bool
    records: int = 0
    sampling_rate: float = 1.0
    advantage_bound: float | None = None
    risks: Sequence[tuple[float, float]] = ()
    exposure: Exposure | None = None


@dataclass(frozen=True)
class ClientBudget:
    """What all answers cost each record, and the client's limits.

    Attributes:
        client_epsilon: for all records of the client together; None for noise of single records.
    """

    epsilon: float
    epsilon_limit: float
    delta: float
    answers: int
    client_epsilon: float | None = None


@dataclass(frozen=True)
class RunCost:
    """The answers of a client in one run.

    Attributes:
        models_kept: rounds whose models were kept, from which the exposure is measured.
        epsilon_after: of this run and all before it.
    """

    run: str
    name: str
    first: str
    last: str
    rounds: int
    models_kept: int
    trials: int
    noise_multiplier: float
    unit: str
    records: str
    charged: bool
    epsilon: float
    epsilon_after: float


@dataclass(frozen=True)
class ClientReport:
    """A client's own report; created: time in UTC, as ISO 8601."""

    created: str
    client: int
    budget: ClientBudget
    runs: Sequence[RunCost]
    trainings: Sequence[ClientTraining]

    def as_json(self) -> dict[str, Any]:
        """Return the report for JSON, but with infinite floats."""
        return {"kind": KIND, **asdict(self)}


def measurable(config: Config) -> bool:
    """Return whether the noise of a training hides the gradients of single records."""
    single = config.privacy.unit == "record" and config.training.local_steps == 1
    return single and config.training.clipping


def measure(
    training: AnsweredTraining, data: Federation, partition: int, delta: float, alone: bool = False
) -> Exposure:
    """Return the exposure towards the adversary who sees most of the client's messages.

    alone: from `admission.read_alone`.
    """
    config = training.last.config
    clipping_norm = config.training.clipping_norm
    largest = sensitivity(config.privacy.neighbouring, clipping_norm)
    features, labels = data.members(data.owned_by(partition))
    longest = data.clipper.longest(labels).cpu().numpy()
    squares, everybody = np.zeros(len(labels)), 0.0
    rounds, clipped = list[int](), list[float]()
    for answer in training.answers:
        faced = admission.released(config, answer.noise_multiplier, 1, alone)
        norms = longest
        if (model := training.model(answer)) is not None:
            theta = torch.from_numpy(model).to(data.device)[None]
            norms = data.clipper.clipped_distances(theta, features, labels)[0].cpu().numpy()
            rounds.append(answer.round)
            clipped.append(float((norms >= WHOLE * longest).mean()))
        # Another record in this one's place has a gradient of length C in the opposite direction.
        std = faced.noise_multiplier * largest
        squares += ((norms + largest - clipping_norm) / std) ** 2
        everybody += (largest / std) ** 2
    mu = np.sqrt(squares)
    # Many gradients may be clipped, and then have equal lengths up to rounding.
    order = np.argsort(-np.round(mu, 9), kind="stable")
    most = [
        ExposedRecord(**asdict(Signal.of(float(mu[place]), delta)), record=int(place))
        for place in order[:SHOWN]
    ]
    median, allowed = float(np.median(mu)), math.sqrt(everybody)
    highest = Signal.of(float(mu[order[0]]), delta)
    middle, most_allowed = Signal.of(median, delta), Signal.of(allowed, delta)
    answered = len(training.answers)
    return Exposure(rounds, answered, clipped, middle, highest, most_allowed, most)


KIND = "client's own report"


@dataclass(frozen=True)
class ClientNode:
    """A client's node as its owner configured it; the path of its ledger is absolute."""

    values: Mapping[str, Scalar]
    terms: Terms
    partition: int
    data: str
    code: str

    @classmethod
    def of(cls, values: dict[str, Scalar], work: Path) -> "ClientNode":
        try:
            terms = consent.terms(values) if "partition-id" in values else None
        except RefusedError as error:
            raise InputError(f"node.toml: {error}") from None
        if terms is None:
            raise InputError(
                "this is not the node of a client with a ledger; its node.toml needs partition-id, "
                "consent and state-path"
            )
        data = str(values.get(consent.DATA, ""))
        if data and not registry.is_code(data):
            data = str((work / data).resolve())
        state = (work / terms.state).resolve()
        absolute = values | {consent.STATE: str(state)}
        partition, code = int(values["partition-id"]), str(values.get(consent.CODE, ""))
        return cls(absolute, replace(terms, state=state), partition, data, code)


def assemble(node: ClientNode) -> ClientReport:
    registry.allow(node.code.split(","))
    answers = client_ledger.read_answers(node.terms.state)
    kept = {each.run: each for each in kept_models.read_seen(node.terms.state)}
    together: dict[str, list[AnsweredMessage]] = {}
    for answer in answers:  # an interrupted training goes on in another run
        together.setdefault(answer.experiment, []).append(answer)
    trainings = [
        AnsweredTraining(mine, seen)
        for mine in together.values()
        if (seen := {each.run: kept[each.run] for each in mine if each.run in kept})
    ]
    measured = [_measured(node, training) for training in trainings]
    limit, delta = node.terms.epsilon_limit, node.terms.delta_limit
    budget = ClientBudget(
        client_ledger.epsilon(answers, delta),
        limit,
        delta,
        len(answers),
        client_ledger.epsilon_of_client(answers, delta),
    )
    created = datetime.now(UTC).isoformat(timespec="seconds")
    return ClientReport(
        created, node.partition, budget, list(_runs(answers, kept, delta)), measured
    )


def _runs(
    answers: Sequence[AnsweredMessage], kept: Mapping[str, SeenTraining], delta: float
) -> Iterator[RunCost]:
    earlier: list[AnsweredMessage] = []
    for run, group in groupby(answers, key=lambda answer: answer.run):
        mine = list(group)
        earlier += mine
        yield RunCost(
            run,
            mine[0].name,
            mine[0].time,
            mine[-1].time,
            rounds=len(rounds := {answer.round for answer in mine}),
            models_kept=len(rounds & kept[run].models.keys()) if run in kept else 0,
            trials=len({trial for answer in mine for trial in answer.trial_numbers}),
            noise_multiplier=mine[0].noise_multiplier,
            unit=mine[0].unit,
            records=mine[-1].records,
            charged=any(answer.charged for answer in mine),
            epsilon=client_ledger.epsilon(mine, delta),
            epsilon_after=client_ledger.epsilon(earlier, delta),
        )


def _measured(node: ClientNode, training: AnsweredTraining) -> ClientTraining:
    mine, last = training.answers, training.last
    config, data = last.config, _records_of(node, last, mine[-1].records)
    if data is None:
        return ClientTraining(last.run, config.run.name, gone=True)
    charged = tuple(answer.charged for answer in mine if answer.charged is not None)
    exposure = None
    if measurable(config):
        alone = admission.read_alone(config, node.values)
        exposure = measure(training, data, node.partition, node.terms.delta_limit, alone)
    result = ClientTraining(
        last.run,
        config.run.name,
        gone=False,
        records=len(data.owned_by(node.partition)),
        sampling_rate=config.training.sampling_rate,
        exposure=exposure,
    )
    if not charged:  # noise of a seed is no release that is charged, and hides nothing
        return result
    mechanism = Mechanism(charged, mine[0].neighbouring)
    most, at_most = identifiability.rho_alpha(mechanism), risks.success_by_baseline(mechanism)
    return replace(result, advantage_bound=most, risks=at_most)


def _records_of(node: ClientNode, training: SeenTraining, digest: str) -> Federation | None:
    config = training.config.reading_data_from(node.data, offline=True)
    own = node.partition if config.data.name == OWN else None
    try:
        data = federation.load(config, own)
    except InputError:
        return None
    if admission.records_digest(data, node.partition) != digest:
        return None
    return data
