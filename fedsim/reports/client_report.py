"""A client's own report: its releases, their cost, and the exposure of its records.

It is for the client's owner and must not leave the machine: its numbers about single records have
no noise.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from itertools import groupby
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch

from adversaries import registry
from adversaries.errors import InputError
from adversaries.statistics import gaussian
from fedsim.audits.results.verdicts import NOT_MEASURED
from fedsim.common import report_directory
from fedsim.common.strict_json import report_json
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
from fedsim.reports.document import blocks as doc
from fedsim.reports.document import html
from fedsim.reports.document.first_screen import share
from fedsim.reports.document.wording import counted, number, percent

KIND = "client's own report"
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
    def of(cls, mu: float, delta: float) -> Self:
        return cls(mu, gaussian.epsilon(mu, delta), gaussian.advantage(mu))


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
        most_exposed: the `SHOWN` most exposed records, each with its signal and its position among
            the client's, the highest signal first.
    """

    rounds: list[int]
    answered: int
    clipped_share: list[float]
    median: Signal
    highest: Signal
    allowed: Signal
    most_exposed: list[dict[str, Any]]


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
class ClientReport:
    """A client's own report.

    Attributes:
        created: time in UTC, as ISO 8601.
        runs: the answers of the client in each run; models_kept: rounds whose models were kept,
            from which the exposure is measured; epsilon_after: of this run and all before it.
    """

    created: str
    client: int
    budget: ClientBudget
    runs: Sequence[Mapping[str, Any]]
    trainings: Sequence[ClientTraining]

    def as_json(self) -> dict[str, Any]:
        """Return the report for JSON, but with infinite floats."""
        return {"kind": KIND, **asdict(self)}


# What is measured


@dataclass(frozen=True)
class _Node:
    """A client's node as its owner configured it; its paths are absolute."""

    values: Mapping[str, Scalar]
    terms: Terms
    partition: int
    data: str

    @classmethod
    def of(cls, values: Mapping[str, Scalar], work: Path) -> Self:
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
        absolute = {**values, consent.STATE: str(state)}
        return cls(absolute, replace(terms, state=state), int(values["partition-id"]), data)


def assemble(values: Mapping[str, Scalar], work: Path) -> ClientReport:
    """Return the report of a client.

    values: of its node.toml; work: the folder from which its relative paths start.
    Raises InputError if it is no client with a ledger, or a file is damaged.
    """
    node = _Node.of(values, work)
    registry.allow(str(values.get(consent.CODE, "")).split(","))
    answers = client_ledger.read_answers(node.terms.state)
    kept = {each.run: each for each in kept_models.read_seen(node.terms.state)}
    together: dict[str, list[AnsweredMessage]] = {}
    for answer in answers:  # an interrupted training goes on in another run
        together.setdefault(answer.experiment, []).append(answer)
    trainings = [
        _training(node, AnsweredTraining(mine, seen))
        for mine in together.values()
        if (seen := {each.run: kept[each.run] for each in mine if each.run in kept})
    ]
    delta = node.terms.delta_limit
    budget = ClientBudget(
        client_ledger.epsilon(answers, delta),
        node.terms.epsilon_limit,
        delta,
        len(answers),
        client_ledger.epsilon_of_client(answers, delta),
    )
    created = datetime.now(UTC).isoformat(timespec="seconds")
    runs = [*_runs(answers, kept, delta)]
    return ClientReport(created, node.partition, budget, runs, trainings)


def _runs(
    answers: Sequence[AnsweredMessage], kept: Mapping[str, SeenTraining], delta: float
) -> Iterator[dict[str, Any]]:
    earlier: list[AnsweredMessage] = []
    for run, group in groupby(answers, key=lambda answer: answer.run):
        mine = list(group)
        earlier += mine
        rounds = {answer.round for answer in mine}
        yield {
            "run": run,
            "name": mine[0].name,
            "first": mine[0].time,
            "last": mine[-1].time,
            "rounds": len(rounds),
            "models_kept": len(rounds & kept[run].models.keys()) if run in kept else 0,
            "trials": len({trial for answer in mine for trial in answer.trial_numbers}),
            "noise_multiplier": mine[0].noise_multiplier,
            "unit": mine[0].unit,
            "records": mine[-1].records,
            "charged": any(answer.charged for answer in mine),
            "epsilon": client_ledger.epsilon(mine, delta),
            "epsilon_after": client_ledger.epsilon(earlier, delta),
        }


