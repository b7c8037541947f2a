"""Runs each kind of result twice, on the CPU and on the accelerator in host memory.

Import this module before any of fedsim. A side is a child process that is forked after fedsim was
imported, so that neither sees what the other has cached.
"""

import dataclasses
import json
import math
import multiprocessing
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import accelerator as device
import numpy as np
from cases import ROOT, cases
from corpus import opened, play, same, values

sys.path.insert(0, str(ROOT))

CLOSE = 1e-4
"""Relative difference up to which numbers are those of other sums in another order."""


@dataclass(frozen=True)
class Side:
    """What the commands of a kind did on a device.

    Attributes:
        statuses: exit statuses of the commands.
        said: what the commands wrote on standard error, if one did not end with 0.
        launches: kernels.
        waits: how often the host waited for the device.
        bytes: that the kernels read and wrote.
        copied: bytes between host and device.
        peak: most bytes of the device's memory at once.
        mixes: operators that met tensors on the CPU, as "operator, line".
        draws: operators that drew random numbers on the device.
        waiting: the lines that waited most, as "times x reason, line".
    """

    statuses: list[int]
    said: str
    launches: int
    waits: int
    bytes: int
    copied: int
    peak: int
    mixes: list[str]
    draws: list[str]
    waiting: list[str]


@dataclass(frozen=True)
class Outcome:
    """A kind of result on both devices.

    Attributes:
        name: of the kind.
        cpu: on the CPU.
        device: on the accelerator.
        apart: largest relative difference between numbers; 0 if all are equal to the bit.
        unlike: what else differs, as "key: here, on the device there".
    """

    name: str
    cpu: Side
    device: Side
    apart: float
    unlike: list[str]

    @property
    def verdict(self):
        """Return "yes" if the device gives what the CPU gives, or what is wrong."""
        if self.cpu.statuses != self.device.statuses:
            return "fails"
        if 2 in self.cpu.statuses:  # others are verdicts
            return "refused"
        if self.device.mixes:
            return "mixes"
        if self.unlike:
            return f"{len(self.unlike)} values differ"
        return f"to {self.apart:.0e}" if self.apart else "yes"


def prepare():
    """Make the accelerator known to PyTorch and import fedsim, whose CUDA it is."""
    device.install()
    device.read_cuda_as("fedsim")
    import torch  # noqa: PLC0415

    torch.set_num_threads(1)
    from fedsim import server_app  # noqa: F401, PLC0415
    from fedsim.commands.main import main  # noqa: F401, PLC0415
    from fedsim.reports.page import Pictures  # noqa: PLC0415

    Pictures.drawn = {}  # most of the time of a small run


def compare(name):
    """Run the commands of a kind on both devices."""
    with tempfile.TemporaryDirectory() as temporary:
        places = [Path(temporary) / side for side in ("cpu", "device")]
        sides = [_side(name, place) for place in places]
        return Outcome(name, *sides, *_differences(name, places))


def _side(name, directory):
    fork = multiprocessing.get_context("fork")
    here, there = fork.Pipe(duplex=False)
    child = fork.Process(target=_play, args=(there, name, directory))
    child.start()
    there.close()
    try:
        return Side(**json.loads(here.recv_bytes()))
    except EOFError:
        raise RuntimeError(f"the process of {name} ended without a result") from None
    finally:
        child.join()


def _play(out, name, directory):
    device.accelerator.present = directory.name == "device"
    tally = device.start()
    played = play(cases()[name], directory)
    statuses = [each.status for each in played.ended]
    said = "".join(each.errors for each in played.ended)
    side = Side(
        statuses,
        said if any(statuses) else "",
        tally.launches,
        tally.waits.total(),
        tally.bytes,
        tally.copied.total(),
        tally.peak,
        [", ".join(key) for key in tally.mixes],
        [", ".join(key) for key in tally.draws],
        [f"{times} x {', '.join(key)}" for key, times in tally.waits.most_common(20)],
    )
    out.send_bytes(json.dumps(dataclasses.asdict(side)).encode())


MARK = ": experiment.experiment"
"""A digest of the configuration, which differs where the configuration names a path."""


def _differences(name, places):
    """Return the largest relative difference of the numbers of two directories, and the rest."""
    here, there = (values(opened(cases()[name], each)) for each in places)
    apart, unlike = 0.0, []
    words = [word for command in cases()[name].commands for word in command]
    placed = any("model.weights" in str(word) for word in words)
    for key in dict.fromkeys([*here, *there]):
        pair = here.get(key), there.get(key)
        if same(*pair) or key.endswith((": device", ".device")) or (placed and key.endswith(MARK)):
            continue
        if key.endswith(": final_models"):  # digests, of which nothing can be close
            apart = max(apart, float(np.finfo(np.float32).eps))
            continue
        apart = max(apart, difference := _relative(*pair))
        if difference > CLOSE:
            unlike.append(f"{key}: {_short(pair[0])}, on the device {_short(pair[1])}")
    return apart, unlike


def _short(value):
    return repr(value).replace("\n", "")[:60]


def _relative(here, there):
    """Return the largest difference, relative to the largest number; infinite without numbers."""
    if not all(isinstance(each, float | np.ndarray) for each in (here, there)):
        return math.inf
    here, there = np.asarray(here), np.asarray(there)
    if here.dtype.kind != "f" or here.shape != there.shape:
        return math.inf
    finite = np.isfinite(here)
    if not np.array_equal(here[~finite], there[~finite], equal_nan=True):
        return math.inf
    return float(np.abs(here - there)[finite].max() / max(np.abs(here[finite]).max(), 1e-300))
