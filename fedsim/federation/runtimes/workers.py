"""The training of batches by workers, several at once: processes, or those of a Dask cluster.

Both are an Executor. Python pickles tasks between processes that one command started. Dask pickles
them between machines of the user that authenticated each other: every holder of the cluster's key
can run code on them. Data of other parties are never unpickled.

Only the process of the command writes the run. Every batch is charged in the ledger before a worker
receives it. Findings may arrive in any order, but the campaign reads them in the order of the
trials, so it ends as it would in one process. All random numbers come from the seed: a batch whose
worker is lost has the same noise when the run continues, and counts once.
"""

import hashlib
import logging
import multiprocessing
import os
import platform
import signal
import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import (
    FIRST_COMPLETED,
    CancelledError,
    Executor,
    Future,
    ProcessPoolExecutor,
    wait,
)
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache
from ipaddress import ip_address
from itertools import islice
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import numpy as np
import torch

import adversaries
import fedsim
from adversaries.errors import InputError
from fedsim.common import device, installation
from fedsim.common.parent import end_with_parent
from fedsim.common.strict_json import strict_json
from fedsim.configuration import Config, Scalar
from fedsim.configuration.campaign import RunConfig
from fedsim.federation.runs.run_directory import Arrays
from fedsim.federation.server.batch import Batch
from fedsim.federation.server.experiment import Campaign
from fedsim.game import federation
from fedsim.game.federation import memory_limit
from fedsim.game.mechanisms.privacy import adds_up

VISIBLE = "CUDA_VISIBLE_DEVICES"

PATIENCE, CLOSING = 60.0, 2.0
"""Seconds for a scheduler to answer and its first worker to join; to close the connection."""

AUTHORITY, CERTIFICATE, KEY = "ca.pem", "cert.pem", "key.pem"

LEAVES = (
    "get the configuration with its seed, the position of the target, and the paths of the data. "
    "They read the data themselves and send their measurements back."
)
"""What the workers of a cluster get."""

ONE_AT_A_TIME = threading.Lock()
"""A Dask worker may have several threads, but Flower's task and torch's settings are global."""


@dataclass(frozen=True)
class Address:
    """The address of a scheduler, with its certificates.

    Attributes:
        url: "tcp://HOST:PORT", or "tls://HOST:PORT".
        certificates: a folder with AUTHORITY, CERTIFICATE and KEY; None without TLS.
    """

    url: str
    certificates: Path | None

    @classmethod
    def of(cls, text: str, certificates: Path | None, insecure: bool) -> "Address":
        """Return the address of a scheduler, with TLS unless it is on this machine.

        Raises InputError if the address is invalid, or a certificate or TLS is missing.
        """
        protocol = "tcp" if certificates is None else "tls"
        url = text if "://" in text else f"{protocol}://{text}"
        parts = urlsplit(url)
        try:
            complete = bool(parts.hostname and parts.port)
        except ValueError:
            complete = False
        if not complete or parts.scheme != protocol:
            raise InputError(
                f"--cluster is '{text}'; give the address that dask scheduler prints, such as "
                "tls://10.0.0.5:8786 with --cluster-tls, or tcp://127.0.0.1:8786 without"
            )
        if certificates is None and not insecure and not _is_loopback(str(parts.hostname)):
            raise InputError(
                f"{parts.hostname} is another machine, and Dask runs all code that reaches it. "
                "Write certificates with fedsim deploy certificates DIR, start scheduler and "
                "workers with them, and give --cluster-tls DIR. On a network that only you use, "
                "you may give --insecure instead."
            )
        for name in (AUTHORITY, CERTIFICATE, KEY) if certificates else ():
            if certificates and not (certificates / name).is_file():
                raise InputError(
                    f"'{certificates}' has no {name}; write all with fedsim deploy certificates DIR"
                )
        return cls(url, certificates)


Workers = int | Address
"""The number of processes of this machine, or the scheduler of a Dask cluster."""


@dataclass(frozen=True)
class Pool:
    """Workers that are there.

    Attributes:
        executor: takes their tasks.
        lost: errors of a task whose worker, or scheduler, is lost.
        width: returns the number of tasks that keep all workers busy.
        configured: returns a run's settings with a worker's share of its machine.
    """

    executor: Executor
    lost: tuple[type[Exception], ...]
    width: Callable[[], int]
    configured: Callable[[RunConfig], RunConfig]