def _training(node: _Node, training: AnsweredTraining) -> ClientTraining:
    mine, last = training.answers, training.last
    config, data = last.config, _records_of(node, last, mine[-1].records)
    if data is None:
        return ClientTraining(last.run, config.run.name, gone=True)
    result = ClientTraining(
        last.run,
        config.run.name,
        gone=False,
        records=len(data.owned_by(node.partition)),
        sampling_rate=config.training.sampling_rate,
        exposure=_exposure(node, training, data) if _measurable(config) else None,
    )
    charged = tuple(answer.charged for answer in mine if answer.charged is not None)
    if not charged:  # noise of a seed is no release that is charged, and hides nothing
        return result
    mechanism = Mechanism(charged, mine[0].neighbouring)
    most, at_most = identifiability.rho_alpha(mechanism), risks.success_by_baseline(mechanism)
    return replace(result, advantage_bound=most, risks=at_most)


def _records_of(node: _Node, training: SeenTraining, digest: str) -> Federation | None:
    config = training.config.reading_data_from(node.data, offline=True)
    own = node.partition if config.data.name == OWN else None
    try:
        data = federation.load(config, own)
    except InputError:
        return None
    return data if admission.records_digest(data, node.partition) == digest else None


def _measurable(config: Config) -> bool:
    """Return whether the noise of a training hides the gradients of single records."""
    single = config.privacy.unit == "record" and config.training.local_steps == 1
    return single and config.training.clipping


def _exposure(node: _Node, training: AnsweredTraining, data: Federation) -> Exposure:
    """Return the exposure towards the adversary who sees most of the client's messages."""
    config, delta = training.last.config, node.terms.delta_limit
    alone = admission.read_alone(config, node.values)
    clipping_norm = config.training.clipping_norm
    largest = sensitivity(config.privacy.neighbouring, clipping_norm)
    features, labels = data.members(data.owned_by(node.partition))
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
    order = np.argsort(-np.round(mu, 9), kind="stable")[:SHOWN]
    return Exposure(
        rounds,
        len(training.answers),
        clipped,
        median=Signal.of(float(np.median(mu)), delta),
        highest=Signal.of(float(mu[order[0]]), delta),
        allowed=Signal.of(math.sqrt(everybody), delta),
        most_exposed=[
            {**asdict(Signal.of(float(mu[place]), delta)), "record": int(place)} for place in order
        ],
    )


# What is said

CONFIDENTIAL = (
    "Keep this report on this machine. Its numbers about single records have no noise, and they "
    "are not a guarantee."
)
COST = (
    "In {runs}, this client answered {answers}. This cost each of its records epsilon {epsilon}, "
    "of a budget of {limit}, at delta {delta:g}."
)
TOGETHER = " For all its records together, it is {}."
EXPOSED = (
    "The numbers are for the adversary with the best view of this client's messages. They follow "
    "from the length of each record's clipped gradients in all rounds that were answered. "
    "“Allowed” is for a record whose gradient is clipped in all of these rounds."
)
GONE = (
    "{name}: data-path no longer holds the records that took part, so their exposure is not "
    "measured."
)
WHOLE_CLIENT = (
    "The noise of this training protects the client as a whole, so the exposure of single records "
    "is not measured."
)
CLIPPED = "Of the gradients of {records} records in {rounds}, {share} were clipped."
NOT_KEPT = (
    "Of {answered}, the models of {lost} were not kept. There every record counts as clipped, so "
    "these numbers are upper limits."
)
AT_RANDOM = (
    "Records took part at random. These numbers assume a record that took part in every round, so "
    "they are upper limits."
)
LEFT = "About ε = {} of the budget is left for further trainings."
SPENT = "The budget is spent: join no further training, or agree to a larger budget."

MOST, RUN = 5, "{name} ({run})"
HOW = ("", "μ", "ε", "advantage")
RUNS = ("run", "first", "last", "rounds", "models kept", "trials", "noise multiplier", "its ε")


