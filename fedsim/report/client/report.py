"""A client's own report: what it released, when, at what cost, and how exposed its records are.

For the owner of one node, on its machine. Nothing of it may leave: what it says of single records
is hidden by no noise.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.console import RenderableType

from adversaries import registry
from adversaries.errors import InputError
from fedsim.common import report_directory
from fedsim.common.strict_json import report_json
from fedsim.config import Config, Scalar
from fedsim.config.federation import OWN
from fedsim.federation.client import admission, client_ledger, holding_back, seen_models
from fedsim.federation.client.client_ledger import Answer
from fedsim.federation.client.seen_models import SeenTraining
from fedsim.federation.protocol import consent
from fedsim.federation.protocol.consent import RefusedError, Terms
from fedsim.game import federation
from fedsim.game.federation import Federation
from fedsim.learning.data import own_records, schema
from fedsim.learning.training import saved_model
from fedsim.learning.training.tasks import task_of
from fedsim.privacy import identifiability
from fedsim.privacy.mechanism import Mechanism
from fedsim.report.client import exposure
from fedsim.report.document import terminal
from fedsim.report.document.blocks import (
    Block,
    Document,
    Figure,
    FirstScreen,
    Heading,
    Label,
    Prose,
    tabulated,
)
from fedsim.report.document.html import render
from fedsim.report.document.wording import number, percent
from fedsim.report.figures import training_figures

Report = dict[str, Any]

KIND = "client's own report"


@dataclass(frozen=True)
class Node:
    """A client's node as its owner configured it.

    Attributes:
        values: of its node.toml, with the absolute path of the ledger's folder.
        terms: what its owner agreed to, as these say.
    """

    values: Mapping[str, Scalar]
    terms: Terms
    partition: int
    data: str
    code: str

    @classmethod
    def of(cls, values: dict[str, Scalar], work: Path) -> "Node":
        """Return the node of a node.toml.

        Raises:
            InputError: it is no client's, or says what means nothing.
        """
        try:
            terms = consent.terms(values) if "partition-id" in values else None
        except RefusedError as error:
            raise InputError(f"node.toml: {error}") from None
        if terms is None:
            raise InputError(
                "this is not the node of a client with a ledger: its node.toml needs partition-id, "
                "consent and state-path"
            )
        data = str(values.get(consent.DATA, ""))
        if data and not registry.is_code(data):
            data = str((work / data).resolve())
        state = (work / terms.state).resolve()
        absolute = values | {consent.STATE: str(state)}
        partition, code = int(values["partition-id"]), str(values.get(consent.CODE, ""))
        return cls(absolute, replace(terms, state=state), partition, data, code)


def assemble(node: Node, others: str = "", model: Path | None = None) -> Report:
    """Return what a client's node has released, and how exposed its records are.

    Args:
        others: where records lie that took no part in any training; "" for none.
        model: the directory of the last training's released model; None for the last that the
            client was sent.
    """
    registry.allow(node.code.split(","))
    answers = client_ledger.read(node.terms.state)
    trainings = seen_models.read(node.terms.state)
    spent = client_ledger.epsilon(answers, node.terms.delta_limit)
    measured: list[Report] = []
    for training in trainings:
        last = training is trainings[-1]
        measured += _measured(node, training, answers, others, model if last else None)
    return {
        "kind": KIND,
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "client": node.partition,
        "budget": {
            "epsilon": spent,
            "epsilon_limit": node.terms.epsilon_limit,
            "delta": node.terms.delta_limit,
            "answers": len(answers),
        },
        "runs": list(_runs(answers, node.terms.delta_limit)),
        "trainings": measured,
    }


def _runs(answers: Sequence[Answer], delta: float) -> Iterator[Report]:
    """Yield what each run was given, and what all have cost by its end."""
    seen: list[Answer] = []
    for run, group in groupby(answers, key=lambda answer: answer.run):
        mine = list(group)
        seen += mine
        yield {
            "run": run,
            "name": mine[0].name,
            "first": mine[0].time,
            "last": mine[-1].time,
            "rounds": len({answer.round for answer in mine if not answer.measured}),
            "trials": len({trial for answer in mine for trial in answer.trial_numbers}),
            "noise_multiplier": mine[0].noise_multiplier,
            "unit": mine[0].unit,
            "records": mine[-1].records,
            "charged": any(answer.charged or answer.measured for answer in mine),
            "epsilon": client_ledger.epsilon(mine, delta),
            "epsilon_after": client_ledger.epsilon(seen, delta),
        }


def _measured(
    node: Node,
    training: SeenTraining,
    answers: Sequence[Answer],
    others: str,
    model: Path | None,
) -> Iterator[Report]:
    """Yield what one training shows of the records, if the ledger has it and models were kept."""
    mine = [answer for answer in answers if answer.run == training.run]
    if not mine or not training.models:
        return
    config = training.config.reading_data_from(node.data, as_they_are=True)
    known = _records_of(node, config, mine[-1].records)
    if known is None:
        yield {"run": training.run, "name": config.run.name, "gone": True}
        return
    charged = [answer.charged for answer in mine if answer.charged is not None]
    exposed = None
    if exposure.measurable(config):
        found = exposure.measure(training, known, node.partition, mine[0].noise_multiplier)
        exposed = exposure.as_json(found, node.terms.delta_limit)
    mechanism = Mechanism(tuple(charged), mine[0].neighbouring)
    yield {
        "run": training.run,
        "name": config.run.name,
        "gone": False,
        "records": len(known.owned_by(node.partition)),
        "sampling_rate": config.training.sampling_rate,
        "advantage_bound": identifiability.rho_alpha(mechanism) if charged else None,
        "exposure": exposed,
        "attack": _attack(node, training, known, others, model),
    }


def _records_of(node: Node, config: Config, digest: str) -> Federation | None:
    """Return the records that took part in a training; None where others lie there by now."""
    try:
        known = federation.load(config, node.partition if config.data.name == OWN else None)
    except InputError:
        return None
    if admission.records_digest(known, node.partition) != digest:
        return None
    # Those held back to measure the model were in no round.
    share = config.federation.measures_share
    try:
        return holding_back.trained_on(known, node.partition, node.values, share, config.run.seed)
    except RefusedError as error:
        raise InputError(f"node.toml: {error}") from None


def _attack(
    node: Node, training: SeenTraining, known: Federation, others: str, model: Path | None
) -> Report | None:
    """Return how well losses tell the client's records from others; None without others."""
    config = training.config
    features, labels = known.members(known.owned_by(node.partition))
    if others and config.data.name == OWN:
        agreed = schema.parse(config.data.public_schema)
        found = own_records.records(others, agreed, directory=config.model.weights)
        apart = torch.tensor(found.features), torch.tensor(found.labels)
    else:
        apart = known.held_out()
    if not len(apart[1]):
        return None
    last = max(training.models)
    of = "the released model" if model else f"the model that round {last} began with"
    if model is None:
        parameters = torch.from_numpy(training.model(last)).to(known.device)[None]
        own, other = (
            known.evaluate(parameters, *(each.to(known.device) for each in records))[0][0]
            for records in ((features, labels), apart)
        )
    else:
        module = saved_model.load(model)
        own, other = (_losses(module, *records) for records in ((features, labels), apart))
    result = exposure.attacked(*(each.double().cpu().numpy() for each in (own, other)))
    return None if result is None else {"model": of, **result}


