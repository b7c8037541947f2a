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
    "names",
    [OFTEN, pytest.param(tuple(cases().keys() - {*OFTEN}), marks=pytest.mark.long)],
    ids=["often", "others"],
)
def test_a_device_computes_what_the_cpu_computes(names):
    """All kinds in one process, which forks for each side."""
    command = [sys.executable, HERE, "--only", *sorted(names), "--json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=1800, check=False)
    found = {each["kind"]: each for each in map(json.loads, done.stdout.splitlines())}
    assert sorted(found) == sorted(names), done.stderr
    for name, each in found.items():
        assert each["verdict"] != "fails", (name, each["said"])
        assert not each["mixes"], f"{name}: an operator met tensors of the CPU"
        assert not each["draws"], f"{name}: random numbers come from the seed alone"
        equal = each["verdict"] == "yes"
        close = name in OTHER_SUMS and each["verdict"].startswith("to ")
        assert equal or close, (name, each["unlike"])
        assert each["launches"] > 0, f"{name}: nothing was computed on the device"
        for what, most in COSTS[name].items():
            assert each[what] <= ALLOWED * most, f"{name}: more {what}, at {each['waiting'][:5]}"
