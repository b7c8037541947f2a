"""The range that a deployed client accepts of each number that a server can set.

A client checks it before it builds anything. A simulation is free.
"""

from dataclasses import dataclass

from pydantic import BaseModel

from adversaries.errors import InputError
from fedsim.configuration.needs import KeySetting


@dataclass(frozen=True)
class Bound:
    """The least and the largest value of a key that a client accepts, and the reason."""

    key: str
    least: float
    most: float
    why: str

    @property
    def range(self) -> str:
        return f"{self.least:,.10g} to {self.most:,.10g}"


BOUNDS = tuple(
    Bound(*row)
    for row in (
        ("data.records", 1, 10**9, "it divides sums and decides the range of integers"),
        ("federation.clients", 2, 10**5, "a client lists all clients of a round"),
        ("model.hidden", 1, 4096, "memory grows with it"),
        ("model.lora-rank", 0, 256, "memory grows with it"),
        ("training.rounds", 1, 10**5, "the client composes the cost of all rounds"),
        ("training.learning-rate", 0, 1000, "a larger step leaves every useful model"),
        ("training.local-learning-rate", 0, 1000, "a larger step leaves every useful model"),
        ("training.clipping-norm", 1e-6, 1e6, "float32 holds such sums, with their noise"),
        ("training.sampling-rate", 1e-6, 1, "its inverse scales local steps"),
        ("training.local-steps", 1, 1000, "each step passes over the client's records"),
        ("training.local-epochs", 1, 100, "each epoch passes over the client's records"),
        ("training.batch-size", 0, 10**6, "a larger batch holds all of a client's records"),
        ("privacy.noise-multiplier", 0, 1e6, "float32 holds such noise"),
        ("run.threads", 0, 256, "memory grows with it"),
    )
)


def check(config: BaseModel) -> None:
    """Raise InputError if a number of a run's configuration is out of a client's range."""
    for bound in BOUNDS:
        setting = KeySetting(bound.key, "is", 0)
        value = setting.value(config)
        if not isinstance(value, str) and not bound.least <= value <= bound.most:
            raise InputError(
                f"{setting.current(config)}, but a client accepts {bound.range}, because "
                f"{bound.why}; set it within this range"
            )
