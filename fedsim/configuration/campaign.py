"""Configuration of the trials, the audit, the run and the limits of the report."""

import re
from typing import Annotated, Literal, Self

from pydantic import Field, field_validator, model_validator

from fedsim.common.tables import Fraction, PositiveInt, Seed, TomlTable

OTHER_DEVICES = {
    "mps": "Apple's GPUs lack float64, which norms, sums and beliefs need",
    "xpu": "many of Intel's GPUs lack float64, which norms, sums and beliefs need",
}
"""Devices of PyTorch that a run refuses, with the reason."""


BATCH, BATCH_ON_GPU = 100, 1000
"""Trials of a batch, where memory allows it. A GPU took 31 s for 1000 at once, and 35 to 42 s for
ten batches of 100 (docs/evidence.md)."""


class TrialsConfig(TomlTable):
    """Repetitions of the whole training. Each message holds `batch` of them.

    Attributes:
        count: Number of trials (T). Each repeats the whole training: half of them with D and half
            with D'. 1: a single training, with D.
        batch: Number of trials that are trained together. 0: 1000 on a GPU and 100 on a CPU, or as
            many as memory allows.
    """

    count: PositiveInt = 200
    batch: Annotated[int, Field(ge=0)] = BATCH

    def together(self, on_gpu: bool) -> int:
        """Return the number of trials that are trained together if memory allows it."""
        return self.batch or (BATCH_ON_GPU if on_gpu else BATCH)


class AuditConfig(TomlTable):
    """The adversary's attacks, the confidence of intervals, and what utility uses.

    Attributes:
        mode: Method that computes the belief. "participant": from what a participant receives and
            knows; "oracle": from the noise, which only the auditor of a campaign can read.
        vantages: Vantage points to report. "configured": federation.vantage only; "all": every
            vantage point.
        confidence: Confidence level of every interval and bound.
        evaluated_trials: Number of trials that measure utility. The first ones are used.
        attacks: Membership inference attacks, separated by commas. They attack the target. "all":
            every attack; "none": no attack.
    """

    mode: str = "participant"
    vantages: Literal["configured", "all"] = "configured"
    confidence: Fraction = 0.95
    evaluated_trials: PositiveInt = 20
    attacks: str = "all"

    def evaluated(self, trials: range) -> int:
        """Return the number of trials in a range that measure utility: the range's first ones."""
        return max(0, min(self.evaluated_trials - trials.start, len(trials)))


class RunConfig(TomlTable):
    """Execution of the run. Only the seed and the precision change a result.

    With little memory, the blocks are smaller, and sums differ in the seventh digit.

    Attributes:
        name: Name of the experiment in reports. The default is the name of its file.
        job: Purpose of the run. "experiment": trials that an adversary attacks; "training": one
            model, kept and not attacked; "rehearsal": the experiment for a training.
        purpose: Purpose of the model or study. Shown on its card and report.
        seed: Seed of all random numbers except those that draw D.
        device: Device that holds the tensors. "auto": CUDA if it is available, else the CPU.
        threads: Number of threads for a batch of trials. 0: one per core.
        max_memory: Memory limit of a run, such as "4GiB". Empty: the free memory of the device.
        precision: Precision of the forward and backward passes. Norms, sums and beliefs are always
            float64.
        out: Run directory. Empty: fedsim-runs/NAME-TIME.
    """

    name: str = "digits"
    job: Literal["experiment", "training", "rehearsal"] = "experiment"
    purpose: str = ""
    seed: Seed = 0
    device: Literal["auto", "cpu", "cuda"] = "auto"
    threads: Annotated[int, Field(ge=0)] = 0
    max_memory: str = ""
    precision: Literal["float32", "tf32", "bf16"] = "float32"
    out: str = ""

    @field_validator("device", mode="before")
    @classmethod
    def _device_has_float64(cls, device: object) -> object:
        if isinstance(device, str) and (reason := OTHER_DEVICES.get(device.partition(":")[0])):
            raise ValueError(f"run.device is {device}, but {reason}; set it to cpu, auto or cuda")
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
        """The number of bytes that each process may use; None: the device decides."""
        match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([KMGT]?)(I?)B?", self.max_memory.strip().upper())
        if match is None:
            return None
        return int(float(match[1]) * (1024 if match[3] else 1000) ** " KMGT".index(match[2] or " "))
