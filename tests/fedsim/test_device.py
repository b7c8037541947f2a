"""The device is the one asked for, or an error."""

import pytest
import torch

from fedsim.device import resolve, threads
from fedsim.errors import InputError


def test_auto_takes_cuda_if_it_is_there() -> None:
    assert resolve("auto").type == ("cuda" if torch.cuda.is_available() else "cpu")
    assert resolve("cpu").type == "cpu"


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_cuda_is_refused_where_there_is_none() -> None:
    with pytest.raises(InputError, match="--device auto"):
        resolve("cuda")


def test_zero_threads_means_one_for_each_core() -> None:
    assert threads(0) >= 1
    assert threads(3) == 3
