"""The mechanism: what the noise is calibrated to, how it is accounted for, where it comes from."""

from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from fedsim.common.tables import Fraction, Table
from fedsim.config.targets import TARGETS
from fedsim.privacy.mechanism import Neighbouring
from fedsim.privacy.noise import Noise


class PrivacyConfig(Table):
    """The mechanism. One of the targets or noise-multiplier is not 0.

    Attributes:
        unit: what neighbouring federations differ in, one record or all data of one client
            ("client").
        neighbouring: whether that record or client is missing, or replaced by another.
        sensitivity: what the noise is a multiple of: the most that one unit can change ("global"),
            or what the challenge changes ("local").
        rho_beta: target: the noise is as strong as it must be for an adversary's belief to stay
            below this, such as 0.75; 0.9 where no target is given.
        rho_alpha: target: the noise is as strong as it must be for an adversary's advantage over a
            coin to stay below this, such as 0.2.
        epsilon: target: the noise is as strong as it must be for all rounds together to be
            (epsilon, delta)-differentially private with this epsilon, such as 2.0.
        noise_multiplier: the noise itself, in place of a target: its standard deviation over the
            sensitivity, such as 4.0.
        delta: the probability with which the guarantee may fail; where it is 0 or left out,
            1/(10 n) for the n records of D.
        accountant: accountant by whose bound epsilon is reached.
        noise_source: where noise comes from: the seed ("seed"), for experiments, or the operating
            system's entropy ("system").
        stop_at: the epsilon at delta that no round may exceed (0: no limit).
        noise: "isotropic" for DP-SGD's, or "pac" for noise shaped by the candidates of the stated
            prior.
        mutual_information: target: the noise is as strong as it must be for all rounds together to
            tell no more than so many nats of the secret, such as 0.1.
        pac_prior: the candidates: D and D' ("pair"), or pac_draws random halves of the records of
            all clients but the adversary.
        pac_draws: how many random halves pac_prior has.
    """

    unit: Literal["record", "client"] = "record"
    neighbouring: Annotated[Neighbouring, Field(strict=False)] = Neighbouring.ADD_REMOVE
    sensitivity: Literal["global", "local"] = "global"
    rho_beta: Annotated[float, Field(ge=0, lt=1)] = 0.9
    rho_alpha: Annotated[float, Field(ge=0, lt=1)] = 0.0
    epsilon: Annotated[float, Field(ge=0)] = 0.0
    noise_multiplier: Annotated[float, Field(ge=0)] = 0.0
    delta: Fraction = 0.0005
    accountant: str = "pld"
    noise_source: Literal["seed", "system"] = "seed"
    stop_at: Annotated[float, Field(ge=0)] = 0.0
    noise: Annotated[Noise, Field(strict=False)] = Noise.ISOTROPIC
    mutual_information: Annotated[float, Field(ge=0)] = 0.0
    pac_prior: Literal["pair", "halves"] = "pair"
    pac_draws: Annotated[int, Field(ge=4, le=256, multiple_of=2)] = 32

    @model_validator(mode="before")
    @classmethod
    def _one_target(cls, given: Any) -> Any:
        """Let a target that is given stand alone: the default of another is then none.

        An app's pyproject.toml declares rho-beta as "", not given, because Flower merges what it
        declares with what a run is given, and nobody could tell the two apart.
        """
        if not isinstance(given, dict):
            return given
        first, *others = TARGETS
        named = {key: value for key, value in given.items() if (key, value) != (first, "")}
        if first not in named and any(map(named.get, others)):
            return {**named, first: 0.0}
        return named
