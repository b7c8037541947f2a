"""The training of batches by workers, several at once. Only this process writes the run.

Every batch is charged in the ledger before a worker receives it. Findings may arrive in any order,
but the campaign reads them in the order of the trials, so it ends as it would in one process. All
random numbers come from the seed: a batch whose worker is lost has the same noise when the run
continues, and counts once.
"""

import hashlib
import os
import platform
import socket
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import asdict, dataclass, field
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch

import adversaries
import fedsim
from adversaries.arrays import Bools
from adversaries.errors import InputError
from fedsim.common.strict_json import strict_json
from fedsim.configuration import Scalar, to_run_config
from fedsim.configuration.objects import Experiment
from fedsim.federation.runs.run_directory import Arrays
from fedsim.federation.runtimes.places import Pool
from fedsim.federation.server.experiment import Campaign
from fedsim.game import federation
from fedsim.game.mechanisms.privacy import adds_up

HOW_TO_MEND = {
    "data": "put the same files at the same paths",
    "device": "use workers with one kind of device, since results differ between kinds",
}

ONE_AT_A_TIME = threading.Lock()
"""A Dask worker may have several threads, but Flower's task and torch's settings are global."""


def program(experiment: Experiment) -> dict[str, str]:
    """Return what determines the bits of a result beside the configuration, by what it is.

    `fedsim` has the beginning of the SHA-256 of the sources, and `data` that of the clients' data.
    """
    digest, where = hashlib.sha256(), federation.load(experiment).device
    for client in range(experiment.game.scheme.federation.clients):
        digest.update(federation.digest(experiment, client).encode())
    # A CPU's instructions decide its kernels, and so the order of sums.
    kind = f"{platform.machine()}, {torch.backends.cpu.get_cpu_capability()}"
    if where.type == "cuda":
        kind = torch.cuda.get_device_name(where)
    return {
        "fedsim": f"{fedsim.__version__} ({_sources()[:8]})",
        "torch": torch.__version__,
        "numpy": np.__version__,
        "device": f"{where.type} ({kind})",
        "data": digest.hexdigest()[:16],
    }


def check_program(experiment: Experiment, expected: Mapping[str, str]) -> None:
    """Raise InputError, with this worker's name, unless this is the expected program."""
    for what, own in program(experiment).items():
        if own != expected.get(what):
            mend = HOW_TO_MEND.get(what, f"install the same {what} there")
            raise InputError(
                f"worker {socket.gethostname()}:{os.getpid()} has {what} {own}, but the "
                f"process that runs the campaign has {expected.get(what)}; {mend}"
            )


@cache
def _sources() -> str:
    digest = hashlib.sha256()
    for package in (adversaries, fedsim):
        folder = Path(str(package.__file__)).parent
        for path in sorted(folder.rglob("*.py")):
            digest.update(str(path.relative_to(folder)).encode() + path.read_bytes())
    return digest.hexdigest()


@dataclass(frozen=True)
class BatchTask:
    """A batch of trials for a worker, in plain values that another version can read and refuse.

    Attributes:
        run_config: the configuration, as Flower's run config.
        program: the program of the process that runs the campaign.
        challenge: the target, and the clients' roles.
        nodes: the Flower node of each partition.
        noise_multiplier: the nominal noise multiplier.
        rounds: number of rounds of every trial.
        first: first trial of the batch.
        worlds: whether each trial trains on D, bool [T].
    """

    run_config: dict[str, Scalar]
    program: dict[str, str]
    challenge: dict[str, Any]
    nodes: dict[int, int]
    noise_multiplier: float
    rounds: int
    first: int
    worlds: Bools

    @property
    def trials(self) -> range:
        return range(self.first, self.first + len(self.worlds))


@dataclass(frozen=True)
class Done:
    """The result of a worker: the arrays of the batch's file, and the events of its rounds."""

    findings: Arrays
    events: list[dict[str, Any]] = field(default_factory=list)


def check_chargeable(noise_source: str, tolerated_dropouts: int) -> None:
    """Raise InputError for a campaign whose batches cannot be charged in advance."""
    if adds_up(noise_source):
        raise InputError(
            "the batch of a lost worker is trained again, but noise from the operating system "
            "cannot be drawn again; leave out --workers and --cluster, or set "
            'privacy.noise-source = "seed"'
        )
    if tolerated_dropouts:
        raise InputError(
            f"federation.tolerated-dropouts is {tolerated_dropouts}, so the cost of a round is "
            "known only after its clients have answered; leave out --workers and --cluster, or "
            "set it to 0"
        )


def train_elsewhere(
    pool: Pool, train: Callable[[BatchTask], Done], campaign: Campaign, left: Sequence[range]
) -> Iterator[None]:
    """Have workers train batches, and yield after the findings of each are in the run directory.

    train: the function that a worker runs.
    Raises InputError if a worker has another program or other data.
    Raises RuntimeError if a worker was lost.
    """
    config, waiting = campaign.plan.config, iter(left)
    run_config = to_run_config(config) | pool.settings(config.run)
    here = program(config.experiment)
    away: dict[Future[Done], tuple[range, list[float]]] = {}
    with pool.in_one_line(campaign.directory.resumed_by):
        while True:
            for trials in islice(waiting, max(0, pool.width() - len(away))):
                task, epsilons = _charged(campaign, trials, run_config, here)
                away[pool.executor.submit(train, task)] = trials, epsilons
            if not away:
                return
            done = wait(away, return_when=FIRST_COMPLETED).done
            # What has finished is kept before an error of another task ends the run.
            for future in sorted(done, key=_failed):
                trials, epsilons = away.pop(future)
                result = future.result()
                for event in result.events:
                    spent = {"epsilon": epsilons[event["round"]]} if "round" in event else {}
                    campaign.directory.log_event(**event, **strict_json(spent))
                campaign.keep(trials, result.findings)
                yield


def _failed(future: Future[Done]) -> bool:
    return future.cancelled() or future.exception() is not None


def _charged(
    campaign: Campaign, trials: range, run_config: dict[str, Scalar], program: dict[str, str]
) -> tuple[BatchTask, list[float]]:
    """Charge the rounds of a batch; return its task, and epsilon before and after each round."""
    plan, attempt, batch = campaign.plan, campaign.begin(trials), campaign.batch(trials)
    epsilons = [attempt.epsilon]
    for round in range(1, plan.rounds + 1):
        attempt.charge(round, plan.config.participation.charged(round))
        epsilons.append(attempt.epsilon)
    task = BatchTask(
        run_config,
        program,
        asdict(batch.challenge),
        dict(batch.nodes),
        plan.noise_multiplier,
        plan.rounds,
        trials.start,
        batch.worlds,
    )
    return task, epsilons
