"""Options of work that other processes do: `--workers` and `--cluster`."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from adversaries.errors import InputError

if TYPE_CHECKING:  # torch, which takes a second
    from fedsim.federation.runtimes.places import Workers


@dataclass(frozen=True)
class Elsewhere:
    """The workers of a command: batches of trials, unless a subclass says what they do."""

    workers: Annotated[
        int | None,
        typer.Option(metavar="N", help="Train batches of trials in N processes of this machine."),
    ] = None
    cluster: Annotated[
        str | None,
        typer.Option(
            metavar="ADDRESS", help="Use the workers of the Dask scheduler at this address."
        ),
    ] = None
    cluster_tls: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Certificates of the cluster: ca.pem, cert.pem, key.pem."),
    ] = None
    insecure: Annotated[
        bool,
        typer.Option("--insecure", help="Reach a scheduler on another machine without TLS."),
    ] = False

    def named(self, simulated: bool = False) -> "Workers | None":
        """Return the workers that the options name: processes of this machine, a cluster, or None.

        simulated: whether Flower's simulation carries the messages.
        Raises InputError for conflicting options.
        """
        if self.cluster is None and (self.cluster_tls is not None or self.insecure):
            raise InputError("--cluster-tls and --insecure need --cluster; add it, or drop them")
        if simulated + (self.workers is not None) + (self.cluster is not None) > 1:
            raise InputError(
                "--workers, --cluster and --runtime simulation exclude each other; give only one"
            )
        if self.cluster is None and self.workers is None:
            return None
        from fedsim.federation.runtimes.dask_pool import Address  # noqa: PLC0415  (torch)
        from fedsim.federation.runtimes.places import processes  # noqa: PLC0415

        if self.cluster is None:
            return processes(self.workers)
        return Address.of(self.cluster, self.cluster_tls, self.insecure)


@dataclass(frozen=True)
class SettingsElsewhere(Elsewhere):
    workers: Annotated[
        int | None,
        typer.Option(
            metavar="N", help="Try N settings at once, each in a process of this machine."
        ),
    ] = None
