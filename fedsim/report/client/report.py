"""A client's own report: its releases, their cost, and the exposure of its records.

It must not leave the machine: its numbers about single records have no noise.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from adversaries import registry
from adversaries.attacks import roc
from adversaries.errors import InputError
from adversaries.statistics import gaussian
from fedsim.config import Scalar
from fedsim.config.federation import OWN
from fedsim.config.objects import Scheme
from fedsim.federation.client import admission, client_ledger, holding_back, seen_models
from fedsim.federation.client.client_ledger import Answer
from fedsim.federation.client.seen_models import SeenTraining
from fedsim.federation.protocol import consent
from fedsim.federation.protocol.consent import RefusedError, Terms
from fedsim.game import federation, record_display
from fedsim.game.federation import Federation
from fedsim.learning.data import own_records, schema
from fedsim.learning.training import saved_model
from fedsim.learning.training.clipped_block import MARGIN
from fedsim.learning.training.tasks import task_of
from fedsim.privacy import identifiability, risks
from fedsim.privacy.mechanism import Mechanism, sensitivity

Floats = npt.NDArray[np.float64]
WHOLE = (1 - MARGIN) * (1 - 1e-6)
"""A gradient counts as clipped from this share of the bound on, because of rounding."""

SHOWN = 10
NEEDED = 20


@dataclass(frozen=True, eq=False)
class Exposure:
    """Exposure of a client's n records by a training.

    Attributes:
        rounds: rounds whose models were kept, int64 [k].
        clipped: share of the records whose gradients were clipped, float64 [k].
        mu: signal of every record, float64 [n].
        everybody: mu of a record that is clipped in every one of these rounds.
    """

    rounds: npt.NDArray[np.int64]
    clipped: Floats
    mu: Floats
    everybody: float


def measurable(scheme: Scheme) -> bool:
    """Return whether the noise of a training hides the gradients of single records."""
    single = scheme.privacy.unit == "record" and scheme.training.local_steps == 1
    return single and scheme.training.clipping


def measure(
    training: SeenTraining, data: Federation, partition: int, noise_multiplier: float
) -> Exposure:
    """Return the exposure towards the adversary who sees most of the client's messages."""
    config = training.config
    faced = admission.released(config.scheme, noise_multiplier, 1).noise_multiplier
    clipping_norm = config.training.clipping_norm
    std = faced * sensitivity(config.privacy.neighbouring, clipping_norm)
    features, labels = data.members(data.owned_by(partition))
    each = torch.arange(len(labels), device=data.device)[None, :, None]
    squares, clipped = np.zeros(len(labels)), list[float]()
    for round in training.models:
        model = torch.from_numpy(training.model(round)).to(data.device)[None]
        norms = data.clipper.clipped_distances(model, features, labels, each)[0].cpu().numpy()
        squares += (norms / std) ** 2
        clipped.append(float((norms >= WHOLE * clipping_norm).mean()))
    rounds = np.array(list(training.models), dtype=np.int64)
    everybody = math.sqrt(len(rounds)) * clipping_norm / std
    return Exposure(rounds, np.array(clipped), np.sqrt(squares), everybody)


def as_json(exposure: Exposure, delta: float) -> dict[str, Any]:
    # Many gradients may be clipped, and then have equal lengths up to rounding.
    order = np.argsort(-np.round(exposure.mu, 9), kind="stable")

    def stated(mu: float) -> dict[str, float]:
        epsilon, advantage = gaussian.epsilon(mu, delta), gaussian.advantage(mu)
        return {"mu": mu, "epsilon": epsilon, "advantage": advantage}

    return {
        "rounds": exposure.rounds.tolist(),
        "clipped_share": exposure.clipped.tolist(),
        "median": stated(float(np.median(exposure.mu))),
        "highest": stated(float(exposure.mu[order[0]])),
        "allowed": stated(exposure.everybody),
        "most_exposed": [
            {"record": int(place), **stated(float(exposure.mu[place]))} for place in order[:SHOWN]
        ],
    }


def attacked(own: Floats, others: Floats) -> dict[str, Any] | None:
    """Return how well losses separate own records [n] from others [h]; None with too few records.

    The advantage is that of the best threshold; one model gives no interval. Source: Yeom et al.,
    "Privacy risk in machine learning", 2018.
    """
    if min(own.size, others.size) < NEEDED:
        return None
    scores = -np.concatenate([own, others])
    curve = roc.curve(scores[None], (np.arange(scores.size) < own.size)[None])
    return {
        "members": own.size,
        "others": others.size,
        "area": curve.area,
        "advantage": float((curve.true_positive - curve.false_positive).max()),
    }


