"""A stranger's directory runs nothing, takes little memory, and is refused in one line."""

import json
import os
import pty
import resource
import subprocess
import sys

import numpy as np
import pytest
import tomli_w
import torch
from safetensors.torch import save_file

import fedsim
from adversaries.errors import InputError
from fedsim.learning.training import saved_model
from tests.console import exit_of

MOST = 2**28
"""Bytes that refusing a directory may take; 20 million hidden units of 64 inputs take 5 GB."""


def _handed_on(place, **said):
    """Write a directory of a network of 64 inputs, 4 hidden units and 10 classes."""
    network = {"name": "mlp", "hidden": 4, "batch-norm": "refuse"}
    taken = {"shape": [1, 8, 8], "classes": 10, "features": [], "data": "digits"}
    for name, value in said.items():
        (network if name in network else taken)[name] = value
    described = {"format": 1, "fedsim": "0.1.0", "network": network, "input": taken}
    place.mkdir(exist_ok=True)
    (place / saved_model.DESCRIPTION).write_text(tomli_w.dumps(described))
    sizes = {"1.weight": (4, 64), "1.bias": (4,), "3.weight": (10, 4), "3.bias": (10,)}
    values = {name: torch.ones(size) for name, size in sizes.items()}
    save_file(values, place / saved_model.VALUES)
    return place


def _description(content):
    return lambda place: (place / saved_model.DESCRIPTION).write_bytes(content)


def _pipe(name):
    def replace(place):
        (place / name).unlink()
        os.mkfifo(place / name)

    return replace


def _values(**changes):
    def write(place):
        sizes = {"1.weight": (4, 64), "1.bias": (4,), "3.weight": (10, 4), "3.bias": (10,)}
        values = {name: torch.ones(size) for name, size in sizes.items()}
        save_file(values | changes, place / saved_model.VALUES)

    return write


def test_the_directory_that_is_changed_below_is_a_model(tmp_path):
    assert fedsim.load_model(_handed_on(tmp_path))(torch.zeros(3, 1, 8, 8)).shape == (3, 10)


@pytest.mark.parametrize(
    "said",
    [
        {"hidden": 20_000_000},
        {"hidden": 2**62},
        {"shape": [20_000_000]},
        {"shape": [2**40, 2**40]},
        {"classes": 500_000_000},
        {"hidden": 5},
        {"name": "linear"},
        {"name": "torchvision:vit_h_14", "shape": [3, 224, 224]},
    ],
    ids=str,
)
def test_a_network_that_is_larger_than_its_file_is_not_built(said, tmp_path):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(InputError, match=r"another model|describes no network|more than"):
        fedsim.load_model(_handed_on(tmp_path, **said))
    assert 1024 * (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) < MOST


@pytest.mark.parametrize(
    "change",
    [
        _values(**{"1.weight": torch.full((4, 64), float("nan"))}),
        _values(**{"3.bias": torch.full((10,), float("inf"))}),
        _values(more=torch.ones(3)),
        _pipe(saved_model.VALUES),
        _pipe(saved_model.DESCRIPTION),
        _description(b"format = 1\nfedsim = '\xff\xfe'"),
        _description(b"\x00" * 100),
        lambda place: (place / saved_model.VALUES).write_bytes(b"\xff" * 100),
    ],
    ids=["nan", "infinity", "more", "pipe", "pipe of text", "no utf-8", "zeros", "no header"],
)
def test_a_directory_that_is_no_model_is_one_line_and_status_2(change, tmp_path, capsys):
    records = tmp_path / "records.npz"
    np.savez(records, features=np.zeros((2, 1, 8, 8)))
    change(_handed_on(tmp_path))
    assert exit_of("predict", tmp_path, records) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1


HOSTILE = """
from pathlib import Path
Path(__file__).with_name("ran").touch()
from transformers import BertConfig
class Config(BertConfig):
    model_type = "evil"
"""


LOADING = """
import sys, fedsim
for place in sys.argv[1:]:
    try:
        fedsim.load_model(place)
    except fedsim.InputError:
        print("refused", file=sys.stderr)
"""


@pytest.mark.slow
def test_a_directorys_code_does_not_run_though_the_user_would_say_yes(tmp_path):
    pytest.importorskip("transformers", reason="texts need transformers")
    places = []
    for kind in ("evil", "bert"):
        place = _handed_on(tmp_path / kind, name="hugging-face", shape=[12])
        (place / "evil.py").write_text(HOSTILE)
        told = {"model_type": kind, "auto_map": {"AutoConfig": "evil.Config"}, "pad_token_id": 0}
        (place / "config.json").write_text(json.dumps(told))
        (place / "tokenizer.json").write_text("{}")
        places.append(place)
    ours, theirs = pty.openpty()
    os.write(ours, b"y\n" * 6)
    environment = os.environ | {"HF_HOME": str(tmp_path / "cache")}
    ended = subprocess.run(
        [sys.executable, "-c", LOADING, *places],
        stdin=theirs,
        stdout=theirs,
        stderr=subprocess.PIPE,
        env=environment,
        check=False,
        timeout=120,
    )
    os.close(ours)
    os.close(theirs)
    assert ended.stderr.count(b"refused\n") == 2, ended.stderr
    assert not list(tmp_path.rglob("ran"))
