"""What a key of a configuration may hold."""

from typing import Annotated

from pydantic import Field

Scalar = bool | int | float | str
"""What TOML and Flower's run config know."""

PositiveInt = Annotated[int, Field(ge=1)]
Seed = Annotated[int, Field(ge=0, lt=2**63)]
Fraction = Annotated[float, Field(gt=0, lt=1)]
