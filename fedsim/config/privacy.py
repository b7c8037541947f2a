"""The mechanism: what the noise is calibrated to, how it is accounted for, where it comes from."""

from typing import Annotated, Literal

from pydantic import Field

from fedsim.common.tables import Table
from fedsim.config.values import Fraction
from fedsim.noise import Noise
from fedsim.privacy.mechanism import Neighbouring


class PrivacyConfig(Table):
    """The mechanism. One of the targets or noise-multiplier is not 0.

    unit: what neighbouring federations differ in, one record or all data of one owner ("client").
    rho_beta, rho_alpha, epsilon: what the noise is calibrated to; mutual_information: another such
    target, the nats that all rounds together may tell of the secret; stop_at: the epsilon at delta
    that no round may exceed (0: no limit); noise: "isotropic" for DP-SGD's, or "pac" for noise
    shaped by the candidates of the stated prior, which are D and D' ("pair") or pac_draws random
    halves of the records of all owners but the adversary.
    """

    unit: Literal["record", "client"] = "record"
    neighbouring: Annotated[Neighbouring, Field(strict=False)] = Neighbouring.ADD_REMOVE
    sensitivity: Literal["global", "local"] = "global"
    rho_beta: Annotated[float, Field(ge=0, lt=1)] = 0.9
    rho_alpha: Annotated[float, Field(ge=0, lt=1)] = 0.0
    epsilon: Annotated[float, Field(ge=0)] = 0.0
    noise_multiplier: Annotated[float, Field(ge=0)] = 0.0
    delta: Fraction = 0.005
    accountant: str = "pld"
    noise_source: Literal["seed", "system"] = "seed"
    stop_at: Annotated[float, Field(ge=0)] = 0.0
    noise: Annotated[Noise, Field(strict=False)] = Noise.ISOTROPIC
    mutual_information: Annotated[float, Field(ge=0)] = 0.0
    pac_prior: Literal["pair", "halves"] = "pair"
    pac_draws: Annotated[int, Field(ge=4, le=256, multiple_of=2)] = 32
