"""Options of work that other processes do: `--workers` and `--cluster`."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from adversaries.errors import InputError

if TYPE_CHECKING:  # torch, which takes a second
    from fedsim.federation.runtimes.dask_pool import Address
    from fedsim.federation.server.batch_run import Trainer
    from fedsim.federation.server.plan import Plan

Workers = Annotated[
    int | None,
    typer.Option(metavar="N", help="Train batches of trials in N processes of this machine."),
]
Settings = Annotated[
    int | None,
    typer.Option(metavar="N", help="Try N settings at once, each in a process of this machine."),
]
Models = Annotated[
    int | None,
    typer.Option(
        metavar="N",
        help="Train batches of models [trials.batch] in N processes of this machine.",
    ),
]
Items = Annotated[
    int | None,
    typer.Option(
        metavar="N",
        help="Make N items at once, each in a process of this machine. Those of the core paper "
        "that share a data set share one process.",
    ),
]
Cluster = Annotated[
    str | None,
    typer.Option(metavar="ADDRESS", help="Do the same with the workers of this Dask scheduler."),
]
ClusterTls = Annotated[
    Path | None,
    typer.Option(metavar="DIR", help="Certificates of the cluster: ca.pem, cert.pem, key.pem."),
]
Insecure = Annotated[
    bool,
    typer.Option("--insecure", help="Reach a scheduler on another machine without TLS."),
]

LEAVES = (
    "get the configuration with its seed, the position of the target, and the paths of the data. "
    "They read the data themselves and send their measurements back."
)
"""What the workers of a cluster get of a campaign."""


def named(
    workers: int | None, cluster: str | None, certificates: Path | None, insecure: bool
) -> "int | Address | None":
    """Return the workers that the options name: processes of this machine, a cluster, or None.

    Raises InputError for conflicting options.
    """
    if workers is not None and workers < 1:
        raise InputError(f"--workers is {workers}; give 1 or more, or leave it out")
    if cluster is None and (certificates is not None or insecure):
        raise InputError("--cluster-tls and --insecure need --cluster; add it, or drop them")
    if cluster is None:
        return workers
    if workers is not None:
        raise InputError("--workers and --cluster exclude each other; give only one")
    from fedsim.federation.runtimes.dask_pool import Address  # noqa: PLC0415  (torch)

    return Address.of(cluster, certificates, insecure)


@dataclass(frozen=True)
class Elsewhere:
    """The workers that train the batches of a campaign; by default, this process does.

    Attributes:
        workers: number of processes of this machine, or a cluster, or None.
    """

    workers: "int | Address | None" = None

    @classmethod
    def parsed(
        cls,
        simulated: bool,
        workers: int | None,
        cluster: str | None,
        certificates: Path | None,
        insecure: bool,
    ) -> "Elsewhere":
        """Return the workers that the options name.

        simulated: whether Flower's simulation carries the messages.
        Raises InputError for conflicting options.
        """
        placed = cls(named(workers, cluster, certificates, insecure))
        if placed.workers is not None and simulated:
            raise InputError(
                "--workers, --cluster and --runtime simulation exclude each other; give only one"
            )
        return placed

    @property
    def processes(self) -> int:
        """Number of processes that share the memory of this machine."""
        return self.workers if isinstance(self.workers, int) else 1

    def check(self, plan: "Plan") -> None:
        """Raise InputError if the batches of a run cannot be trained there."""
        if self.workers is not None:
            from fedsim.federation.runtimes import dispatch  # noqa: PLC0415  (Flower)

            dispatch.check(
                plan.config.privacy.noise_source, plan.config.federation.tolerated_dropouts
            )

    @contextmanager
    def trainer(self, console: Console) -> "Iterator[Trainer | None]":
        """Yield the trainer of the batches, while the block runs; None for this process."""
        if self.workers is None:
            yield None
            return
        from fedsim import worker  # noqa: PLC0415  (Flower)
        from fedsim.federation.runtimes.dispatch import Dispatcher  # noqa: PLC0415
        from fedsim.federation.runtimes.places import opened  # noqa: PLC0415

        def say(line: str) -> None:
            console.print(line, highlight=False, markup=False)

        with opened(self.workers, say, LEAVES) as pool:
            yield Dispatcher(pool, worker.train_batch, say)


HERE = Elsewhere()
"""In this process."""
