"""The name of own code is that of one object in one process."""

import copy
from types import FunctionType

from torch import nn

from fedsim.game import given


def build():
    return nn.Linear(64, 10)


def test_the_same_object_has_one_name_and_another_object_another():
    again = FunctionType(build.__code__, copy.copy(build.__globals__), "build")
    assert given.model(build) == given.model(build)
    assert given.model(build).startswith("given:build_")
    assert given.model(again) != given.model(build)
