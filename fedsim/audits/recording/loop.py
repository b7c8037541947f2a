"""The recorder of a DP-SGD training loop: each step's release, and the sum before the noise.

    recorder = Recorder("steps.fedt", records=len(dataset))
    ...
    recorder.step(noisy, clipped_sum, divisor=64, batch=len(images), noise_multiplier=1.0,
                  clipping_norm=0.5, sample_rate=64 / len(dataset))

This module imports no framework. If recording fails, the log says so once, and the training
continues.
"""

import logging
import math
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Self

import numpy as np
import numpy.typing as npt

import fedsim
from adversaries.errors import InputError
from fedsim.audits.steps.watch import Accounted
from fedsim.common.installation import installed
from fedsim.federation.transcripts.records import (
    LOOP,
    UNITS,
    Arrays,
    NodeReply,
    ObservedRound,
    Scalar,
    TranscriptFacts,
)
from fedsim.federation.transcripts.writer import Writer

Sink = Callable[[ObservedRound], None]
RUN = "{run}"
log = logging.getLogger("flwr")


class RoundSink:
    """The output of a recorder's rounds. After one failure, logged, it ignores further rounds."""

    def __init__(
        self,
        to: str | Path | Sink,
        app: str,
        resume: bool,
        vantage: str = "server",
        recorder: str = "fedsim.recording.record",
        packages: Iterable[str] = (),
    ) -> None:
        self._to, self._app, self._resume = to, app, resume
        self._vantage, self._recorder, self._packages = vantage, recorder, tuple(packages)
        self._send: Sink | None = to if callable(to) else None
        self._writer: Writer | None = None
        self._reason = ""
        if self._send is None and RUN not in str(to):
            self._open(Path(str(to)), "")

    def begin(self, run: str) -> None:
        if self._send is None:
            self._open(Path(str(self._to).replace(RUN, run)), run)

    def __call__(self, observed: ObservedRound) -> None:
        if self._reason:
            return
        if self._send is None:
            raise RuntimeError(
                f"{self._to} needs the name of the run, but a round came before Strategy.start"
            )
        self._send(observed)

    @contextmanager
    def guarded(self) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            self.fail(error)

    def fail(self, error: Exception) -> None:
        if self._reason:
            return
        self._reason = f"{type(error).__name__}: {error}"
        log.error(
            "fedsim: RECORDING STOPPED, the transcript is incomplete; the app goes on (%s)",
            self._reason,
        )
        self.end(self._reason)

    def end(self, reason: str, *, resumable: bool = False) -> None:
        writer, self._writer = self._writer, None
        if writer is not None:
            with suppress(Exception):  # a full disk: the missing last record shows the same
                writer.end(reason, resumable=resumable)

    def _open(self, path: Path, run: str) -> None:
        if path.exists() and not self._resume:
            raise InputError(
                f"'{path}' exists; name a new transcript, or continue it with resume=True"
            )
        facts = facts_of(self._vantage, self._recorder, self._app, run=run, packages=self._packages)
        self._writer = Writer(path, facts)
        self._send = self._writer.append


def facts_of(
    vantage: str, recorder: str, app: str, run: str = "", packages: Iterable[str] = ()
) -> TranscriptFacts:
    """Return the first record of a transcript, with the versions of the packages that matter."""
    versions = {"fedsim": fedsim.__version__} | installed(("flwr", "numpy", *packages))
    return TranscriptFacts(vantage, recorder, app, None, run, versions)


PARAMETERS = 2**16
"""Approximate number of parameters that a step keeps of a larger model: enough for noise."""

Gradients = Any
"""Arrays or tensors by name or in the model's order, or a single one."""