def write(report: ClientReport, directory: Path) -> Path:
    """Write report.json and report.html; return the page."""
    report_directory.create(directory)
    page = html.page(told(report))
    return report_directory.write_report(directory, report_json(report.as_json()), page)


def told(report: ClientReport) -> doc.Told:
    """Return what a client released, for its owner alone."""
    budget, trainings = report.budget, report.trainings
    cost = COST.format(
        runs=counted(len(report.runs), "run"),
        answers=counted(budget.answers, "message"),
        epsilon=number(budget.epsilon),
        limit=number(budget.epsilon_limit),
        delta=budget.delta,
    )
    if budget.client_epsilon is not None:
        cost += TOGETHER.format(number(budget.client_epsilon))
    left = budget.epsilon_limit - budget.epsilon
    runs = [
        [RUN.format(**run), number(run["epsilon"]), number(run["epsilon_after"])]
        for run in report.runs[-MOST:]
    ]
    return doc.Told(
        kind="Client's own report",
        name=f"Client {report.client}",
        report=report.as_json(),
        played=counted(len(report.runs), "run"),
        answer=[cost, *(each for one in trainings for each in _found(one))],
        alarming=left < 0,
        observers=[bar for training in trainings[-MOST:] for bar in _bars(training)],
        caption="Largest share of right answers about one of this client's records.",
        table=doc.tabulated(("Run", "Its ε", "ε so far"), runs) if runs else None,
        cautions=[CONFIDENTIAL],
        steps=[LEFT.format(number(left)) if left > 0 else SPENT],
        sections=lambda: [*_sections(report)],
        data=f"the records of client {report.client}",
        date=report.created[:10],
        limits="This page is about what left this machine. It is not a guarantee.",
    )


def _found(training: ClientTraining) -> Iterator[str]:
    exposure = training.exposure
    if training.gone:
        yield GONE.format(name=training.name)
    elif exposure is None:
        yield WHOLE_CLIENT
    else:
        if kept := len(exposure.rounds):
            clipped = percent(float(np.mean(exposure.clipped_share)))
            rounds = counted(kept, "round")
            yield CLIPPED.format(records=training.records, rounds=rounds, share=clipped)
        if lost := exposure.answered - kept:
            yield NOT_KEPT.format(answered=counted(exposure.answered, "answered round"), lost=lost)
        if training.sampling_rate < 1:
            yield AT_RANDOM


def _bars(training: ClientTraining) -> Iterator[doc.Bar]:
    limit = None if training.advantage_bound is None else share(training.advantage_bound)
    if training.exposure is not None:
        mark = doc.Mark(NOT_MEASURED.kind, NOT_MEASURED.text)
        bar, most = f"{training.name}: most exposed record", training.exposure.highest.advantage
        yield doc.Bar(bar, mark, share(most), None, limit, how="its gradients allow")


def _sections(report: ClientReport) -> Iterator[doc.Block]:
    rows = [
        [
            *(RUN.format(**run), run["first"], run["last"]),
            *(str(run[name]) for name in ("rounds", "models_kept", "trials")),
            number(run["noise_multiplier"]),
            number(run["epsilon"]) if run["charged"] else "not charged",
            number(run["epsilon_after"]),
        ]
        for run in report.runs
    ]
    yield doc.Heading("Releases")
    yield doc.tabulated((*RUNS, "ε so far"), rows)
    for training in report.trainings:
        if (exposure := training.exposure) is None:
            continue
        signals = {
            "half of the records, at most": exposure.median,
            "the most exposed record": exposure.highest,
            "allowed": exposure.allowed,
        }
        yield doc.Heading(f"{training.name}: exposure of single records")
        yield doc.Prose(EXPOSED)
        yield doc.tabulated(HOW, [[name, *_how(asdict(one))] for name, one in signals.items()])
        records = [[str(one["record"]), *_how(one)] for one in exposure.most_exposed]
        yield doc.tabulated(("record", *HOW[1:]), records)


def _how(signal: Mapping[str, float]) -> list[str]:
    return [number(signal[name]) for name in ("mu", "epsilon", "advantage")]
