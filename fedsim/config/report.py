"""What an organisation allows, to which the report of a run is held."""

from typing import Annotated, Self

from pydantic import Field, model_validator

from fedsim.common.tables import Table


class ReportConfig(Table):
    """An organisation's own limits; each has a line for every vantage of the report.

    Attributes:
        limit_advantage: the largest advantage that is acceptable, in (0, 1); 0 for no limit.
        limit_belief: the largest belief that is acceptable, from even odds, in (0.5, 1), such as
            0.75, as theory has it at privacy.delta; 0 for no limit.
    """

    limit_advantage: Annotated[float, Field(ge=0, lt=1)] = 0.0
    limit_belief: Annotated[float, Field(ge=0, lt=1)] = 0.0

    @model_validator(mode="after")
    def _belief_is_above_a_coin(self) -> Self:
        if 0 < self.limit_belief <= 0.5:
            raise ValueError(
                f"report.limit-belief is {self.limit_belief:g}, but whoever tosses a coin believes "
                "it with 0.5 already; give a number between 0.5 and 1, or 0 for no limit"
            )
        return self
