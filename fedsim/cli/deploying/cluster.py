"""`fedsim cluster`: the certificates of a Dask cluster."""

from pathlib import Path
from typing import Annotated

import typer

from adversaries.errors import InputError


def certificates(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="Path of the new folder.")],
    days: Annotated[int, typer.Option(min=1, help="Lifetime of the certificates, in days.")] = 365,
) -> None:
    """Write the certificates by which the machines of a Dask cluster know each other.

    Writes one certificate for all machines, and that of the authority that signed it. A holder of
    key.pem can run code on every machine of the cluster: copy the folder over a secure channel. The
    key of the authority is deleted, so that it signs no other certificate.

    Example: fedsim cluster certificates cluster-tls
    """
    from fedsim.common import private_files  # noqa: PLC0415
    from fedsim.deployment.certificates import authority, server_certificate  # noqa: PLC0415
    from fedsim.federation.runtimes.dask_pool import (  # noqa: PLC0415  (torch)
        AUTHORITY,
        CERTIFICATE,
        KEY,
    )

    if directory.exists():
        raise InputError(f"'{directory}' exists; name a new folder")
    issuer = authority(days)
    pair = server_certificate(issuer, ["fedsim-cluster"], days, both_sides=True)
    private_files.make_directory(directory)
    for name, content in ((AUTHORITY, issuer.public), (CERTIFICATE, pair.public)):
        private_files.write(directory / name, content)
    private_files.write(directory / KEY, pair.private)
    flags = f"--tls-ca-file {AUTHORITY} --tls-cert {CERTIFICATE} --tls-key {KEY}"
    typer.echo(f"{directory}: {AUTHORITY}, {CERTIFICATE}, {KEY}; valid for {days} days")
    typer.echo(f"In a copy on each machine: dask scheduler --protocol tls {flags}")
    typer.echo(f"                           dask worker tls://HOST:8786 --nthreads 1 {flags}")
