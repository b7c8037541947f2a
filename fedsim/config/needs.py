"""What one setting of a configuration needs of another, as data.

    Need(
        what=(equals("privacy.noise", "pac"),),
        needs=(equals("training.clipping", True),),
        why="where the server compares what all candidates would send",
        instead='privacy.noise = "isotropic"',
    )

refuses a configuration with `privacy.noise = "pac"` and `training.clipping = false`, and says why.
"""

import operator
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel

from fedsim.common.tables import Scalar

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


@dataclass(frozen=True)
class Setting:
    """A statement about the value of one key, such as that `training.local-steps` is above 1.

    Attributes:
        key: dotted, as in a configuration file.
        test: one of TESTS.
        tested: what the value is compared with.
    """

    key: str
    test: str
    tested: Tested

    def value(self, config: BaseModel) -> Scalar:
        """Return the value of the key, an enumeration's as text."""
        table, name = self.key.replace("-", "_").split(".")
        value: Scalar = getattr(getattr(config, table), name)
        return str(value) if isinstance(value, str) else value

    def holds(self, config: BaseModel) -> bool:
        """Return whether the configuration is so."""
        return TESTS[self.test](self.value(config), self.tested)

    def given(self, config: BaseModel) -> str:
        """Return what the configuration gives, for a sentence."""
        value = self.value(config)
        if isinstance(value, str):
            first, *more = value.split("\n")
            return f"{self.key} is '{first}{'…' if more else ''}'"
        return f"{self.key} is {f'{value:g}' if isinstance(value, float) else as_toml(value)}"

    @property
    def words(self) -> str:
        """The statement, as a sentence has it."""
        if self.test == "is even":
            return f"{self.key} is even"
        if isinstance(self.tested, tuple):
            return f"{self.key} is {' or '.join(map(as_toml, self.tested))}"
        return f"{self.key} {self.test} {as_toml(self.tested)}"

    @property
    def advice(self) -> str:
        """What to do so that it holds."""
        if self.test == "is even":
            return f"give an even number as {self.key}"
        if self.test == "is not":
            return f"give another {self.key}"
        if isinstance(self.tested, tuple):
            return f"set {self.key} = {' or '.join(map(as_toml, self.tested))}"
        if self.test == "is":
            return f"set {self.key} = {as_toml(self.tested)}"
        return f"give {self.key} {self.test.removeprefix('is ')} {as_toml(self.tested)}"


@dataclass(frozen=True)
class Need:
    """Settings that go together with certain values of others alone, and why.

    Attributes:
        what: where all of these hold,
        needs: all of these must.
        why: continues the sentence "X is x, but WHAT is w, ...".
        instead: the setting that would need none of it, as TOML has it.
    """

    what: tuple[Setting, ...]
    needs: tuple[Setting, ...]
    why: str
    instead: str

    def check(self, config: BaseModel) -> None:
        """Raise ValueError, in one line, for the first need that is not met."""
        if not all(setting.holds(config) for setting in self.what):
            return
        for need in self.needs:
            if not need.holds(config):
                what = " and ".join(setting.given(config) for setting in self.what)
                raise ValueError(
                    f"{need.given(config)}, but {what}, {self.why}; {need.advice}, or "
                    f"{self.instead}"
                )


def equals(key: str, value: Scalar) -> Setting:
    """Return that a key has this value."""
    return Setting(key, "is", value)


def differs(key: str, value: Scalar) -> Setting:
    """Return that a key has another value than this."""
    return Setting(key, "is not", value)


def one_of(key: str, *values: str) -> Setting:
    """Return that a key has one of these values."""
    return Setting(key, "is one of", values)


def above(key: str, bound: float) -> Setting:
    """Return that a number is greater than this."""
    return Setting(key, "is above", bound)


def below(key: str, bound: float) -> Setting:
    """Return that a number is less than this."""
    return Setting(key, "is below", bound)


def at_least(key: str, bound: int) -> Setting:
    """Return that a number is this or greater."""
    return Setting(key, "is at least", bound)


def even(key: str) -> Setting:
    """Return that a number is even."""
    return Setting(key, "is even", 2)


def as_toml(value: Scalar) -> str:
    """Return a value as it is written in a configuration."""
    if isinstance(value, bool):
        return str(value).lower()
    return f'"{value}"' if isinstance(value, str) else repr(value)
