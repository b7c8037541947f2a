"""A file that describes a federation's releases, for `fedsim account`."""

from pathlib import Path
from typing import Annotated, Self

from pydantic import Field, ValidationError, model_validator

from adversaries.errors import InputError
from fedsim.common import reading
from fedsim.common.tables import TomlTable, explain
from fedsim.privacy.mechanism import Neighbouring, sensitivity
from fedsim.privacy.releases import Releases, Rounds
from fedsim.privacy.trust import Trust, Vantage


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
