"""TOML tables as typed, validated data, with types of their keys and errors in one line."""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, ValidationError

Scalar = bool | int | float | str
"""A value of TOML and of Flower's run config."""

PositiveInt = Annotated[int, Field(ge=1)]
Seed = Annotated[int, Field(ge=0, lt=2**63)]
Fraction = Annotated[float, Field(gt=0, lt=1)]


class TomlTable(BaseModel):
    """A TOML table: kebab-case keys, no unknown keys, no silent conversion between types."""

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        strict=True,
        allow_inf_nan=False,
        alias_generator=lambda name: name.replace("_", "-"),
        populate_by_name=True,
    )


def explain(error: ValidationError) -> str:
    """Return the first error as one line that names the key."""
    first = error.errors()[0]
    key = ".".join(str(part) for part in first["loc"])
    message = first["msg"].removeprefix("Value error, ")
    if first["type"] == "value_error":
        return message
    if first["type"] == "extra_forbidden":
        *table, name = map(str, first["loc"])
        return f"unknown key '{name}'" + (f" in {'.'.join(table)}" if table else "")
    message = message[0].lower() + message[1:]
    return f"{key} is {first['input']!r}: {message.replace('input', 'it', 1)}"
