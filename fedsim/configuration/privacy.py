"""Configuration of the noise: its target, its accounting and its source."""

from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from fedsim.common.tables import Fraction, TomlTable
from fedsim.configuration.jobs import TARGETS
from fedsim.privacy.mechanism import Neighbouring


class PrivacyConfig(TomlTable):
    """The noise and its accounting. One of the targets or noise-multiplier is not 0.

    Attributes:
        unit: Unit of protection. "record": one record; "client": all records of a client.
        neighbouring: Neighbouring relation of two data sets. "add-remove": the unit is missing in
            one of them; "replace": another unit replaces it.
        sensitivity: Sensitivity that scales the noise. "global": the largest change that any record
            or client can cause; "local": the change that the target causes, which is not a DP
            guarantee.
        rho_beta: Target: largest belief of the adversary, such as 0.75. The noise is chosen to meet
            it. 0.9 if you set no target.
        rho_alpha: Target: largest advantage over guessing, such as 0.2. The noise is chosen to meet
            it.
        max_risk: Target: largest success of an attack, such as 0.005. It counts for every attack
            whose success without the model is privacy.baseline-risk. The noise is chosen to meet
            it.
        baseline_risk: Success of an attack without the model. For example 1/n for naming one of n
            people, or a false-positive rate. privacy.max-risk refers to it.
        epsilon: Target: epsilon of the whole run, such as 2.0. The noise is chosen so that all
            rounds together are (epsilon, delta)-differentially private.
        noise_multiplier: Noise multiplier, in place of a target, such as 4.0. The standard
            deviation of the noise, divided by the sensitivity.
        delta: Delta of the (epsilon, delta) guarantee. The probability of an outcome may exceed the
            limit set by epsilon by this much. 0 or left out: 1/(10 n) for n records in D.
        accountant: Accountant that calibrates the noise to epsilon.
        noise_source: Source of the noise. "seed": the run's seed, for experiments; "system": the
            entropy of the operating system.
        stop_at: Largest epsilon that may be released, at privacy.delta. The training stops before
            the round that would exceed it. 0: no limit.
    """

    unit: Literal["record", "client"] = "record"
    neighbouring: Annotated[Neighbouring, Field(strict=False)] = Neighbouring.ADD_REMOVE
    sensitivity: Literal["global", "local"] = "global"
    rho_beta: Annotated[float, Field(ge=0, lt=1)] = 0.9
    rho_alpha: Annotated[float, Field(ge=0, lt=1)] = 0.0
    max_risk: Annotated[float, Field(ge=0, lt=1)] = 0.0
    baseline_risk: Fraction = 0.001
    epsilon: Annotated[float, Field(ge=0)] = 0.0
    noise_multiplier: Annotated[float, Field(ge=0)] = 0.0
    delta: Fraction = 0.0005
    accountant: str = "pld"
    noise_source: Literal["seed", "system"] = "seed"
    stop_at: Annotated[float, Field(ge=0)] = 0.0

    @model_validator(mode="before")
    @classmethod
    def _one_target(cls, table: Any) -> Any:
        """Set rho-beta, which has a default, to 0 where the table names another target.

        A table that names targets and sets all to 0 is refused later: 0 does not mean no noise.

        An app's pyproject.toml declares rho-beta = "", which means not set. Flower merges declared
        values with those of a run, so a declared number would look like the user's choice.
        """
        if not isinstance(table, dict):
            return table
        first, *others = TARGETS
        named = {key: value for key, value in table.items() if (key, value) != (first, "")}
        zeros = first not in table and any(other in named for other in others)
        if first not in named and (zeros or any(map(named.get, others))):
            return {**named, first: 0.0}
        return named
