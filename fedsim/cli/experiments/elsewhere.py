"""The options of campaigns whose batches other processes train: `--workers`, `--cluster`."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from adversaries.errors import InputError
from fedsim.cli.experiments.options import Runtime

if TYPE_CHECKING:  # torch, which takes a second
    from fedsim.federation.runtimes.dask_pool import Address
    from fedsim.federation.runtimes.pools import Pool
    from fedsim.federation.server.batch_run import Trainer
    from fedsim.federation.server.plan import Plan

Workers = Annotated[
    int | None,
    typer.Option(metavar="N", help="Train batches of trials in N processes of this machine."),
]


Cluster = Annotated[
    str | None,
    typer.Option(metavar="ADDRESS", help="Train them with the workers of this Dask scheduler."),
]
ClusterTls = Annotated[
    Path | None,
    typer.Option(metavar="DIR", help="Certificates of the cluster: ca.pem, cert.pem, key.pem."),
]
Insecure = Annotated[
    bool,
    typer.Option("--insecure", help="Reach a scheduler on another machine without TLS."),
]


@dataclass(frozen=True)
class Elsewhere:
    """Where the batches of a campaign are trained: in this process where neither is given.

    Attributes:
        workers: how many processes of this machine; None for none.
        cluster: the scheduler of a Dask cluster; None for none.
    """

    workers: int | None = None
    cluster: "Address | None" = None

    @classmethod
    def asked(
        cls,
        runtime: Runtime,
        workers: int | None,
        cluster: str | None,
        certificates: Path | None,
        insecure: bool,
    ) -> "Elsewhere":
        """Return what was asked for. Raises InputError where options contradict each other."""
        if workers is not None and workers < 1:
            raise InputError(f"--workers is {workers}; give 1 or more, or leave it out")
        if cluster is None and (certificates is not None or insecure):
            raise InputError("--cluster-tls and --insecure go with --cluster; give it, or neither")
        several = [workers is not None, cluster is not None, runtime is Runtime.SIMULATION]
        if sum(several) > 1:
            raise InputError(
                "--workers, --cluster and --runtime simulation each say where to train; give one"
            )
        if cluster is None:
            return cls(workers)
        from fedsim.federation.runtimes.dask_pool import Address  # noqa: PLC0415  (torch)

        return cls(cluster=Address.of(cluster, certificates, insecure))

    @property
    def processes(self) -> int:
        """How many processes share the memory of this machine."""
        return self.workers or 1

    @property
    def _is_here(self) -> bool:
        return self.workers is None and self.cluster is None

    def check(self, plan: "Plan") -> None:
        """Raise InputError where the batches of a run cannot be trained there."""
        if not self._is_here:
            from fedsim.federation.runtimes import dispatch  # noqa: PLC0415  (Flower)

            dispatch.check(
                plan.config.privacy.noise_source, plan.config.federation.tolerated_dropouts
            )

    @contextmanager
    def trainer(self, console: Console) -> "Iterator[Trainer | None]":
        """Yield what trains the batches, for as long as the block runs; None for this process."""
        if self._is_here:
            yield None
            return
        from fedsim import worker  # noqa: PLC0415  (Flower)
        from fedsim.federation.runtimes.dispatch import Dispatcher  # noqa: PLC0415

        def say(line: str) -> None:
            console.print(line, highlight=False, markup=False)

        pool = self._pool(say)
        try:
            yield Dispatcher(pool, worker.train_batch, say)
        finally:
            pool.stop()

    def _pool(self, say: Callable[[str], None]) -> "Pool":
        """Start the workers, or connect to them; what leaves this machine is said before it does.

        Raises InputError where a cluster cannot be reached.
        """
        if self.cluster is None:
            from fedsim.federation.runtimes.pools import LocalPool  # noqa: PLC0415

            assert self.workers is not None
            return LocalPool(self.workers)
        from fedsim.federation.runtimes.dask_pool import DaskPool  # noqa: PLC0415

        say(
            f"What goes to the workers at {self.cluster.url}: the configuration with its seed, the "
            "position of the target, and where the data are. They read the data themselves; what "
            "they measured comes back."
        )
        pool = DaskPool(self.cluster)
        say(f"{pool.workers} worker{'s' * (pool.workers != 1)} at {self.cluster.url}")
        return pool


HERE = Elsewhere()
"""In this process."""
