"""Options of work that other processes do: `--workers` and `--cluster`."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from adversaries.errors import InputError

if TYPE_CHECKING:  # torch, which takes a second
    from fedsim.federation.runtimes.places import Workers

Batches = Annotated[
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
    typer.Option(metavar="ADDRESS", help="Use the workers of the Dask scheduler at this address."),
]
ClusterTls = Annotated[
    Path | None,
    typer.Option(metavar="DIR", help="Certificates of the cluster: ca.pem, cert.pem, key.pem."),
]
Insecure = Annotated[
    bool,
    typer.Option("--insecure", help="Reach a scheduler on another machine without TLS."),
]


def named(
    workers: int | None,
    cluster: str | None,
    certificates: Path | None,
    insecure: bool,
    simulated: bool = False,
) -> "Workers | None":
    """Return the workers that the options name: processes of this machine, a cluster, or None.

    simulated: whether Flower's simulation carries the messages.
    Raises InputError for conflicting options.
    """
    if cluster is None and (certificates is not None or insecure):
        raise InputError("--cluster-tls and --insecure need --cluster; add it, or drop them")
    if simulated + (workers is not None) + (cluster is not None) > 1:
        raise InputError(
            "--workers, --cluster and --runtime simulation exclude each other; give only one"
        )
    if cluster is None and workers is None:
        return None
    from fedsim.federation.runtimes.dask_pool import Address  # noqa: PLC0415  (torch)
    from fedsim.federation.runtimes.places import processes  # noqa: PLC0415

    if cluster is None:
        return processes(workers)
    return Address.of(cluster, certificates, insecure)
