"""What the arguments of several commands mean: a configuration, its changes, workers, a console."""

import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from adversaries.errors import InputError
from fedsim import configuration
from fedsim.configuration import Config, Scalar
from fedsim.configuration import files as configuration_files

if TYPE_CHECKING:  # torch, which takes a second
    import numpy.typing as npt
    from torch.nn import Module

    from adversaries.attacks.membership_attacks import Attack, Score
    from fedsim.commands.terminal import Terminal
    from fedsim.federation.runtimes.workers import Address, Workers

    Given = Path | str | Config | Mapping[str, Any]
    Change = str | Mapping[str, Any]
    Network = Callable[..., Module] | None
    Arrays = tuple[npt.ArrayLike, npt.ArrayLike] | None
    Attacks = Sequence[Score | Attack | str] | None
    Over = Sequence[str] | Mapping[str, Sequence[Scalar]] | None
    Progress = bool | None
else:
    Given = Path
    Change = str
    Over = list[str] | None
    Network = Arrays = Attacks = Progress = Annotated[Any, Parameter(parse=False)]


OWN_DATA = "own-data"
"""Default of run.name where Python gives the data."""


def changed(changes: Sequence[Change], values: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return the values of KEY=VALUE texts and of mappings, and other values that are not None.

    Args:
        changes: each a text, or a mapping from dotted keys to values; the last of a key counts.
        values: by dotted key; paths become text.

    Raises:
        InputError: a text is no KEY=VALUE.
    """
    merged: dict[str, Any] = {}
    for change in changes:
        merged |= (
            configuration_files.parse_overrides([change]) if isinstance(change, str) else change
        )
    given = {key: each for key, each in (values or {}).items() if each is not None}
    paths = {key: str(each) for key, each in given.items() if isinstance(each, Path)}
    return merged | given | paths


def configured(
    config: Given, overrides: Mapping[str, Any] | None = None, job: str | None = "experiment"
) -> Config:
    """Return the configuration of a file, a bundled name, a configuration or dotted keys.

    Args:
        config: path or bundled name, a configuration, or dotted keys over the defaults.
        overrides: dotted keys with scalars or with objects that `fedsim.game.given` registers.
        job: purpose, a key of `fedsim.configuration.JOBS`; None for the configuration's own.

    Raises:
        InputError: the configuration is invalid.
    """
    from fedsim.common import configurations  # noqa: PLC0415

    overrides = dict(overrides or {})
    if not all(isinstance(value, Scalar) for value in overrides.values()):
        from fedsim.game import given  # noqa: PLC0415  (the attacks are slow to import)

        if not isinstance(overrides.get("data.name", ""), str):
            overrides = {"run.name": OWN_DATA} | overrides  # not the name of the file's data
        overrides = given.values(overrides)
    if isinstance(config, Path | str):
        named = Path(config)
        file = configurations.bundled(named)
        if file != named and (named.suffix or named.parent != Path()):
            print(f"'{named}' does not exist; using the bundled {file}", file=sys.stderr)
        return configuration_files.load(file, overrides, job)
    from fedsim.game import given  # noqa: PLC0415

    if isinstance(config, Config):
        config = configuration.to_run_config(config)
    values = given.values(dict(configuration.flatten(config)))
    values = configuration.overlaid(values, overrides)
    return configuration.from_run_config(values if job is None else configuration.JOBS[job](values))


def is_run(config: Given) -> bool:
    """Return whether a run directory is named."""
    return isinstance(config, Path | str) and (Path(config) / "config.toml").is_file()


def console(progress: bool | None) -> "Terminal":
    """Return the console for progress, on standard error.

    Args:
        progress: whether to show it; None: only in a terminal or a notebook.
    """
    from fedsim.commands.terminal import Terminal  # noqa: PLC0415

    return Terminal(stderr=True, quiet=progress is False, force_terminal=progress or None)


def workers_of(
    workers: int | None,
    cluster: "str | Address | None",
    cluster_tls: Path | str | None,
    insecure: bool,
    simulation: bool = False,
) -> "Workers | None":
    """Return the workers that the arguments name: processes, a cluster, or None.

    Raises:
        InputError: the arguments exclude each other, or one lacks another.
    """
    if cluster is None and (cluster_tls is not None or insecure):
        raise InputError("--cluster-tls and --insecure need --cluster; add it, or drop them")
    if simulation + (workers is not None) + (cluster is not None) > 1:
        raise InputError("--workers, --cluster and --simulation exclude each other; give only one")
    if cluster is None and workers is None:
        return None
    from fedsim.federation.runtimes.workers import Address, processes  # noqa: PLC0415  (torch)

    if cluster is None:
        return processes(workers)
    if isinstance(cluster, Address):
        return cluster
    return Address.of(cluster, None if cluster_tls is None else Path(cluster_tls), insecure)
