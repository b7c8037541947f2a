"""The benchmarks run on an accelerator, in their smoke size."""

import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
BENCHMARKS = HERE.parent / "benchmarks"
RUN = f"""
import argparse, runpy, sys
sys.path[:0] = {str(HERE)!r}, {str(BENCHMARKS)!r}
import accelerator
accelerator.install()
accelerator.read_cuda_as("fedsim")
main = runpy.run_path({str(BENCHMARKS / "__main__.py")!r}, run_name="benchmarks")
options = argparse.Namespace(parts=["clipping", "memory"], smoke=True, device="gpu", network=None)
tally = accelerator.start()
rows = [row for table in main["measure"](options) for row in table.rows]
print(len(rows), tally.launches)
"""


@pytest.mark.device
@pytest.mark.long
@pytest.mark.slow
def test_steps_are_timed_and_their_memory_is_measured_on_a_device():
    done = subprocess.run(
        [sys.executable, "-c", RUN], capture_output=True, text=True, timeout=600, check=False
    )
    assert done.returncode == 0, done.stderr
    rows, launches = map(int, done.stdout.split())
    assert rows > 0
    assert launches > 0
