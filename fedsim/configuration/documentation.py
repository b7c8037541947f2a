"""Explanations of the configuration keys, read from the docstrings of the tables."""

import difflib
import inspect
import re
import types
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from functools import cache
from typing import Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from adversaries.errors import InputError
from fedsim.common.tables import Scalar
from fedsim.configuration.experiment import Config
from fedsim.configuration.needs import Need
from fedsim.configuration.refused import REFUSED
from fedsim.configuration.run_config import to_run_config

BOUNDS = {
    "ge": "at least {}",
    "gt": "above {}",
    "le": "at most {}",
    "lt": "below {}",
    "multiple_of": "a multiple of {}",
}


FIRST = (
    "data.name",
    "data.records",
    "federation.clients",
    "federation.trust",
    "model.name",
    "training.rounds",
    "training.clipping-norm",
    "privacy.epsilon",
    "privacy.rho-beta",
    "trials.count",
)
"""The keys that most users change, in the order of the tables."""

TASKS = {
    "data": "Choose the data",
    "federation": "Set up the clients and the adversary",
    "model": "Choose the network",
    "training": "Train",
    "privacy": "Add noise",
    "challenge": "Choose the target",
    "canaries": "Plant canaries for a one-run audit",
    "trials": "Repeat the training",
    "audit": "Audit the trials",
    "run": "Carry out the run",
}
"""The task that the keys of each table serve."""


@dataclass(frozen=True)
class Key:
    """A key of a configuration, with the words that explain it."""

    key: str
    type: str
    allowed: str
    default: Scalar
    meaning: str

    @property
    def summary(self) -> str:
        """The first sentence of the meaning."""
        first, _, _ = self.meaning.partition(". ")
        return f"{first.removesuffix('.')}."


@cache
def every_key() -> Mapping[str, Key]:
    """Return every key by its name, in the order of the tables."""
    defaults = to_run_config(Config())
    return {key.key: key for key in _keys(defaults)}


def key(name: str) -> Key:
    """Return a key with its explanation. Raises InputError for an unknown or ambiguous name."""
    if name in every_key():
        return every_key()[name]
    inside = [dotted for dotted in every_key() if name in dotted.split(".")]
    if len(inside) == 1:
        return every_key()[inside[0]]
    near = difflib.get_close_matches(name, every_key(), n=3, cutoff=0.5) or inside
    meant = f"did you mean {', '.join(near[:3])}?" if near else "fedsim config shows all keys"
    raise InputError(f"no key is called '{name}'; {meant}")


def by_task() -> dict[str, list[Key]]:
    """Return every key once, by heading: first the most often changed keys, then each table."""
    keys = every_key()
    groups = {"Most often changed": [keys[name] for name in FIRST]}
    for table, task in TASKS.items():
        groups[f"{task} [{table}]"] = [
            key for name, key in keys.items() if name.startswith(f"{table}.") and name not in FIRST
        ]
    return groups


def rows_of(name: str) -> list[Need]:
    """Return the rows of the table of refused combinations that name a key."""

    def keys(need: Need) -> set[str]:
        return {setting.key for setting in (*need.what, *need.needs)}

    return [need for need in REFUSED if name in keys(need)]


def attributes(documented: type) -> dict[str, str]:
    """Return the text of each entry in a class's section "Attributes", in one line."""
    text = inspect.cleandoc(documented.__doc__ or "").partition("Attributes:\n")[2]
    entries = re.split(r"^    (?=\w+: )", text.split("\n\n")[0], flags=re.M)
    pairs = (entry.partition(": ") for entry in entries if entry.strip())
    return {name: " ".join(words.split()) for name, _, words in pairs}


def _keys(defaults: Mapping[str, Scalar]) -> Iterator[Key]:
    for table, inner in Config.model_fields.items():
        described = inner.annotation
        assert isinstance(described, type)
        assert issubclass(described, BaseModel)
        meanings = attributes(described)
        for name, field in described.model_fields.items():
            dotted = f"{table}.{name.replace('_', '-')}"
            # The docstrings name keys as Python does, with underscores.
            meaning = re.sub(r"(?<=[a-z])_(?=[a-z])", "-", meanings[name])
            yield Key(dotted, *_type(field), defaults[dotted], meaning)


def _type(field: FieldInfo) -> tuple[str, str]:
    annotation: Any = field.annotation
    if get_origin(annotation) in (Union, types.UnionType):
        annotation = get_args(annotation)[0]
    if get_origin(annotation) is Literal:
        return "text", _either(get_args(annotation))
    if isinstance(annotation, type) and issubclass(annotation, Enum):
        return "text", _either(tuple(each.value for each in annotation))
    if annotation is bool:
        return "true or false", ""
    limits = [
        words.format(f"{bound:g}" if bound < 1e6 else f"{bound:.3g}")
        for constraint in field.metadata
        for name, words in BOUNDS.items()
        if (bound := getattr(constraint, name, None)) is not None
    ]
    kind = {int: "whole number", float: "number"}.get(annotation, "text")
    return kind, " and ".join(limits)


def _either(values: tuple[Any, ...]) -> str:
    return " or ".join(f'"{value}"' for value in values)
