"""Broken DP-SGDs and correct ones, played through the real federation and its audit.

A mutant replaces one function by a form that is wrong in the way that somebody's code was, and
leaves everything else as it is: the messages, the adversary, the report. Nothing tells the audit.
"""

import json
import math
from collections.abc import Callable
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
from scipy.special import ndtr

from fedsim import client_app, server_app
from fedsim.audits.run import audit
from fedsim.audits.run.audited_run import AuditedRun
from fedsim.common.randomness import StreamRole, gaussian_noise, generator
from fedsim.configuration import Scalar, from_run_config, to_run_config
from fedsim.federation.client import training_node
from fedsim.federation.protocol import messages
from fedsim.federation.runs import ledger, spending
from fedsim.federation.runs.run_directory import RunDirectory
from fedsim.federation.runtimes.inprocess import InProcessGrid
from fedsim.federation.server import acceptance
from fedsim.federation.server.plan import preflight
from fedsim.federation.server.training import Training
from fedsim.game import federation as federations
from fedsim.game.mechanisms import privacy
from fedsim.learning.training.models import parameter_shapes
from fedsim.privacy import noise as noise_module
from fedsim.privacy.participation import sampling
from fedsim.reports import page

BASE = {
    "data.records": 30,
    "data.held-out": 20,
    "data.pool": 30,
    "federation.clients": 3,
    "model.name": "mlp",
    "model.hidden": 8,
    "training.learning-rate": 0.5,
    "training.clipping-norm": 0.5,
    "privacy.delta": 0.005,
    "challenge.record": 0,
    "audit.evaluated-trials": 2,
    "run.threads": 1,
    "run.device": "cpu",
}

EPOCH = 4
"""Rounds of an epoch, for the mutant that adds noise once in it."""


@dataclass(frozen=True)
class Variant:
    """A DP-SGD: how the configuration differs from BASE, and what is wrong with it, if anything.

    leaks: of a broken one, whether it can tell more of a record than it claims.
    """

    name: str
    changes: dict[str, Scalar] = field(default_factory=dict)
    broken: Callable[[], AbstractContextManager[Any]] = nullcontext
    leaks: bool = True

    @property
    def correct(self):
        """Whether nothing is wrong with it."""
        return self.broken is nullcontext


@dataclass(frozen=True)
class Outcome:
    """What the audit said: the report, and the fewest trials of those asked that raise an alarm."""

    report: dict[str, Any]
    convicting_trials: int | None


def play(variant, directory, trials, rounds, fewer=(), seed=0):
    """Run a variant in process and audit it, also by its first trials alone.

    fewer: how many of them, even numbers.
    """
    sizes = {"trials.count": trials, "training.rounds": rounds, "run.seed": seed}
    config = from_run_config(BASE | sizes | variant.changes)
    run = RunDirectory.create(directory, config)
    # The verdict is in report.json; drawing the page takes ten times as long as a small game.
    with (
        variant.broken(),
        patch.object(page, "write_figures"),
        patch.object(page, "render_html", return_value=""),
    ):
        server_app.carry_out(
            InProcessGrid(client_app.app, config.federation.clients, to_run_config(config)),
            preflight(config),
            run,
        )
        report = json.loads((directory / "report.json").read_text(encoding="utf-8"))
        alarming = (count for count in sorted(fewer) if _alarms(config, run, count))
        convicting = next(alarming, trials if report["alarms"] else None)
    return Outcome(report, convicting)