def processes(workers: Workers | None) -> int:
    """Return the number of processes that share the memory of this machine.

    Raises InputError if it is below 1.
    """
    if not isinstance(workers, int):
        return 1
    if workers < 1:
        raise InputError(f"--workers is {workers}; give 1 or more, or leave it out")
    return workers


@contextmanager
def opened(workers: Workers, say: Callable[[str], None]) -> Iterator[Pool]:
    """Yield the workers, whose tasks end with the block. A cluster goes on running.

    say: shows a line to the user.
    Raises InputError if the cluster does not answer, or has no workers.
    """
    if isinstance(workers, int):
        with _local(processes(workers)) as pool:
            yield pool
        return
    # The user must know what leaves this machine before it does.
    say(f"The workers at {workers.url} {LEAVES}")
    with _cluster(workers) as pool:
        count = pool.width() - 1
        say(f"{count} worker{'s' * (count != 1)} at {workers.url}")
        yield pool


@contextmanager
def _local(workers: int) -> Iterator[Pool]:
    """Yield processes of this machine, each with its share of the cores, the memory or the GPUs."""

    def configured(run: RunConfig) -> RunConfig:
        where, sharing = device.resolve(run.device), workers
        own: dict[str, Scalar] = {"threads": run.threads or max(1, device.threads(0) // workers)}
        if where.type == "cuda":
            sharing = -(-workers // torch.cuda.device_count())
        if sharing > 1:
            own["max_memory"] = f"{memory_limit(run.memory_limit, where) // sharing}B"
        return run.model_copy(update=own)

    others = set(multiprocessing.active_children())
    context = multiprocessing.get_context("spawn")
    named = os.environ.get(VISIBLE)
    gpus = named.split(",") if named else list(map(str, range(torch.cuda.device_count())))
    executor = ProcessPoolExecutor(workers, context, _begin, (context.Value("i", 0), gpus))
    try:
        yield Pool(executor, (BrokenProcessPool,), lambda: workers + 1, configured)
    finally:
        # The executor would wait for the running tasks; of ended processes it joins what is left.
        for process in set(multiprocessing.active_children()) - others:
            process.terminate()
        executor.shutdown(cancel_futures=True)


def _begin(counter: Any, gpus: list[str]) -> None:
    """Make a process a worker with its own GPU, which ends with its parent, not by Ctrl-C."""
    # The command handles Ctrl-C, and ends its workers.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with counter.get_lock():
        turn, counter.value = counter.value, counter.value + 1
    if gpus:  # CUDA reads the variable at its first use
        os.environ[VISIBLE] = gpus[turn % len(gpus)]
    end_with_parent()  # else a killed command would leave its workers waiting for tasks


@contextmanager
def _cluster(address: Address) -> Iterator[Pool]:
    """Yield the workers of a scheduler. Dask gives a lost worker's task to another a few times."""
    try:
        import distributed  # noqa: PLC0415  (the extra `cluster`)
        from distributed.comm.core import CommClosedError  # noqa: PLC0415
    except ImportError:
        raise InputError(
            f"--cluster needs dask.distributed; install it with {installation.command('cluster')}"
        ) from None
    # A lost scheduler is told in one line, and not by Dask's traceback.
    logging.getLogger("distributed.client").setLevel(logging.CRITICAL)
    folder, security = address.certificates, None
    if folder is not None:
        security = distributed.Security(
            require_encryption=True,
            tls_ca_file=str(folder / AUTHORITY),
            tls_client_cert=str(folder / CERTIFICATE),
            tls_client_key=str(folder / KEY),
        )
    try:
        client = distributed.Client(
            address.url, security=security, timeout=PATIENCE, set_as_default=False
        )
        client.wait_for_workers(1, timeout=PATIENCE)
    except (OSError, ValueError) as error:  # a TimeoutError is an OSError
        raise InputError(
            f"no worker is there at {address.url} ({error}); start dask scheduler, and for each "
            f"core or GPU dask worker {address.url} --nthreads 1"
        ) from None
    executor = client.get_executor(pure=False)
    lost = (distributed.KilledWorker, CancelledError, CommClosedError)
    try:
        yield Pool(
            executor,
            lost,
            lambda: len(client.nthreads()) + 1,
            # A worker has one core.
            lambda run: run.model_copy(update={"threads": run.threads or 1}),
        )
    finally:
        executor.shutdown(wait=False)
        client.close(timeout=CLOSING)


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


Done = tuple[Arrays, list[dict[str, Any]]]
"""The result of a worker: the arrays of the batch's file, and the events of its rounds."""

Train = Callable[[dict[str, str], Batch], Done]
"""What a worker runs: from the program of the process that runs the campaign, and a batch."""


def program(config: Config) -> dict[str, str]:
    """Return what determines the bits of a result beside the configuration, by what it is."""
    digest, where = hashlib.sha256(), federation.load(config).device
    for client in range(config.federation.clients):
        digest.update(federation.digest(config, client).encode())
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


def check_program(config: Config, expected: dict[str, str]) -> None:
    """Raise InputError, with this worker's name, unless this is the expected program."""
    for what, own in program(config).items():
        if own != expected.get(what):
            raise InputError(
                f"worker {socket.gethostname()}:{os.getpid()} has {what} {own}, but the "
                f"process that runs the campaign has {expected.get(what)}; use the same there"
            )


@cache
def _sources() -> str:
    digest = hashlib.sha256()
    for package in (adversaries, fedsim):
        folder = Path(str(package.__file__)).parent
        for path in sorted(folder.rglob("*.py")):
            digest.update(str(path.relative_to(folder)).encode() + path.read_bytes())
    return digest.hexdigest()


def check_chargeable(noise_source: str, tolerated_dropouts: int) -> None:
    """Raise InputError for a campaign whose batches cannot be charged in advance."""
    if adds_up(noise_source) or tolerated_dropouts:
        raise InputError(
            "workers need batches whose cost is known before they are trained, also again where a "
            "worker is lost; leave out --workers and --cluster, or set privacy.noise-source = "
            '"seed" and federation.tolerated-dropouts = 0'
        )


def train_elsewhere(
    pool: Pool, train: Train, campaign: Campaign, left: Sequence[range]
) -> Iterator[None]:
    """Have workers train batches, and yield after the findings of each are in the run directory.

    Raises InputError if a worker has another program or other data.
    Raises RuntimeError if a worker was lost.
    """
    config, waiting = campaign.plan.config, iter(left)
    own = config.model_copy(update={"run": pool.configured(config.run)})
    plan, here = replace(campaign.plan, config=own), program(config)
    away: dict[Future[Done], tuple[range, list[float]]] = {}
    try:
        while True:
            for trials in islice(waiting, max(0, pool.width() - len(away))):
                epsilons, batch = _charged(campaign, trials), campaign.batch(trials)
                task = pool.executor.submit(train, here, replace(batch, plan=plan))
                away[task] = trials, epsilons
            if not away:
                return
            done = wait(away, return_when=FIRST_COMPLETED).done
            # What has finished is kept before an error of another task ends the run.
            for future in sorted(done, key=lambda each: each.cancelled() or bool(each.exception())):
                trials, epsilons = away.pop(future)
                findings, events = future.result()
                for event in events:
                    spent = {"epsilon": epsilons[event["round"]]} if "round" in event else {}
                    campaign.directory.log_event(**event, **strict_json(spent))
                campaign.keep(trials, findings)
                yield
    except pool.lost:
        raise RuntimeError(
            "a worker or the scheduler was lost; check whether memory is short (run.max-memory). "
            f"What has finished is kept: {campaign.directory.resumed_by} continues"
        ) from None


def _charged(campaign: Campaign, trials: range) -> list[float]:
    """Charge the rounds of a batch; return epsilon before and after each round."""
    attempt, rule = campaign.begin(trials), campaign.plan.config.participation
    epsilons = [attempt.epsilon]
    for round in range(1, campaign.plan.rounds + 1):
        attempt.charge(round, rule.charged(round))
        epsilons.append(attempt.epsilon)
    return epsilons