@torch.no_grad()
def _losses(module: torch.nn.Module, features: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    return task_of(module).loss(module(features.cpu()), labels.cpu())


def shares(report: Report) -> Iterator[tuple[str, np.ndarray, np.ndarray]]:
    """Yield the name of each training, its rounds [k], and which share of gradients was cut [k]."""
    for training in report["trainings"]:
        if (found := training.get("exposure")) is not None:
            yield training["name"], np.array(found["rounds"]), np.array(found["clipped_share"])


CONFIDENTIAL = (
    "Keep it on this machine: what it says of single records is hidden by no noise, and is no "
    "guarantee to anybody."
)

EXPOSED = (
    "Towards whoever sees most of this client's messages, by the length of each record's clipped "
    "gradients in the rounds above. 'Allowed' is a record that is cut in all of these rounds."
)

Rows = list[list[str]]


def write(report: Report, directory: Path) -> Path:
    """Write report.html and report.json, for their owner alone; return the page."""
    report_directory.create(directory)
    with report_directory.refusing(directory):
        page = render_html(report)
        return report_directory.write_report(directory, report_json(report), page)


def verdict(report: Report) -> str:
    """Return what the client's records have cost so far, in a sentence."""
    budget = report["budget"]
    return (
        f"In {_counted(len(report['runs']), 'run')} this client answered "
        f"{_counted(budget['answers'], 'message')}, which "
        f"cost any one of its records epsilon {number(budget['epsilon'])} of "
        f"{number(budget['epsilon_limit'])} at delta {budget['delta']:g}."
    )


def _counted(count: int, what: str) -> str:
    return f"{count} {what}" + "s" * (count != 1)


def summary(report: Report) -> RenderableType:
    """Return what the terminal shows."""
    parts: list[Block | RenderableType] = [
        Prose(verdict(report)),
        tabulated(RUNS, _run_rows(report)),
    ]
    for training in report["trainings"]:
        if rows := _exposures(training):
            parts.append(terminal.table(tabulated(["", *HOW], rows), training["name"]))
        parts += map(Prose, _said(training))
    return terminal.shown(*parts, Label(CONFIDENTIAL))


def render_html(report: Report) -> str:
    """Return the report as one HTML page that needs no other file, script or network."""
    blocks: list[Block] = [
        Label("", CONFIDENTIAL, alarming=True),
        Heading("What was released, and when"),
        tabulated(RUNS, _run_rows(report)),
    ]
    for training in report["trainings"]:
        blocks.append(Heading(f"{training['name']}: how exposed single records are"))
        if rows := _exposures(training):
            most = tabulated(["record", *HOW], _most(training))
            blocks += [Prose(EXPOSED), tabulated(["", *HOW], rows), most]
        blocks += map(Prose, _said(training))
    for name, rounds, share in shares(report):
        caption = f"{name}: the share of this client's gradients that clipping cut, by round."
        figure = training_figures.clipped_share(rounds, share)
        blocks.append(Figure("clipped", figure, "", caption))
    return render(
        Document(
            title=f"Client {report['client']}: what its records gave away",
            kind="Client's own report",
            heading=f"Client {report['client']}",
            first=FirstScreen([verdict(report)]),
            blocks=blocks,
        )
    )


RUNS = ["run", "first", "last", "rounds", "trials", "noise multiplier", "ε of it", "ε after it"]
HOW = ["μ", "ε", "advantage"]


def _run_rows(report: Report) -> Rows:
    return [
        [
            f"{run['name']} ({run['run']})",
            run["first"],
            run["last"],
            str(run["rounds"]),
            str(run["trials"]),
            number(run["noise_multiplier"]),
            number(run["epsilon"]) if run["charged"] else "not charged",
            number(run["epsilon_after"]),
        ]
        for run in report["runs"]
    ]


def _exposures(training: Report) -> Rows:
    found = training.get("exposure")
    if found is None:
        return []
    names = {"median": "half of the records, at most", "highest": "the most exposed record"}
    names["allowed"] = "allowed"
    return [[said, *_how(found[name])] for name, said in names.items()]


def _most(training: Report) -> Rows:
    found = training.get("exposure")
    return [] if found is None else [[str(one["record"]), *_how(one)] for one in _named(found)]


def _named(found: Report) -> Iterator[Report]:
    yield from found["most_exposed"]


def _how(one: Report) -> list[str]:
    return [number(one["mu"]), number(one["epsilon"]), number(one["advantage"])]


def _said(training: Report) -> Iterator[str]:
    """Yield what is to be known about the numbers of a training."""
    if training["gone"]:
        yield (
            f"{training['name']}: the records that took part are not what data-path names by now; "
            "how exposed they are is not measured."
        )
        return
    found, attack = training["exposure"], training["attack"]
    if found is None:
        yield "Single records are not what the noise of this training hides; they are not measured."
    else:
        share = np.mean(found["clipped_share"])
        yield (
            f"Clipping cut {percent(float(share))} of the gradients of {training['records']} "
            f"records in {len(found['rounds'])} rounds."
        )
        if training["sampling_rate"] < 1:
            yield (
                "Records took part by chance; these numbers are of one that took part in every "
                "round, and so are upper ends."
            )
    if attack is None:
        yield (
            "No attack on a model was run: give records that took no part, 20 at least, with "
            "--others."
        )
    else:
        yield (
            f"By losses of {attack['model']}, {attack['members']} own records are told from "
            f"{attack['others']} others with an area under the curve of {number(attack['area'])} "
            f"and an advantage of {number(attack['advantage'])} at the best threshold (chosen "
            f"afterwards); the noise allows {number(training['advantage_bound'])}."
        )
