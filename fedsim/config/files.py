"""Configurations as files, as Flower's run config, and as `--set KEY=VALUE`."""

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
from fedsim.config.experiment import Config
from fedsim.config.federation import OWN
from fedsim.config.jobs import JOBS
from fedsim.config.targets import TABLE, TARGETS, overlaid

HUGGING_FACE = "hf:"
"""What data.name begins with that is followed by the folder of a data set of Hugging Face."""


def flatten(tree: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield (dotted key, value) of nested tables, as Flower does."""
    for key, value in tree.items():
        if isinstance(value, Mapping):
            yield from flatten(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def to_run_config(config: Config) -> dict[str, Scalar]:
    """Return the flat dotted map that Flower hands to every app."""
    return dict(flatten(config.model_dump(mode="json", by_alias=True)))


def declared() -> dict[str, dict[str, Scalar]]:
    """Return the tables that an app's pyproject.toml declares: every key with its default.

    But for the target, delta, optimiser and schedule, which are not given there: Flower fills in
    what a run does not name.
    """
    tables: dict[str, dict[str, Scalar]] = Config().model_dump(mode="json", by_alias=True)
    tables[TABLE] |= {TARGETS[0]: "", "delta": 0.0}
    tables["training"] |= {"optimizer": "", "schedule": ""}
    return tables


KNOWN_KEYS = tuple(to_run_config(Config()))


def from_run_config(values: Mapping[str, Any]) -> Config:
    """Return the configuration that a flat dotted map stands for.

    values: by dotted key; what is left out has its default.
    Raises InputError for a key that is unknown or whose value does not do.
    """
    # The types too: 1, 1.0 and true are equal, and not the same value of a key.
    items, types = tuple(values.items()), tuple(map(type, values.values()))
    try:
        return _parsed(items, types)
    except TypeError:  # a list, which is no key of a cache
        return _parsed.__wrapped__(items, types)


@lru_cache(maxsize=64)
def _parsed(items: tuple[tuple[str, Any], ...], _: tuple[type, ...]) -> Config:
    """Return the configuration of a flat map; cached, since a node reads it with each message."""
    values = dict(items)
    tree: dict[str, dict[str, Any]] = {}
    for key, value in _with_path(values).items():
        if key not in KNOWN_KEYS:
            raise InputError(f"unknown key '{key}'{_suggestion(key)}")
        table, name = key.split(".")
        tree.setdefault(table, {})[name] = value
    try:
        return Config.model_validate(tree)
    except ValidationError as error:
        raise InputError(explain(error)) from None


def load(
    path: Path, overrides: Mapping[str, Scalar] | None = None, job: str | None = None
) -> Config:
    """Return the configuration of a TOML file.

    path: the file; its stem is run.name unless that is given.
    overrides: by dotted key, put in place of what the file says; a target in place of any.
    job: what it is read for, a key of `JOBS`; None for what it says itself.
    Raises InputError for what cannot be read, is unknown or does not do.
    """
    if (path / "config.toml").is_file():
        raise InputError(
            f"'{path}' is a run's directory; continue it with --resume {path}, or give its "
            f"{path / 'config.toml'}"
        )
    try:
        tree = reading.toml(path)
    except FileNotFoundError:
        from fedsim.common import configurations  # noqa: PLC0415  (a client never gets here)

        near = difflib.get_close_matches(path.stem, configurations.listing(), n=1)
        meant = f"did you mean {near[0]}? " if near else ""
        raise InputError(
            f"no configuration file '{path}'; {meant}fedsim init writes one, and fedsim config "
            "examples lists those that come with fedsim"
        ) from None
    values = overlaid(dict(flatten(tree)), overrides or {})
    if "run.name" not in values:
        values["run.name"] = path.stem
    if job is None and values.get("data.name") == OWN and "run.job" not in values:
        job = "training"  # what each client has for itself is made for nothing else
    _read_schema(values, path.parent)
    return from_run_config(values if job is None else JOBS[job](values))


def _with_path(values: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the values with data.name = "hf:PATH" written as a name and a root."""
    name = values.get("data.name")
    if not (isinstance(name, str) and name.startswith(HUGGING_FACE)):
        return values
    path = name.removeprefix(HUGGING_FACE)
    if values.get("data.root", path) != path:
        raise InputError(
            f"data.name is '{name}' and data.root is '{values['data.root']}'; name the folder once"
        )
    return {**values, "data.name": HUGGING_FACE.rstrip(":"), "data.root": path}


def _read_schema(values: dict[str, Any], folder: Path) -> None:
    """Put the text of a schema in place of the path of its file. Raises InputError."""
    named = values.get("data.public-schema")
    if not isinstance(named, str) or not named or "\n" in named:
        return
    path = folder / named
    try:
        values["data.public-schema"] = reading.content(path, reading.MOST_TOML).decode() + "\n"
    except reading.DAMAGE as error:
        raise InputError(
            f"cannot read the schema '{path}': {reading.reason(error)}; name its file with "
            "data.public-schema, as seen from the configuration"
        ) from None


def check_is_no_training(config: Config, where: str) -> None:
    """Make sure that a run is one whose trials are reported.

    Raises InputError if it is the training of a model that is kept.
    """
    if config.run.job == "training":
        raise InputError(
            f"'{where}' is of a training, which has no trials to report; use fedsim train (or "
            "deploy train), or rehearse the file that it was made from (fedsim rehearse)"
        )


def parse_override(text: str) -> tuple[str, Scalar]:
    """Return key and value of one `KEY=VALUE`. Raises InputError if it has another form."""
    key, equals, value = text.partition("=")
    if not equals or not key.strip():
        raise InputError(f"--set {text!r} is not KEY=VALUE, for example --set data.records=100")
    key, text = key.strip(), value.strip().strip("\"'")
    if isinstance(to_run_config(Config()).get(key), str):
        return key, text  # a layer may be named 1
    try:
        parsed = reading.toml_of(f"value = {value}".encode())["value"]
    except reading.DAMAGE:
        return key, text
    return key, parsed if isinstance(parsed, bool | int | float) else text


def parse_overrides(texts: Iterable[str] | None) -> dict[str, Scalar]:
    """Return what `--set` was given by key, the last word on a key counting.

    texts: each a `KEY=VALUE`; None for none.
    """
    return dict(parse_override(text) for text in texts or ())


def dump(config: Config) -> str:
    """Return the resolved configuration as TOML that `load` reads back to the same value."""
    return tomli_w.dumps(config.model_dump(mode="json", by_alias=True))


FIXED_SIZE = ("fraction", "fraction-fit", "fraction-train", "clients-per-round", "cohort-size")
"""What frameworks call a cohort of a fixed size, which people look for under these names."""


def _suggestion(key: str) -> str:
    if key.rpartition(".")[2] in FIXED_SIZE:
        return (
            ": a fixed number of clients in a round is not simulated, since its amplification is "
            "proven where neighbours replace a client, and here they add or remove one; "
            "federation.sampling-rate samples each client by a coin of its own"
        )
    if key in Config.model_fields:
        within = next(known for known in KNOWN_KEYS if known.startswith(f"{key}."))
        return f": it is a table; give one of its keys, such as {within}"
    if near := difflib.get_close_matches(key, KNOWN_KEYS, n=1):
        return f"; did you mean '{near[0]}'?"
    # The table may be missing or wrong: compare the last part alone.
    names = {known.rpartition(".")[2]: known for known in KNOWN_KEYS}
    if near := difflib.get_close_matches(key.rpartition(".")[2], names, n=1):
        return f"; did you mean '{names[near[0]]}'?"
    return f"; the tables are {', '.join(Config.model_fields)}"