def _alarms(config, run, trials):
    """Count the alarms of a report on the first trials of a run, half of them of each world."""
    few = config.model_copy(update={"trials": config.trials.model_copy(update={"count": trials})})
    arrays = run.read_arrays("transcript.npz")
    worlds = arrays["worlds"]
    first = np.concatenate([np.flatnonzero(worlds == world)[: trials // 2] for world in (0, 1)])
    transcript = {
        name: array[first] if len(array) == config.trials.count else array
        for name, array in arrays.items()
    }
    found = audit.assemble(
        AuditedRun(
            few,
            run.read_json("facts.json"),
            transcript,
            0.95,
            config.privacy.delta,
            ledger.read(run),
        )
    )
    return found.alarms


def _noise_as(change):
    """Let the server's noise be change(seed, trials, round, partition, size)."""
    return patch.object(noise_module, "gaussian_noise", change)


def no_noise():
    """Forget the noise."""
    return _noise_as(lambda _seed, trials, _round, _partition, size: np.zeros((len(trials), size)))


def noise_of(share):
    """Add noise of a share of the standard deviation that is accounted for."""
    return _noise_as(lambda *stream: gaussian_noise(*stream) * share)


def half_the_noise():
    """Add noise of half the standard deviation that is accounted for."""
    return noise_of(0.5)


def uniform_noise():
    """Add uniform noise of the standard deviation that is accounted for, which hides no outlier."""
    return _noise_as(lambda *stream: math.sqrt(12) * (ndtr(gaussian_noise(*stream)) - 0.5))


def laplace_noise():
    """Add Laplace's noise of the standard deviation that is accounted for."""

    def noise(*stream):
        normal = gaussian_noise(*stream)
        return -np.sign(normal) * np.log(2 * ndtr(-np.abs(normal))) / math.sqrt(2)

    return _noise_as(noise)


def noise_once_per_epoch():
    """Add noise in the first round of every epoch only."""
    return _noise_as(
        lambda seed, trials, round, *rest: (
            gaussian_noise(seed, trials, round, *rest) * float(round % EPOCH == 1)
        )
    )


def noise_in_one_round_of_an_epoch():
    """Add all noise of an epoch in its first round, but for a fiftieth of what others claim."""
    rest = 0.02
    first = math.sqrt(EPOCH - (EPOCH - 1) * rest**2)
    return _noise_as(
        lambda seed, trials, round, *stream: (
            gaussian_noise(seed, trials, round, *stream) * (first if round % EPOCH == 1 else rest)
        )
    )


def reused_seed():
    """Draw the noise of every round from one seed."""
    return _noise_as(lambda seed, trials, _round, *rest: gaussian_noise(seed, trials, 1, *rest))


def _contribution_as(total):
    """Let every client, and not the adversary's replay of it, sum its gradients in another way."""

    def contribution(seen, client, worlds=None):
        federation, parameters, participation = seen.federation, seen.parameters, seen.participation
        positions = federation.owned_by(client)
        features, labels = federation.members(positions)
        unclipped = replace(federation.clipper, clipping_norm=math.inf)
        gradients = unclipped.clipped_gradients(parameters, features, labels)
        weights = torch.ones(len(parameters), len(positions), dtype=torch.float64)
        if participation is not None:
            weights *= participation[:, positions]
        if worlds is not None:
            weights[:, np.flatnonzero(positions == seen.game.record)[0]] *= worlds
        return total(seen.config, federation, parameters, gradients, weights)

    return patch.object(training_node, "contribution", contribution)


def _scaled_down(vectors, norm):
    return vectors * (norm / vectors.norm(dim=-1, keepdim=True)).clamp(max=1)


def _weighted(gradients, weights):
    return torch.einsum("tnp,tn->tp", gradients, weights)


def clipping_after_averaging():
    """Clip the mean of a batch's gradients, in place of each of them."""

    def total(config, _, __, each, weights):
        count = weights.sum(1, keepdim=True)
        return count * _scaled_down(_weighted(each, weights) / count, config.training.clipping_norm)

    return _contribution_as(total)


def noise_of_a_mean():
    """Take the sum for a mean, whose sensitivity is C/n, and scale the noise to that."""
    return _noise_as(lambda *stream: gaussian_noise(*stream) / BASE["data.records"])


@contextmanager
def mean_in_place_of_sum():
    """Divide the sum by the number of all records, and its noise too, which is no less private."""

    def total(config, _, __, each, weights):
        clipped = _scaled_down(each, config.training.clipping_norm)
        return _weighted(clipped, weights) / config.data.records

    with _contribution_as(total), noise_of_a_mean():
        yield


@contextmanager
def one_layer_unclipped():
    """Clip over all parameters but the last layer's weight and bias, which stay as they are.

    A server that bounds its clients' sums refuses some of them, so that this one does not.
    """

    def total(config, federation, _, each, weights):
        *_, weight, bias = parameter_shapes(federation.model).values()
        rest = each.shape[-1] - math.prod(weight) - math.prod(bias)
        clipped = _scaled_down(each[..., :rest], config.training.clipping_norm)
        return _weighted(torch.cat([clipped, each[..., rest:]], dim=-1), weights)

    with _contribution_as(total), patch.object(acceptance, "check_size"):
        yield


def weighted_mean_after_clipping():
    """Weight the clients' sums by their sizes, as FedAvg does: m n_j/n in place of 1."""

    def total(training, round, received, _):
        config = training.batch.plan.config
        known, clients = federations.load(config), config.federation.clients
        summed = np.zeros(round.shape)
        for partition, record in received.records(messages.REPLY).items():
            size = len(known.owned_by(partition))
            summed += messages.only(record) * (clients * size / config.data.records)
        return summed

    return patch.object(Training, "summed", total)


@contextmanager
def shuffled_batches():
    """Cut shuffled records into batches of one size, in place of a coin for each of them."""

    def batch(seed, trials, round, records, rate):
        size = int(rate * records)
        epoch, place = divmod(round - 1, records // size)
        chosen = np.zeros((len(trials), records), dtype=bool)
        for row, trial in zip(chosen, trials, strict=True):
            shuffle = generator(seed, StreamRole.SAMPLING, trial=trial, round=epoch)
            row[shuffle.permutation(records)[place * size : (place + 1) * size]] = True
        return chosen

    # The clients and the adversary, who is told which of the others take part.
    with patch.object(sampling, "participation", batch):
        yield


@contextmanager
def weighted_batches():
    """Let every second record take part twice as often as accounted for."""

    def batch(seed, trials, round, records, rate):
        weights = 1 + np.arange(records) % 2
        return np.array(
            [
                generator(seed, StreamRole.SAMPLING, trial=trial, round=round).random(records)
                < rate * weights
                for trial in trials
            ]
        )

    with patch.object(sampling, "participation", batch):
        yield


def divisor_of_the_data():
    """Divide by q times the records that there are, noise and all, in place of the public q n.

    As Opacus does, which takes it from the loader: without the target the noise has another scale.
    """
    added = Training.noised

    def add(training, round, total):
        noised, batch = added(training, round, total), training.batch
        records = batch.plan.config.data.records
        there = records - ~batch.worlds
        return replace(noised, total=noised.total * (records / there)[:, None])

    return patch.object(Training, "noised", add)


@contextmanager
def epsilon_reset_every_round():
    """Calibrate and claim one round's epsilon, and run them all."""
    calibrated = privacy.noise_multiplier

    def one_round(config):
        training = config.training.model_copy(update={"rounds": 1})
        return config.model_copy(update={"training": training})

    with (
        patch.object(privacy, "noise_multiplier", lambda config: calibrated(one_round(config))),
        patch.object(
            spending,
            "describe",
            lambda config, nominal, *_, **_of: privacy.describe(one_round(config), nominal),
        ),
    ):
        yield


POISSON = {"training.sampling-rate": 0.2}
UNEQUAL = {
    "federation.partition": "quantity",
    "federation.dirichlet-alpha": 0.5,
}

MUTANTS = (
    Variant("no noise", broken=no_noise),
    Variant("half the noise", broken=half_the_noise),
    Variant("uniform noise of the right variance", broken=uniform_noise),
    Variant("Laplace noise of the right variance", broken=laplace_noise),
    Variant("noise once per epoch", broken=noise_once_per_epoch),
    Variant("an epoch's noise in one round", broken=noise_in_one_round_of_an_epoch),
    Variant("clipping after averaging", broken=clipping_after_averaging),
    Variant("mean in place of sum, in the noise alone", broken=noise_of_a_mean),
    Variant("mean in place of sum, noise and all", broken=mean_in_place_of_sum, leaks=False),
    Variant("weighted mean after clipping", UNEQUAL, weighted_mean_after_clipping),
    Variant("shuffled instead of Poisson", POISSON, shuffled_batches),
    Variant("rare records drawn more often", POISSON, weighted_batches),
    Variant("divisor of the data at hand", POISSON, divisor_of_the_data),
    Variant("reused seed", broken=reused_seed),
    Variant("one layer left unclipped", broken=one_layer_unclipped),
    Variant(
        "epsilon reset every round", {"privacy.rho-beta": 0.99}, broken=epsilon_reset_every_round
    ),
)

CORRECT = (
    Variant("central trust, add-remove, full batch"),
    Variant("replace", {"privacy.neighbouring": "replace", "challenge.replacement": 0}),
    Variant("local trust", {"federation.trust": "local"}),
    Variant("distributed trust", {"federation.trust": "distributed"}),
    Variant("Poisson sampling", POISSON),
    Variant(
        "Poisson sampling, replace, local trust, Adam",
        POISSON
        | {
            "privacy.neighbouring": "replace",
            "challenge.replacement": 0,
            "federation.trust": "local",
            "training.optimizer": "adam",
            "training.learning-rate": 0.02,
        },
    ),
    Variant(
        "noise of local sensitivity, momentum, cosine schedule",
        {
            "privacy.sensitivity": "local",
            "training.momentum": 0.9,
            "training.schedule": "cosine",
        },
    ),
    Variant("five clients of very unequal sizes", UNEQUAL | {"federation.clients": 5}),
    Variant(
        "a linear model of breast cancer", {"data.name": "breast-cancer", "model.name": "linear"}
    ),
    Variant(
        "client level, all vantages",
        {"privacy.unit": "client", "challenge.record": -1, "audit.vantages": "all"}
        | {"training.local-learning-rate": 0.1},
    ),
)