class Recorder:
    """Records the steps of a training loop.

    Args:
        to: folder of the transcript, which must not exist unless `resume`; or a function to call
            with every step, an `ObservedRound`.
        records: N, the size of the data set. None: unknown, so that no claimed sampling can be
            checked exactly.
        unit: protected unit, of `records.UNITS`.
        resume: whether to continue a transcript: the same training, with a new engine or process.
        app: name of the training, for the transcript.
        parameters: approximate number that a step keeps of a larger model; None for all.
        recorder: name of the recording function, for the transcript.
        packages: packages whose versions the transcript states.

    Raises:
        InputError: the file exists or cannot be written, or a value is out of range.
    """

    def __init__(
        self,
        to: str | Path | Sink,
        *,
        records: int | None = None,
        unit: str = "record",
        resume: bool = False,
        app: str = "",
        parameters: int | None = PARAMETERS,
        recorder: str = "fedsim.recording.Recorder",
        packages: Iterable[str] = ("torch",),
    ) -> None:
        if unit not in UNITS:
            raise InputError(f"unit is '{unit}'; it must be one of {', '.join(UNITS)}")
        if records is not None and records < 1:
            raise InputError(f"records is {records}; give the size of the data set, at least 1")
        if parameters is not None and parameters < 1:
            raise InputError(f"parameters is {parameters}; give at least 1, or None for all")
        self._parameters, self._steps = parameters, 0
        self._known: dict[str, Scalar] = {"unit": unit, "engine": uuid.uuid4().hex[:12]}
        if records is not None:
            self._known["records"] = records
        self._sink = RoundSink(to, app, resume, LOOP, recorder, packages)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self.close("" if kind is None else f"the training ended with {kind.__name__}")

    def step(
        self,
        released: Gradients,
        clipped_sum: Gradients | None = None,
        *,
        divisor: float = 1.0,
        batch: int | Iterable[int] | None = None,
        noise_multiplier: float | None = None,
        clipping_norm: float | None = None,
        sample_rate: float | None = None,
        accounted: Accounted | None = None,
        **more: Scalar,
    ) -> None:
        """Record a step: released = (clipped_sum + N(0, (z C)^2))/divisor.

        Args:
            clipped_sum: sum of the batch's gradients, each clipped to C, without noise. None: it is
                unknown, so that the noise cannot be measured.
            batch: number of records in the batch, or their indices, repeated for each time that a
                record was in it; None if unknown.
            noise_multiplier: z; None for no known noise.
            clipping_norm: C, largest norm of one record's part in the sum; None without a limit.
            sample_rate: q with which every record joins a batch, independently; 1 for all records
                in every step; None for other or unknown sampling.
        """
        self._steps += 1
        keys = {
            "divisor": divisor,
            "noise_multiplier": noise_multiplier,
            "clipping_norm": clipping_norm,
            "sample_rate": sample_rate,
            **({} if accounted is None else accounted.facts),
            **more,
        }
        with self._sink.guarded():
            self._sink(self._observed(released, clipped_sum, batch, keys))

    def fail(self, reason: str) -> None:
        """End the transcript for good, because of an event that no step can record."""
        self._sink.fail(RuntimeError(reason))

    def close(self, incomplete: str = "") -> None:
        """State in the transcript that no step follows; another recorder may resume it.

        incomplete: why steps are missing, "" if none are.
        """
        self._sink.end(incomplete, resumable=True)

    def _observed(
        self,
        released: Gradients,
        clipped_sum: Gradients | None,
        batch: int | Iterable[int] | None,
        keys: Mapping[str, Scalar | None],
    ) -> ObservedRound:
        noisy = _named(released)
        size = sum(math.prod(array.shape) for array in noisy.values())
        stride = 1 if self._parameters is None else -(-size // self._parameters)
        facts: dict[str, Scalar] = {
            name: value for name, value in keys.items() if value is not None
        }
        # An array of indices is not a Sequence, and NumPy's integers are not ints.
        if batch is None or not isinstance(batch, Iterable):
            members, count = None, None if batch is None else float(batch)
        else:
            members = tuple(map(int, batch))
            count = float(len(members))
        summed: Arrays = {}
        if clipped_sum is not None:
            sums = _named(clipped_sum)
            summed = {name: _kept(array, stride) for name, array in sums.items()}
            facts["sum_length"] = math.sqrt(sum(_energy(array) for array in sums.values()))
        return ObservedRound(
            self._steps,
            replies={0: NodeReply(summed, count)},
            aggregate={name: _kept(array, stride) for name, array in noisy.items()},
            participants=members,
            mechanism={**self._known, "parameters": size, **facts},
        )


def _named(gradients: Gradients) -> Mapping[str, Any]:
    if isinstance(gradients, Mapping):
        return gradients
    listed = gradients if isinstance(gradients, list | tuple) else [gradients]
    return {str(place): array for place, array in enumerate(listed)}


def _kept(array: Any, stride: int) -> npt.NDArray[Any]:
    """Return a copy of every stride-th number of an array or tensor; with stride 1 in its shape."""
    if hasattr(array, "detach"):
        array = array.detach()
        array = array if stride == 1 else array.reshape(-1)[::stride]
        # NumPy has no bfloat16.
        array = array.float() if str(array.dtype) == "torch.bfloat16" else array
        return np.array(array.cpu().numpy())
    array = np.asarray(array)
    return np.array(array if stride == 1 else array.reshape(-1)[::stride])


def _energy(array: Any) -> float:
    if hasattr(array, "detach"):
        flat = array.detach().reshape(-1)
        return float(flat.float().norm()) ** 2
    flat = np.asarray(array, np.float64).reshape(-1)
    return float(flat @ flat)
