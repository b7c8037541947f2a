"""The places where other processes do the work of a command: this machine, or a Dask cluster.

Both are an Executor. Python pickles tasks between processes that one command started. Dask pickles
them between machines of the user that authenticated each other: every holder of the cluster's key
can run code on them. Data of other parties are never unpickled.
"""

import logging
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError, Executor, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import torch

from adversaries.errors import InputError
from fedsim.common import device, installation
from fedsim.configuration import Scalar
from fedsim.configuration.campaign import RunConfig
from fedsim.game.federation import memory_limit

VISIBLE = "CUDA_VISIBLE_DEVICES"

PATIENCE = 60.0
"""Seconds for a scheduler to answer, and for its first worker to join."""

CLOSING = 2.0
"""Seconds to close the connection to a scheduler that was lost."""

AUTHORITY, CERTIFICATE, KEY = "ca.pem", "cert.pem", "key.pem"
"""File names in a folder of certificates."""

LEAVES = (
    "get the configuration with its seed, the position of the target, and the paths of the data. "
    "They read the data themselves and send their measurements back."
)
"""What the workers of a cluster get."""


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
        if not complete or parts.scheme not in ("tcp", "tls"):
            raise InputError(
                f"--cluster is '{text}'; give the address that dask scheduler prints, such as "
                "tls://10.0.0.5:8786"
            )
        if parts.scheme != protocol:
            raise InputError(
                f"--cluster is '{text}', but --cluster-tls is {'not ' * (protocol == 'tcp')}given; "
                "a tls:// address needs the folder of its certificates, and a tcp:// address "
                "takes none"
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
        settings: returns the keys that differ in a worker's configuration: its share of its
            machine.
    """

    executor: Executor
    lost: tuple[type[Exception], ...]
    width: Callable[[], int]
    settings: Callable[[RunConfig], dict[str, Scalar]]

    @contextmanager
    def in_one_line(self, continues: str) -> Iterator[None]:
        """Raise RuntimeError, with the command that continues, in place of the error of a loss."""
        try:
            yield
        except self.lost:
            raise RuntimeError(
                "a worker or the scheduler was lost; check whether memory is short "
                f"(run.max-memory). What has finished is kept: {continues} continues"
            ) from None


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

    def settings(run: RunConfig) -> dict[str, Scalar]:
        threads = run.threads or max(1, device.threads(0) // workers)
        own: dict[str, Scalar] = {"run.threads": threads}
        where, sharing = device.resolve(run.device), workers
        if where.type == "cuda":
            sharing = -(-workers // torch.cuda.device_count())
        if sharing > 1:
            limit = memory_limit(run.memory_limit, where)
            own["run.max-memory"] = f"{limit // sharing}B"
        return own

    others = set(multiprocessing.active_children())
    context = multiprocessing.get_context("spawn")
    named = os.environ.get(VISIBLE)
    gpus = named.split(",") if named else list(map(str, range(torch.cuda.device_count())))
    executor = ProcessPoolExecutor(workers, context, _begin, (context.Value("i", 0), gpus))
    try:
        yield Pool(executor, (BrokenProcessPool,), lambda: workers + 1, settings)
    finally:
        executor.shutdown(wait=False, cancel_futures=True)
        # The executor itself would wait for the running tasks.
        for process in set(multiprocessing.active_children()) - others:
            process.terminate()
            process.join()


def _begin(counter: Any, gpus: list[str]) -> None:
    """Make a process a worker with its own GPU, which ends with its parent, not by Ctrl-C."""
    # The command handles Ctrl-C, and ends its workers.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with counter.get_lock():
        turn, counter.value = counter.value, counter.value + 1
    if gpus:  # CUDA reads the variable at its first use
        os.environ[VISIBLE] = gpus[turn % len(gpus)]
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)  # else a killed command would leave its workers waiting for tasks


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
    client = _connected(distributed, address)
    executor = client.get_executor(pure=False)
    lost = (distributed.KilledWorker, CancelledError, CommClosedError)
    try:
        yield Pool(
            executor,
            lost,
            lambda: len(client.nthreads()) + 1,
            lambda run: {"run.threads": run.threads or 1},  # a worker has one core
        )
    finally:
        executor.shutdown(wait=False)
        client.close(timeout=PATIENCE if client.status == "running" else CLOSING)


def _connected(distributed: Any, address: Address) -> Any:
    """Return Dask's client of a scheduler with a worker. Raises InputError without one."""
    folder, url, security = address.certificates, address.url, None
    if folder is not None:
        security = distributed.Security(
            require_encryption=True,
            tls_ca_file=str(folder / AUTHORITY),
            tls_client_cert=str(folder / CERTIFICATE),
            tls_client_key=str(folder / KEY),
        )
    try:
        client = distributed.Client(url, security=security, timeout=PATIENCE, set_as_default=False)
    except (OSError, ValueError) as error:
        raise InputError(
            f"no scheduler answers at {url} ({error}); start one with dask scheduler"
        ) from None
    try:
        client.wait_for_workers(1, timeout=PATIENCE)
    except TimeoutError:
        client.close()
        raise InputError(
            f"no worker has joined {url} in {PATIENCE:g} s; start one for each core or GPU with "
            f"dask worker {url} --nthreads 1"
        ) from None
    return client


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
