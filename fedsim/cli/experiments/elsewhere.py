"""The options of campaigns whose batches other processes train: `--workers`, `--cluster`."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from adversaries.errors import InputError
from fedsim.cli.experiments.options import Runtime

if TYPE_CHECKING:  # torch, which takes a second
    from fedsim.federation.runtimes.pools import Pool
    from fedsim.federation.server.batch_run import Trainer
    from fedsim.federation.server.plan import Plan

Workers = Annotated[
    int | None,
    typer.Option(metavar="N", help="Train batches of trials in N processes of this machine."),
]


@dataclass(frozen=True)
class Elsewhere:
    """Where the batches of a campaign are trained.

    Attributes:
        workers: how many processes of this machine; None for this process.
    """

    workers: int | None

    @classmethod
    def asked(cls, workers: int | None, runtime: Runtime) -> "Elsewhere":
        """Return what was asked for. Raises InputError where options contradict each other."""
        if workers is not None and workers < 1:
            raise InputError(f"--workers is {workers}; give 1 or more, or leave it out")
        if workers is not None and runtime is Runtime.SIMULATION:
            raise InputError(
                "--workers trains batches of trials beside each other, and --runtime simulation "
                "clients; give one of them"
            )
        return cls(workers)

    @property
    def processes(self) -> int:
        """How many processes share the memory of this machine."""
        return self.workers or 1

    def check(self, plan: "Plan") -> None:
        """Raise InputError where the batches of a run cannot be trained there."""
        if self.workers is not None:
            from fedsim.federation.runtimes import dispatch  # noqa: PLC0415  (Flower)

            dispatch.check(
                plan.config.privacy.noise_source, plan.config.federation.tolerated_dropouts
            )

    @contextmanager
    def trainer(self, console: Console) -> "Iterator[Trainer | None]":
        """Yield what trains the batches, for as long as the block runs; None for this process."""
        if self.workers is None:
            yield None
            return
        from fedsim import worker  # noqa: PLC0415  (Flower)
        from fedsim.federation.runtimes.dispatch import Dispatcher  # noqa: PLC0415

        def say(line: str) -> None:
            console.print(line, highlight=False, markup=False)

        pool = self._pool()
        try:
            yield Dispatcher(pool, worker.train_batch, say)
        finally:
            pool.stop()

    def _pool(self) -> "Pool":
        from fedsim.federation.runtimes.pools import LocalPool  # noqa: PLC0415

        assert self.workers is not None
        return LocalPool(self.workers)


HERE = Elsewhere(None)
"""In this process."""
