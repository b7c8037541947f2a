"""Runs each kind of result twice, on the CPU and on the accelerator in host memory.

Import this module before any of fedsim. A side is a child process that is forked after fedsim was
imported, so that neither sees what the other has cached.
"""

import dataclasses
import io
import json
import multiprocessing
import os
import runpy
import sys
import tempfile
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import accelerator as device
from cases import ROOT, cases

PINS = ROOT / "tests" / "pins"
sys.path.insert(0, str(ROOT))

from fingerprints import Values, of_directory  # noqa: E402


@dataclass(frozen=True)
class Side:
    """What the commands of a kind did on a device.

    Attributes:
        values: of the files that they left.
        failed: the traceback or message of the command that failed; "" if none did.
        launches: kernels.
        waits: how often the host waited for the device.
        bytes: that the kernels read and wrote.
        copied: bytes between host and device.
        peak: most bytes of the device's memory at once.
        mixes: operators that met tensors on the CPU, as "operator, line".
        draws: operators that drew random numbers on the device.
        waiting: the lines that waited most, as "times x reason, line".
    """

    values: Values
    failed: str
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
    """

    name: str
    cpu: Side
    device: Side

    @property
    def apart(self) -> list[str]:
        """Return the keys whose values differ between the devices."""
        keys = {**self.cpu.values, **self.device.values}
        here, there = self.cpu.values, self.device.values
        keys = {key: None for key in keys if not key.endswith(": device")}  # its name
        return [key for key in keys if json.dumps(here.get(key)) != json.dumps(there.get(key))]


def prepare() -> None:
    """Make the accelerator known to PyTorch and import fedsim, whose CUDA it is."""
    device.install()
    device.read_cuda_as("fedsim")
    import torch  # noqa: PLC0415

    torch.set_num_threads(1)
    from fedsim import server_app  # noqa: F401, PLC0415
    from fedsim.cli.main import main  # noqa: F401, PLC0415
    from fedsim.report.page import Pictures  # noqa: PLC0415

    Pictures.drawn = {}  # most of the time of a small run


def compare(name: str) -> Outcome:
    """Run the commands of a kind on both devices."""
    return Outcome(name, _side(name, False), _side(name, True))


def _side(name: str, on_device: bool) -> Side:
    fork = multiprocessing.get_context("fork")
    here, there = fork.Pipe(duplex=False)
    child = fork.Process(target=_play, args=(there, name, on_device))
    child.start()
    there.close()
    try:
        return Side(**json.loads(here.recv_bytes()))
    except EOFError:
        raise RuntimeError(f"the process of {name} ended without a result") from None
    finally:
        child.join()


def _play(out: Any, name: str, on_device: bool) -> None:
    device.accelerator.present = on_device
    tally = device.start()
    with tempfile.TemporaryDirectory() as directory:
        os.chdir(directory)
        failed = ""
        for command in cases()[name].commands:
            if failed := _failure([_placed(word) for word in command]):
                break
        values = of_directory(Path(directory), {directory: "DIR", str(ROOT): "TREE"})
        side = Side(
            values,
            failed,
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


def _placed(word: str) -> str:
    return word.replace("{tree}", str(ROOT)).replace("run.device=cpu", "run.device=auto")


def _failure(command: list[str]) -> str:
    """Run a command in this process; return what it says if it fails, else ""."""
    from fedsim.cli.main import main  # noqa: PLC0415

    said = io.StringIO()
    with redirect_stdout(io.StringIO()), redirect_stderr(said), _arguments(command):
        try:
            if command[0].endswith(".py"):
                runpy.run_path(str(PINS / command[0]), run_name="__main__")
            else:
                main(command)
        except SystemExit as end:
            # Verdicts and refusals have exit statuses of their own, from 2 on.
            return said.getvalue() if end.code == 1 else ""
        except BaseException:
            return traceback.format_exc()
    return ""


@contextmanager
def _arguments(command: list[str]) -> Iterator[None]:
    kept, sys.argv = sys.argv, command
    try:
        yield
    finally:
        sys.argv = kept
