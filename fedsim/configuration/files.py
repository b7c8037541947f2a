"""Configurations as files, and as `KEY=VALUE`."""

import difflib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import tomli_w

from adversaries.errors import InputError
from fedsim.common import configurations, reading
from fedsim.common.tables import Scalar
from fedsim.configuration.experiment import Config
from fedsim.configuration.federation import OWN, TABLES
from fedsim.configuration.jobs import JOBS, overlaid
from fedsim.configuration.run_config import flatten, from_run_config, to_run_config


def load(
    path: Path, overrides: Mapping[str, Scalar] | None = None, job: str | None = None
) -> Config:
    """Return the configuration of a TOML file.

    path: the file; its stem is the default of run.name.
    overrides: values by dotted key that replace the file's. A noise target replaces any other.
    job: the job, a key of `JOBS`; None: the file's own run.job.
    Raises InputError if the file cannot be read, or has an unknown key or an invalid value.
    """
    if (path / "config.toml").is_file():
        raise InputError(
            f"'{path}' is a run directory; continue it with fedsim run {path}, or give its file "
            f"{path / 'config.toml'}"
        )
    if path.suffix in TABLES and path.is_file():
        raise InputError(
            f"'{path}' is a table, not a configuration; fedsim init NAME.toml --data {path} writes "
            "one"
        )
    try:
        tree = reading.toml(path)
    except FileNotFoundError:
        near = difflib.get_close_matches(path.stem, configurations.listing(), n=1)
        meant = f"did you mean {near[0]}? " if near else ""
        raise InputError(
            f"there is no configuration file '{path}'; {meant}fedsim init writes one, and fedsim "
            "init --list lists the examples"
        ) from None
    values = overlaid(dict(flatten(tree)), overrides or {})
    if "run.name" not in values:
        values["run.name"] = path.stem
    if job is None and values.get("data.name") == OWN and "run.job" not in values:
        job = "training"  # clients' own records serve no other job
    _read_schema(values, path.parent)
    return from_run_config(values if job is None else JOBS[job](values))


def _read_schema(values: dict[str, Any], folder: Path) -> None:
    """Replace the path of a schema's file with its text. Raises InputError if it is unreadable."""
    named = values.get("data.public-schema")
    if not isinstance(named, str) or not named or "\n" in named:
        return
    path = folder / named
    try:
        values["data.public-schema"] = reading.content(path, reading.MOST_TOML).decode() + "\n"
    except reading.DAMAGE as error:
        raise InputError(
            f"cannot read the schema '{path}': {reading.reason(error)}; give data.public-schema "
            "the path of its file, relative to the configuration"
        ) from None


def check_is_no_training(job: str, where: str) -> None:
    """Raise InputError if a run is a training, which has no trials to report."""
    if job == "training":
        raise InputError(
            f"'{where}' is a training, which has no trials to report; use fedsim train, or "
            "fedsim deploy train"
        )


def parse_override(text: str) -> tuple[str, Scalar]:
    """Return key and value of one `KEY=VALUE`. Raises InputError if it has another form."""
    key, equals, value = text.partition("=")
    if not equals or not key.strip():
        raise InputError(f"{text!r} is not KEY=VALUE, for example data.records=100")
    key, text = key.strip(), value.strip().strip("\"'")
    if isinstance(to_run_config(Config()).get(key), str):
        return key, text  # text may look like a number, such as a layer named "1"
    try:
        parsed = reading.toml_of(f"value = {value}".encode())["value"]
    except reading.DAMAGE:
        return key, text
    return key, parsed if isinstance(parsed, bool | int | float) else text


def parse_overrides(texts: Iterable[str] | None) -> dict[str, Scalar]:
    """Return the values of KEY=VALUE texts by key, the last of each; None means no override."""
    return dict(parse_override(text) for text in texts or ())


def dump(config: Config) -> str:
    """Return the configuration as TOML. `load` reads an equal configuration from it."""
    return tomli_w.dumps(config.model_dump(mode="json", by_alias=True))
