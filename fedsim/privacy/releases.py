"""A federation's releases: one description from which each vantage point's mechanism follows."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Self

from pydantic import Field, ValidationError, model_validator

from adversaries.errors import InputError
from fedsim.common import reading
from fedsim.common.tables import TomlTable, explain
from fedsim.privacy.mechanism import (
    Mechanism,
    Neighbouring,
    Steps,
    effective_noise_multiplier,
    sensitivity,
)
from fedsim.privacy.trust import Trust, Vantage


@dataclass(frozen=True)
class Rounds:
    """Rounds of the same kind, with the nominal noise multiplier of their noise."""

    noise_multiplier: float
    count: int = 1
    sampling_rate: float = 1.0
    local_steps: int = 1
    participants: int | None = None


@dataclass(frozen=True)
class Releases:
    """All releases of a federation.

    The bounds hold for a record whose client takes part in all rounds.

    Attributes:
        clipping_norm: None where only the ratio of the noise to it is known.
        summed_in_the_clear: whether the server sees single messages under distributed trust.
    """

    rounds: tuple[Rounds, ...]
    neighbouring: Neighbouring = Neighbouring.ADD_REMOVE
    trust: Trust = Trust.CENTRAL
    clients: int = 2
    clipping_norm: float | None = None
    colluders: int = 0
    summed_in_the_clear: bool = False
    joining_rate: float = 1.0

    def towards(self, vantage: Vantage) -> Mechanism:
        """Return the mechanism that this vantage point faces."""
        steps = (
            Steps(
                effective_noise_multiplier(
                    alike.noise_multiplier,
                    self.trust,
                    vantage,
                    self.clients,
                    alike.local_steps,
                    alike.participants,
                    self.colluders,
                    self.joining_rate,
                ),
                alike.count * alike.local_steps,
                alike.sampling_rate,
            )
            for alike in self.rounds
        )
        return Mechanism(tuple(steps), self.neighbouring)

    def under(self, trust: Trust) -> "Releases":
        return replace(self, trust=trust)

    def first(self, count: int) -> "Releases":
        """Return the first `count` rounds, or all if there are fewer.

        Raises InputError for a count below 1.
        """
        # Take whole groups of equal rounds until the count is used up; the last group may be cut.
        kept, left = [], count
        for alike in self.rounds:
            if left > 0:
                kept.append(replace(alike, count=min(alike.count, left)))
                left -= alike.count
        if not kept:
            raise InputError(f"{count} rounds release nothing; give at least 1")
        return replace(self, rounds=tuple(kept))

    def repeated(self, times: int) -> "Releases":
        rounds = (replace(alike, count=alike.count * times) for alike in self.rounds)
        return replace(self, rounds=tuple(rounds))

    @property
    def count(self) -> int:
        return sum(alike.count for alike in self.rounds)


class _RoundsTable(TomlTable):
    count: Annotated[int, Field(ge=1)] = 1
    noise_multiplier: Annotated[float, Field(ge=0)] | None = None
    noise_std: Annotated[float, Field(ge=0)] | None = None
    sampling_rate: Annotated[float, Field(gt=0, le=1)] = 1.0
    local_steps: Annotated[int, Field(ge=1)] = 1
    participants: Annotated[int, Field(ge=1)] | None = None

    @model_validator(mode="after")
    def _one_noise(self) -> Self:
        if (self.noise_multiplier is None) == (self.noise_std is None):
            raise ValueError(
                "each of the [[rounds]] needs noise-multiplier or noise-std, and only one of them"
            )
        return self


class _ReleasesTable(TomlTable):
    neighbouring: Annotated[Neighbouring, Field(strict=False)] = Neighbouring.ADD_REMOVE
    trust: Annotated[Trust, Field(strict=False)] = Trust.CENTRAL
    clients: Annotated[int, Field(ge=2)] = 2
    clipping_norm: Annotated[float, Field(gt=0)] | None = None
    colluders: Annotated[int, Field(ge=0)] = 0
    rounds: Annotated[list[_RoundsTable], Field(min_length=1)]

    @model_validator(mode="after")
    def _unit_of_noise(self) -> Self:
        if self.clipping_norm is None and any(row.noise_std is not None for row in self.rounds):
            raise ValueError("noise-std needs clipping-norm, which turns it into a multiplier")
        return self


def load(path: Path) -> Releases:
    """Read a TOML file with [[rounds]] tables. Raises InputError for values out of range."""
    try:
        tree = reading.toml(path)
    except FileNotFoundError:
        raise InputError(f"cannot read '{path}': there is no such file") from None
    try:
        table = _ReleasesTable.model_validate(tree)
    except ValidationError as error:
        raise InputError(f"'{path}': {explain(error)}") from None

    def multiplier(row: _RoundsTable) -> float:
        if row.noise_std is None or table.clipping_norm is None:
            return row.noise_multiplier or 0.0
        return row.noise_std / sensitivity(table.neighbouring, table.clipping_norm)

    rounds = (
        Rounds(multiplier(row), row.count, row.sampling_rate, row.local_steps, row.participants)
        for row in table.rounds
    )
    releases = Releases(
        tuple(rounds),
        table.neighbouring,
        table.trust,
        table.clients,
        table.clipping_norm,
        table.colluders,
    )
    for vantage in Vantage:
        releases.towards(vantage)  # raises InputError for values out of range
    return releases