Report = dict[str, Any]
KIND = "client's own report"


@dataclass(frozen=True)
class Node:
    """A client's node as its owner configured it; the path of its ledger is absolute."""

    values: Mapping[str, Scalar]
    terms: Terms
    partition: int
    data: str
    code: str

    @classmethod
    def of(cls, values: dict[str, Scalar], work: Path) -> "Node":
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


def assemble(node: Node, others: str = "", model: Path | None = None) -> Report:
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
    earlier: list[Answer] = []
    for run, group in groupby(answers, key=lambda answer: answer.run):
        mine = list(group)
        earlier += mine
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
            "epsilon_after": client_ledger.epsilon(earlier, delta),
        }


def _measured(
    node: Node, training: SeenTraining, answers: Sequence[Answer], others: str, model: Path | None
) -> Iterator[Report]:
    mine = [answer for answer in answers if answer.run == training.run]
    if not mine or not training.models:
        return
    config, data = training.config, _records_of(node, training, mine[-1].records)
    if data is None:
        yield {"run": training.run, "name": config.run.name, "gone": True}
        return
    charged = [answer.charged for answer in mine if answer.charged is not None]
    records = data.owned_by(node.partition)
    exposed = shown = None
    if measurable(config.scheme):
        exposure = measure(training, data, node.partition, mine[0].noise_multiplier)
        exposed = as_json(exposure, node.terms.delta_limit)
        if data.split.dataset.name == OWN:
            most = exposed["most_exposed"][0]["record"]
            shown = record_display.shown(data.split, int(records[most]))
    mechanism = Mechanism(tuple(charged), mine[0].neighbouring)
    yield {
        "run": training.run,
        "name": config.run.name,
        "gone": False,
        "records": len(records),
        "sampling_rate": config.training.sampling_rate,
        "advantage_bound": identifiability.rho_alpha(mechanism) if charged else None,
        "risks": risks.success_by_baseline(mechanism) if charged else [],
        "exposure": exposed,
        "shown": shown,
        "attack": _attack(node, training, data, others, model),
    }


def _records_of(node: Node, training: SeenTraining, digest: str) -> Federation | None:
    config = training.config.reading_data_from(node.data, offline=True)
    own = node.partition if config.data.name == OWN else None
    try:
        data = federation.load(config.experiment, own)
    except InputError:
        return None
    if admission.records_digest(data, node.partition) != digest:
        return None
    # Records that were held back to measure the model took part in no round.
    share = config.federation.measures_share
    try:
        return holding_back.trained_on(data, node.partition, node.values, share, config.run.seed)
    except RefusedError as error:
        raise InputError(f"node.toml: {error}") from None


def _attack(
    node: Node, training: SeenTraining, data: Federation, others: str, model: Path | None
) -> Report | None:
    config = training.config
    features, labels = data.members(data.owned_by(node.partition))
    if others and config.data.name == OWN:
        agreed = schema.parse(config.data.public_schema)
        others_records = own_records.records(others, agreed, directory=config.model.weights)
        apart = torch.tensor(others_records.features), torch.tensor(others_records.labels)
    else:
        apart = data.held_out()
    if not len(apart[1]):
        return None
    last = max(training.models)
    of = "the released model" if model else f"the model that round {last} began with"
    if model is None:
        parameters = torch.from_numpy(training.model(last)).to(data.device)[None]
        own, other = (
            data.evaluate(parameters, *(each.to(data.device) for each in records))[0][0]
            for records in ((features, labels), apart)
        )
    else:
        module = saved_model.load(model)
        own, other = (_losses(module, *records) for records in ((features, labels), apart))
    result = attacked(*(each.double().cpu().numpy() for each in (own, other)))
    return None if result is None else {"model": of, **result}


@torch.no_grad()
def _losses(module: torch.nn.Module, features: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    return task_of(module).loss(module(features.cpu()), labels.cpu())


def shares(report: Report) -> Iterator[tuple[str, np.ndarray, np.ndarray]]:
    """Yield the name of each training, its rounds [k], and the share of clipped gradients [k]."""
    for training in report["trainings"]:
        if (exposure := training.get("exposure")) is not None:
            rounds, clipped = exposure["rounds"], exposure["clipped_share"]
            yield training["name"], np.array(rounds), np.array(clipped)
