"""Configurations as Flower's run config: a flat map of dotted keys to scalars."""

import difflib
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any

from pydantic import ValidationError

from adversaries.errors import InputError
from fedsim.common.tables import Scalar, explain
from fedsim.configuration.experiment import Config
from fedsim.configuration.jobs import TABLE, TARGETS


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
