"""Options of campaigns whose batches other processes train: `--workers` and `--cluster`."""

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
Settings = Annotated[
    int | None,
    typer.Option(
        min=1, metavar="N", help="Try N settings at once, each in a process of this machine."
    ),
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
    """The place where the batches of a campaign are trained: by default, this process.

    Attributes:
        workers: number of processes of this machine, or None.
        cluster: scheduler of a Dask cluster, or None.
    """

    workers: int | None = None
    cluster: "Address | None" = None

    @classmethod
    def parsed(
        cls,
        runtime: Runtime,
        workers: int | None,
        cluster: str | None,
        certificates: Path | None,
        insecure: bool,
    ) -> "Elsewhere":
        """Return the place that the options name. Raises InputError for conflicting options."""
        if workers is not None and workers < 1:
            raise InputError(f"--workers is {workers}; give 1 or more, or leave it out")
        if cluster is None and (certificates is not None or insecure):
            raise InputError("--cluster-tls and --insecure need --cluster; add it, or drop them")
        places = [workers is not None, cluster is not None, runtime is Runtime.SIMULATION]
        if sum(places) > 1:
            raise InputError(
                "--workers, --cluster and --runtime simulation exclude each other; give only one"
            )
        if cluster is None:
            return cls(workers)
        from fedsim.federation.runtimes.dask_pool import Address  # noqa: PLC0415  (torch)

        return cls(cluster=Address.of(cluster, certificates, insecure))

    @property
    def processes(self) -> int:
        """Number of processes that share the memory of this machine."""
        return self.workers or 1

    @property
    def _is_this_process(self) -> bool:
        return self.workers is None and self.cluster is None

    def check(self, plan: "Plan") -> None:
        """Raise InputError if the batches of a run cannot be trained there."""
        if not self._is_this_process:
            from fedsim.federation.runtimes import dispatch  # noqa: PLC0415  (Flower)

            dispatch.check(
                plan.config.privacy.noise_source, plan.config.federation.tolerated_dropouts
            )

    @contextmanager
    def trainer(self, console: Console) -> "Iterator[Trainer | None]":
        """Yield the trainer of the batches, while the block runs; None for this process."""
        if self._is_this_process:
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
        """Start or reach the workers. Raises InputError if the cluster does not answer."""
        if self.cluster is None:
            from fedsim.federation.runtimes.pools import LocalPool  # noqa: PLC0415

            assert self.workers is not None
            return LocalPool(self.workers)
        from fedsim.federation.runtimes.dask_pool import DaskPool  # noqa: PLC0415

        # The user must know what leaves this machine before it does.
        say(
            f"The workers at {self.cluster.url} get the configuration with its seed, the position "
            "of the target, and the paths of the data. They read the data themselves and send "
            "their measurements back."
        )
        pool = DaskPool(self.cluster)
        say(f"{pool.workers} worker{'s' * (pool.workers != 1)} at {self.cluster.url}")
        return pool


HERE = Elsewhere()
"""In this process."""
