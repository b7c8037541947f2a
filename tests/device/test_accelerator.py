"""The accelerator in host memory refuses and counts as CUDA does, and fedsim keeps to it."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

PROBES = Path(__file__).parent / "probes.py"
MOVING = 20
"""Kernels of moving a model to the device, at most; a step of Adam has as many."""

pytestmark = [pytest.mark.device, pytest.mark.slow]


@pytest.fixture(scope="module")
def found():
    """Return what the probes found, in a process of their own: PyTorch takes one such device."""
    done = subprocess.run(
        [sys.executable, PROBES], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.stdout, done.stderr
    return json.loads(done.stdout)


def test_what_is_on_the_cpu_and_what_is_on_the_device_do_not_mix(found):
    allowed = {"number": "", "by way of a copy": ""}  # a number of no dimension may, as on CUDA
    refused = dict.fromkeys(found["refusals"].keys() - allowed, "RuntimeError")
    assert found["refusals"] == refused | {"to NumPy": "TypeError"} | allowed


def test_kernels_waits_copies_and_memory_are_counted(found):
    assert found["counts"] == {
        "value": True,
        "launches": 4,  # a product, a comparison, whether all are true, and whether that is
        "waits": ["copy to device", "_local_scalar_dense"],
        "copied": {"to device": 4000},
        "held": 4096,
    }


def test_a_small_models_memory_on_a_device_is_what_its_footprint_says(found):
    assert found["footprints"] == {
        "4": pytest.approx(1, abs=0.2),
        "64": pytest.approx(1, abs=0.2),
    }


def test_a_first_model_and_a_target_that_all_parties_compute_are_computed_on_the_cpu(found):
    for kind, (place, launches) in found["first_models"].items():
        assert place == "gpu"
        assert launches <= MOVING, kind


def test_a_batch_without_a_size_is_as_large_as_the_devices_memory_allows(found):
    assert found["batches"]["0"] == 1000
    assert 100 < found["batches"]["0 256MiB"] < 1000
    assert found["batches"]["100"] == 100
