"""Configurations as files, as Flower's run config, and as `KEY=VALUE`."""

import difflib
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

import tomli_w
from pydantic import ValidationError

from adversaries.errors import InputError
from fedsim.common import reading
from fedsim.common.tables import Scalar, explain
from fedsim.configuration.experiment import Config
from fedsim.configuration.federation import OWN
from fedsim.configuration.jobs import JOBS, TABLE, TARGETS, overlaid


def flatten(tree: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield (dotted key, value) of nested tables, with keys as Flower forms them."""
    for key, value in tree.items():
        if isinstance(value, Mapping):
            yield from flatten(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def to_run_config(config: Config) -> dict[str, Scalar]:
    """Return the configuration by dotted key, as Flower passes it to an app."""
    return dict(flatten(config.model_dump(mode="json", by_alias=True)))


def declared() -> dict[str, dict[str, Scalar]]:
    """Return an app's declared tables, without values for what a rule chooses."""
    tables: dict[str, dict[str, Scalar]] = Config().model_dump(mode="json", by_alias=True)
    tables[TABLE] |= {TARGETS[0]: "", "delta": 0.0}
    tables["training"] |= {"optimizer": "", "schedule": ""}
    return tables


KNOWN_KEYS = tuple(to_run_config(Config()))


def from_run_config(values: Mapping[str, Any]) -> Config:
    """Return the configuration of a flat map. Raises InputError for a bad key or value."""
    # The cache needs the types too: 1, 1.0 and true are equal, but different values of a key.
    items, types = tuple(values.items()), tuple(map(type, values.values()))
    try:
        return _parsed(items, types)
    except TypeError:  # a list cannot be a key of a cache
        return _parsed.__wrapped__(items, types)


@lru_cache(maxsize=64)
def _parsed(items: tuple[tuple[str, Any], ...], _: tuple[type, ...]) -> Config:
    """Return the configuration of a flat map. Cached, since a node reads it with each message."""
    values = dict(items)
    tree: dict[str, dict[str, Any]] = {}
    for key, value in values.items():
        if key not in KNOWN_KEYS:
            raise InputError(f"unknown key '{key}'{_suggestion(key)}")
        table, name = key.split(".")
        tree.setdefault(table, {})[name] = value
    try:
        return Config.model_validate(tree)
    except ValidationError as error:
        raise InputError(explain(error)) from None


TABLES = (".csv", ".tsv", ".gz", ".parquet", ".npz")
"""Suffixes of tables, which a user may take for a configuration."""


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
        from fedsim.common import configurations  # noqa: PLC0415  (never in a client)

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


def _suggestion(key: str) -> str:
    if key in Config.model_fields:
        within = next(dotted for dotted in KNOWN_KEYS if dotted.startswith(f"{key}."))
        return f", which is a table; give one of its keys, such as {within}"
    if near := difflib.get_close_matches(key, KNOWN_KEYS, n=1):
        return f"; did you mean '{near[0]}'?"
    # The table may be missing or wrong, so compare the last part alone.
    names = {dotted.rpartition(".")[2]: dotted for dotted in KNOWN_KEYS}
    if near := difflib.get_close_matches(key.rpartition(".")[2], names, n=1):
        return f"; did you mean '{names[near[0]]}'?"
    return f"; the tables are {', '.join(Config.model_fields)}"
