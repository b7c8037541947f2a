"""The workers of a running Dask cluster, through the Executor of `dask.distributed`.

Dask pickles tasks between machines of the user that authenticated each other: every holder of the
cluster's key can run code on them. Data of other parties are never unpickled.
"""

import logging
from collections.abc import Callable
from concurrent.futures import CancelledError, Future
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from adversaries.errors import InputError
from fedsim.common import installation
from fedsim.configuration import Scalar
from fedsim.configuration.campaign import RunConfig
from fedsim.federation.runtimes.pools import Given, Result
from fedsim.federation.runtimes.spread import LostWorkersError

PATIENCE = 60.0
"""Seconds for the scheduler to answer, and for its first worker to join."""

CLOSING = 2.0
"""Seconds to close the connection to a scheduler that was lost."""

AUTHORITY, CERTIFICATE, KEY = "ca.pem", "cert.pem", "key.pem"
"""File names in a folder of certificates."""

HOW_TO_INSTALL = f"install it with {installation.command('cluster')}"


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
            whole = bool(parts.hostname and parts.port)
        except ValueError:
            whole = False
        if not whole or parts.scheme not in ("tcp", "tls"):
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
        if certificates is not None:
            for name in (AUTHORITY, CERTIFICATE, KEY):
                if not (certificates / name).is_file():
                    raise InputError(
                        f"'{certificates}' has no {name}; write all with fedsim deploy "
                        "certificates DIR"
                    )
        return cls(url, certificates)


class DaskPool:
    """The workers of a scheduler. Each carries out one task at a time.

    Dask itself gives the task of a lost worker to another one, a few times.

    Raises InputError if Dask is not installed, no scheduler answers, or no worker joins.
    """

    remote = True

    def __init__(self, address: Address) -> None:
        try:
            import distributed  # noqa: PLC0415  (the extra `cluster`)
        except ImportError:
            raise InputError(f"--cluster needs dask.distributed; {HOW_TO_INSTALL}") from None
        self._dask, self._address = distributed, address
        # A lost scheduler is told in one line, and not by Dask's traceback.
        logging.getLogger("distributed.client").setLevel(logging.CRITICAL)
        # A worker died under its task, or the client lost its scheduler.
        self.broken: tuple[type[Exception], ...] = (distributed.KilledWorker, CancelledError)
        self._connect()

    @property
    def width(self) -> int:
        """The number of tasks that keep all workers busy: one more than workers."""
        return self.workers + 1

    @property
    def workers(self) -> int:
        """The number of workers. Raises LostWorkersError if the scheduler is lost."""
        try:
            return len(self._client.nthreads())
        except OSError:  # Dask's CommClosedError
            raise LostWorkersError(
                f"the Dask scheduler at {self._address.url} was lost; start it and its workers "
                "again"
            ) from None

    def settings(self, run: RunConfig) -> dict[str, Scalar]:
        """Return the keys that differ in a worker's configuration: a worker has one core."""
        return {"run.threads": run.threads or 1}

    def submit(self, work: Callable[[Given], Result], task: Given) -> Future[Result]:
        return self._executor.submit(work, task)

    def stop(self) -> None:
        """Drop the remaining tasks, and leave the cluster running."""
        self._executor.shutdown(wait=False)
        lost = self._client.status != "running"
        self._client.close(timeout=CLOSING if lost else PATIENCE)

    def _connect(self) -> None:
        folder, url = self._address.certificates, self._address.url
        security: Any = None
        if folder is not None:
            security = self._dask.Security(
                require_encryption=True,
                tls_ca_file=str(folder / AUTHORITY),
                tls_client_cert=str(folder / CERTIFICATE),
                tls_client_key=str(folder / KEY),
            )
        try:
            self._client = self._dask.Client(
                url, security=security, timeout=PATIENCE, set_as_default=False
            )
        except (OSError, ValueError) as error:
            raise InputError(
                f"no scheduler answers at {url} ({error}); start one with dask scheduler"
            ) from None
        try:
            self._client.wait_for_workers(1, timeout=PATIENCE)
        except TimeoutError:
            self._client.close()
            raise InputError(
                f"no worker has joined {url} in {PATIENCE:g} s; start one for each core or GPU "
                f"with dask worker {url} --nthreads 1"
            ) from None
        self._executor = self._client.get_executor(pure=False)


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
