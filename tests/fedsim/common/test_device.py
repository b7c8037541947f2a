"""The device is the one asked for, or an error."""

from contextlib import nullcontext

import pytest
import torch

from adversaries.errors import InputError
from fedsim.common.device import check_precision, reduced, resolve, threads


def test_auto_takes_cuda_if_it_is_there():
    assert resolve("auto").type == ("cuda" if torch.cuda.is_available() else "cpu")
    assert resolve("cpu").type == "cpu"


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_cuda_is_refused_where_there_is_none():
    with pytest.raises(InputError, match="set it to auto or cpu"):
        resolve("cuda")


def test_zero_threads_means_one_for_each_core():
    assert threads(0) >= 1
    assert threads(3) == 3


def test_tf32_is_refused_where_there_is_none():
    with pytest.raises(InputError, match="CUDA device, but this run uses cpu; choose float32"):
        check_precision("tf32", torch.device("cpu"))
    check_precision("bf16", torch.device("cpu"))
    check_precision("tf32", torch.device("cuda"))


def test_bfloat16_holds_inside_alone():
    x = torch.ones(2, 2)
    with reduced("bf16", torch.device("cpu")):
        assert (x @ x).dtype == torch.bfloat16
    with reduced("float32", torch.device("cpu")):
        assert (x @ x).dtype == torch.float32
    assert (x @ x).dtype == torch.float32


def test_tf32_holds_inside_alone(monkeypatch):
    # The switches can be set without the device that they are for.
    monkeypatch.setattr(torch, "autocast", lambda *_, **__: nullcontext())
    cuda = torch.device("cuda")
    with reduced("tf32", cuda):
        assert torch.backends.cuda.matmul.allow_tf32
        assert torch.backends.cudnn.allow_tf32
    assert not torch.backends.cuda.matmul.allow_tf32
    assert not torch.backends.cudnn.allow_tf32
    with reduced("float32", cuda):
        assert not torch.backends.cudnn.allow_tf32  # which PyTorch allows by itself
