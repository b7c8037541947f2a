"""The name of own code changes with all that decides what the code does."""

import sys
from importlib import util

import pytest

from fedsim.game import given

CODE = """
import math
from torch import nn

WIDTH = 8
SIZES = {"deep": [1, 2]}

def half():
    return WIDTH // 2

class Base(nn.Module):
    rate = 0.5

class Net(Base):
    def __init__(self):
        super().__init__()
        self.head = nn.Linear(64, 10)
        self.sizes = [each for each in range(half())]

def build():
    return nn.Sequential(nn.Flatten(), nn.Linear(64, WIDTH), *(nn.ReLU() for _ in SIZES["deep"]))

def closing(width):
    def build():
        return nn.Linear(64, width)
    return build

small = closing(3)
"""


@pytest.fixture
def names(tmp_path):
    """Return a function that names the models of a module with this code."""

    def of(code):
        path = tmp_path / f"own_{abs(hash(code))}.py"
        path.write_text(code)
        module = _imported(path)
        chosen = vars(module)
        return {name: given.model(chosen[name]) for name in ("Net", "build", "small")}

    return of


def _imported(path):
    spec = util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("before", "after", "changed"),
    [
        ("", "", set()),
        ("WIDTH = 8", "WIDTH = 6", {"Net", "build"}),
        ("[1, 2]", "[1, 2, 3]", {"build"}),
        ("WIDTH // 2", "WIDTH // 4", {"Net"}),
        ("rate = 0.5", "rate = 0.1", {"Net"}),
        ("closing(3)", "closing(4)", {"small"}),
        ("nn.Linear(64, 10)", "nn.Linear(64, 2)", {"Net"}),
        ("import math", "import json", set()),
    ],
)
def test_a_name_changes_with_what_its_code_refers_to(before, after, changed, names):
    one, other = names(CODE), names(CODE.replace(before, after) if before else CODE)
    assert {name for name in one if one[name] != other[name]} == changed


def test_unknown_content_never_continues_in_another_process(names):
    code = CODE.replace("WIDTH = 8", "WIDTH = nn.Parameter()")
    one, other = names(code), names(code)
    assert {name for name in one if one[name] != other[name]} == {"Net", "build"}
