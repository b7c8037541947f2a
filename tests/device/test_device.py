"""An accelerator gives every kind of result that the CPU gives, and mixes nothing of the CPU in."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from cases import cases

HERE = Path(__file__).parent
OTHER_SUMS = ("convolutions", "decoder", "decoder-adapters", "text-canaries")
"""Kinds whose sums a device adds in larger blocks or by other kernels, and rounds differently."""

OFTEN = (
    *("digits", "vantages", "train-digits", "opacus-clients", "live-audit", "membership"),
    *("sensitivity", "worst-case-model", "convolutions", "decoder"),
)
"""Kinds that are tested with every change; the others before a release."""

COSTS = json.loads((HERE / "costs.json").read_text(encoding="utf-8"))
"""Launches and waits of each kind, as `python tests/device --record` has written them."""

ALLOWED = 1.1
"""How much more a change, or another version of PyTorch, may take."""


@pytest.mark.device
@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[] if name in OFTEN else pytest.mark.long) for name in cases()],
)
def test_a_device_computes_what_the_cpu_computes(name):
    done = subprocess.run(
        [sys.executable, HERE, "--only", name, "--json"],
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.stdout, done.stderr
    found = json.loads(done.stdout)
    assert found["verdict"] != "fails", found["said"]
    assert not found["mixes"], "an operator met tensors of the CPU"
    assert not found["draws"], "random numbers come from the seed, never from the device"
    equal = found["verdict"] == "yes"
    assert equal or (name in OTHER_SUMS and found["verdict"].startswith("to ")), found["unlike"]
    assert found["launches"] > 0, "nothing was computed on the device"
    for what, most in COSTS[name].items():
        assert found[what] <= ALLOWED * most, f"more {what}, most at {found['waiting'][:5]}"
