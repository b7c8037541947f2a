"""Workers of a running Dask cluster, through the Executor of `dask.distributed`.

Dask pickles tasks between machines that belong to the user and that authenticated each other: a
holder of the cluster's key runs code on them. What other parties send is never unpickled.
"""

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import CancelledError, Future
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from adversaries.errors import InputError
from fedsim.config import Scalar
from fedsim.config.campaign import RunConfig
from fedsim.federation.runtimes.batch_task import Done, Task

PATIENCE = 60.0
"""Seconds that a scheduler has to answer, and its first worker to join."""

AUTHORITY, CERTIFICATE, KEY = "ca.pem", "cert.pem", "key.pem"
"""The files of a folder of certificates."""

HOW_TO_INSTALL = 'install it with pip install "fedsim-identifiability[cluster]"'


@dataclass(frozen=True)
class Address:
    """Where a scheduler is, and how it is reached.

    Attributes:
        url: "tcp://HOST:PORT", or "tls://HOST:PORT".
        certificates: a folder with AUTHORITY, CERTIFICATE and KEY; None without TLS.
    """

    url: str
    certificates: Path | None

    @classmethod
    def of(cls, text: str, certificates: Path | None, insecure: bool) -> "Address":
        """Return the address of a scheduler, and nothing that leaves a machine in the clear.

        Args:
            text: HOST:PORT, with the protocol before it or without.
            certificates: a folder; None where none was given.
            insecure: whether the network needs no TLS.

        Raises:
            InputError: it is no address, a certificate is missing, or TLS is.
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
                f"--cluster is '{text}', and --cluster-tls is {'not ' * (protocol == 'tcp')}given; "
                "a tls:// address needs the folder of its certificates, and a tcp:// address "
                "takes none"
            )
        if certificates is None and not insecure and not _is_loopback(str(parts.hostname)):
            raise InputError(
                f"{parts.hostname} is another machine, and Dask runs any code that reaches it: "
                "write certificates with fedsim cluster certificates DIR, start scheduler and "
                "workers with them, and give --cluster-tls DIR; or --insecure on a network "
                "that is yours alone"
            )
        if certificates is not None:
            for name in (AUTHORITY, CERTIFICATE, KEY):
                if not (certificates / name).is_file():
                    raise InputError(
                        f"'{certificates}' has no {name}; write all with fedsim cluster "
                        "certificates DIR"
                    )
        return cls(url, certificates)


class DaskPool:
    """The workers of a scheduler; each takes one batch at a time.

    Args:
        address: of the scheduler.

    Raises:
        InputError: Dask is not installed, no scheduler answers, or no worker joins.
    """

    def __init__(self, address: Address) -> None:
        try:
            import distributed  # noqa: PLC0415  (the extra `cluster`)
        except ImportError:
            raise InputError(f"--cluster needs dask.distributed; {HOW_TO_INSTALL}") from None
        self._dask, self._address = distributed, address
        # A worker that dies under a task is one thing, a client that lost its scheduler another.
        self.broken: tuple[type[Exception], ...] = (distributed.KilledWorker, CancelledError)
        self._lost: list[str] = []
        self._connect()

    @property
    def width(self) -> int:
        """How many tasks keep all workers busy: one more than there are, so that none waits."""
        return len(self._client.nthreads()) + 1

    @property
    def workers(self) -> int:
        """How many workers there are."""
        return len(self._client.nthreads())

    def settings(self, run: RunConfig) -> dict[str, Scalar]:
        """Return the keys by which a worker's configuration differs: a worker is one core."""
        return {"run.threads": run.threads or 1}

    def submit(self, train: Callable[[Task], Done], task: Task, name: str) -> Future[Done]:
        """Hand a task to the scheduler."""
        return self._executor.submit(train, task, key=name)

    def repeated(self) -> Sequence[str]:
        """Return the names of tasks whose worker is gone since the last question."""
        names, self._lost = self._lost, []
        return names

    def restart(self) -> None:
        """Connect anew where the scheduler was restarted. Raises RuntimeError if it is gone."""
        if self._client.status == "running":
            return
        self.stop()
        try:
            self._connect()
        except InputError as error:
            raise RuntimeError(str(error)) from None

    def stop(self) -> None:
        """Drop what is left to do, and leave the cluster as it is."""
        self._executor.shutdown(wait=False)
        self._client.close()

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
        self._client.subscribe_topic("all", self._hear)

    def _hear(self, event: tuple[float, Mapping[str, Any]]) -> None:
        """Note what the scheduler says of a worker that is gone: what it had or had computed."""
        _, said = event
        if said.get("action") == "remove-worker":
            self._lost += [*said["processing-tasks"], *said["lost-computed-tasks"]]


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
