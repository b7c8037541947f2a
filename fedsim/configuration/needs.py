"""Requirements between the keys of a configuration, as data.

The row

    privacy.unit is "client": training.sampling-rate is 1.0
        | A client sends one clipped update.
        | set privacy.unit = "record"

refuses a configuration with `privacy.unit = "client"` and `training.sampling-rate = 0.5`:

    training.sampling-rate is 0.5, but privacy.unit is 'client'. A client sends one clipped update.
    Set training.sampling-rate = 1.0, or set privacy.unit = "record".
"""

import json
import operator
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel

from adversaries.errors import InputError
from fedsim.common.tables import Scalar
from fedsim.privacy.trust import Trust

Tested = Scalar | tuple[str, ...]

TESTS: dict[str, Callable[[Any, Any], bool]] = {
    "is": operator.eq,
    "is not": operator.ne,
    "is one of": lambda value, values: value in values,
    "is above": operator.gt,
    "is below": operator.lt,
    "is at least": operator.ge,
    "is even": lambda value, _: value % 2 == 0,
}

MODELS: dict[str, tuple[str, list[tuple[str, object]]]] = {
    "trust": ("federation.trust", [(trust.value, trust.model) for trust in Trust])
}
"""For each word of a row: the key, and the model of each of its values."""


@dataclass(frozen=True)
class KeySetting:
    """A statement about the value of one key, such as "training.local-steps is above 1"."""

    key: str
    test: str
    tested: Tested

    def value(self, config: BaseModel) -> Scalar:
        """Return the value of the key, an enumeration's as text."""
        table, name = self.key.replace("-", "_").split(".")
        value: Scalar = getattr(getattr(config, table), name)
        return str(value) if isinstance(value, str) else value

    def holds(self, config: BaseModel) -> bool:
        return TESTS[self.test](self.value(config), self.tested)

    def current(self, config: BaseModel) -> str:
        """Return the clause "KEY is VALUE" for a configuration."""
        value = self.value(config)
        if isinstance(value, str):
            first, *more = value.split("\n")
            return f"{self.key} is '{first}{'…' if more else ''}'"
        return f"{self.key} is {f'{value:g}' if isinstance(value, float) else as_toml(value)}"

    @property
    def words(self) -> str:
        """The statement as a clause."""
        if self.test == "is even":
            return f"{self.key} is even"
        if isinstance(self.tested, tuple):
            return f"{self.key} is {' or '.join(map(as_toml, self.tested))}"
        return f"{self.key} {self.test} {as_toml(self.tested)}"

    @property
    def advice(self) -> str:
        """The instruction that makes the statement true."""
        if self.test == "is even":
            return f"Give an even number as {self.key}"
        if self.test == "is not":
            return f"Give another {self.key}"
        if isinstance(self.tested, tuple):
            return f"Set {self.key} = {' or '.join(map(as_toml, self.tested))}"
        if self.test == "is":
            return f"Set {self.key} = {as_toml(self.tested)}"
        return f"Give {self.key} {self.test.removeprefix('is ')} {as_toml(self.tested)}"


@dataclass(frozen=True)
class Need:
    """Settings that require certain values of other keys, with the reason and a way out."""

    what: tuple[KeySetting, ...]
    needs: tuple[KeySetting, ...]
    why: str
    instead: str

    def check(self, config: BaseModel) -> None:
        """Raise ValueError, in one line, for the first need that is not met."""
        if not all(setting.holds(config) for setting in self.what):
            return
        for need in self.needs:
            if not need.holds(config):
                what = " and ".join(setting.current(config) for setting in self.what)
                raise ValueError(
                    f"{need.current(config)}, but {what}. {self.why} {need.advice}, or "
                    f"{self.instead}."
                )


def rows(text: str) -> tuple[Need, ...]:
    """Return the needs in a table of rows "WHAT: NEEDS | WHY | INSTEAD" and lines with "#".

    WHAT and NEEDS are settings, separated by semicolons; indented lines continue a row.
    """
    found = []
    for row in re.split(r"\n(?! )", text.strip()):
        if not row.startswith("#"):
            settings, why, instead = " ".join(row.split()).split(" | ")
            what, needs = (
                tuple(map(_setting, part.split("; "))) for part in settings.split(": ", 1)
            )
            found.append(Need(what, needs, why, instead))
    return tuple(found)


def _setting(text: str) -> KeySetting:
    """Return "KEY TEST VALUE", or that the trust or noise (not) has a property of its model."""
    if by := re.fullmatch(r"(not )?(trust|noise)\.(\w+)", text):
        without, table, name = by.groups()
        key, models = MODELS[table]
        having = (
            value for value, model in models if bool(getattr(model, name)) is not bool(without)
        )
        return KeySetting(key, "is one of", tuple(having))
    key, rest = text.split(" ", 1)
    test = max((test for test in TESTS if rest.startswith(test)), key=len)
    value = rest.removeprefix(test)
    if test == "is one of":
        return KeySetting(key, test, tuple(json.loads(f"[{value}]")))
    return KeySetting(key, test, json.loads(value) if value else 2)


UNBOUNDED = "nothing bounds what one record can change"
"""The reason why a training without clipping has no guarantee."""


def as_toml(value: Scalar) -> str:
    """Return a value as it is written in a configuration."""
    if isinstance(value, bool):
        return str(value).lower()
    return f'"{value}"' if isinstance(value, str) else repr(value)


def require(rows: Iterable[tuple[str, Scalar, Scalar]], why: str) -> None:
    """Raise InputError for the first (key, value, needed value) of a study that differs."""
    for key, value, needed in rows:
        if value != needed:
            current = str(value).lower() if isinstance(value, bool) else value
            raise InputError(f"{key} is {current}, but {why}; set {key} = {as_toml(needed)}")
