"""The trials, what is measured of them, how a run is carried out, and the limits it is held to."""

import re
from collections.abc import Sequence
from typing import Annotated, Literal, Self

from pydantic import Field, field_validator, model_validator

from fedsim.common.tables import Fraction, PositiveInt, Seed, Table

OTHER_DEVICES = {
    "mps": "Apple's GPUs have no float64, which norms, sums and beliefs are kept in",
    "xpu": "many of Intel's GPUs have no float64, which norms, sums and beliefs are kept in",
}
"""Devices of PyTorch that a run does not take, and why."""


class TrialsConfig(Table):
    """Repetitions of the whole training; `batch` of them share one message.

    Attributes:
        count: how many trials, T: repetitions of the whole training.
        batch: how many trials are trained together.
        worlds: which worlds trials are in: half of them D and half D' ("both"), or all D
            ("d-only").
        pairing: whether trials are "independent", or "common": 2i and 2i + 1 are in opposite
            worlds and have all random numbers but that bit in common.
        until_halfwidth: halfwidth of the advantage's interval at which no further batch of trials
            is begun; 0 to run all `count`.
        first: how many trials were planned at first where a campaign was extended, 0 where it was
            not.
    """

    count: PositiveInt = 200
    batch: PositiveInt = 100
    worlds: Literal["both", "d-only"] = "both"
    pairing: Literal["independent", "common"] = "independent"
    until_halfwidth: Annotated[float, Field(ge=0, lt=1)] = 0.0
    first: Annotated[int, Field(ge=0)] = 0

    @property
    def in_pairs(self) -> bool:
        """Whether trials 2i and 2i + 1 are in opposite worlds, all of them."""
        return self.pairing == "common" or self.until_halfwidth > 0

    @property
    def shuffled(self) -> int:
        """How many trials, the first of them, have worlds that are balanced over all of them."""
        return 0 if self.in_pairs else self.first or self.count

    def streams(self, trials: range) -> Sequence[int]:
        """Return the trials whose random streams these trials draw from."""
        return trials if self.pairing == "independent" else [trial // 2 * 2 for trial in trials]


class AuditConfig(Table):
    """The adversary's prior, the confidence of every statement, and what utility is measured on.

    Attributes:
        mode: how the belief is computed: as the "participant" must, from what it receives and
            knows, or by an "oracle" from the noise, which the auditor of a campaign reads.
        vantages: whose beliefs are computed; "configured" is federation.vantage alone.
        prior: the adversary's probability of D before the first round.
        confidence: confidence of every interval and bound.
        evaluated_trials: in how many trials, the first of them, utility is measured.
        bayesian_pairs: how many pairs of its records each client compares in a round, in the
            evaluated trials, for the Bayesian accountant; 0 for none.
        attacks: attacks by membership inference on the challenge, names with commas between them,
            "all" or "none".
    """

    mode: str = "participant"
    vantages: Literal["configured", "all"] = "configured"
    prior: Fraction = 0.5
    confidence: Fraction = 0.95
    evaluated_trials: PositiveInt = 20
    bayesian_pairs: Annotated[int, Field(ge=0)] = 0
    attacks: str = "all"

    def evaluated(self, trials: range) -> int:
        """Return how many of these trials, the first of them, are evaluated."""
        return max(0, min(self.evaluated_trials - trials.start, len(trials)))


class RunConfig(Table):
    """How the run is carried out; only the seed and the precision change a result.

    Where memory binds, blocks are cut otherwise and sums round otherwise, in the seventh digit.

    Attributes:
        name: name of the experiment, for readers; that of its file unless it is given.
        job: what the run is for: an "experiment", whose trials an adversary attacks; a "training"
            of one model that is kept, which nobody attacks; or the "rehearsal" of a training.
        purpose: what a trained model, or a study, is for: for its card and its report.
        author: who answers for the run, for its report.
        checkpoint_every: after how many rounds the state of a training is kept.
        seed: seed of every random number but those that draw D.
        device: where the tensors live; "auto" is CUDA where there is one.
        threads: how many threads share the trials of a batch; 0 for one per core.
        max_memory: how much memory a run may take, such as "4GiB"; "" for what the device has to
            spare.
        precision: precision of the forward and backward passes, never of norms, sums and beliefs.
        client_cpus: how many CPUs Flower's simulation gives each client.
        client_gpus: how much of a GPU Flower's simulation gives each client; 0 for an equal share
            of one.
        out: the run directory; "" for a new one.
    """

    name: str = "digits"
    job: Literal["experiment", "training", "rehearsal"] = "experiment"
    purpose: str = ""
    author: str = ""
    checkpoint_every: PositiveInt = 1
    seed: Seed = 0
    device: Literal["auto", "cpu", "cuda"] = "auto"
    threads: Annotated[int, Field(ge=0)] = 0
    max_memory: str = ""
    precision: Literal["float32", "tf32", "bf16"] = "float32"
    client_cpus: PositiveInt = 1
    client_gpus: Annotated[float, Field(ge=0)] = 0.0
    out: str = ""

    @field_validator("device", mode="before")
    @classmethod
    def _device_has_float64(cls, device: object) -> object:
        if isinstance(device, str) and (reason := OTHER_DEVICES.get(device.partition(":")[0])):
            raise ValueError(f"run.device is {device}; {reason}; set it to cpu, auto or cuda")
        return device

    @model_validator(mode="after")
    def _memory_is_a_size(self) -> Self:
        if self.max_memory and not self.memory_limit:
            raise ValueError(
                f"run.max-memory is '{self.max_memory}'; give a size such as '4GiB' or '500MB'"
            )
        return self

    @property
    def memory_limit(self) -> int | None:
        """The bytes that each process may use; None where the device decides."""
        match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([KMGT]?)(I?)B?", self.max_memory.strip().upper())
        if match is None:
            return None
        return int(float(match[1]) * (1024 if match[3] else 1000) ** " KMGT".index(match[2] or " "))


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
