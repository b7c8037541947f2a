"""The most that one record moves a sum: at most C, whatever model a server sends.

A search over models, records and clipping norms, among them values whose squares underflow or
overflow float32 and positions whose gradients cancel. A contribution is measured in float64 on the
sum: with the record, less without it.
"""

import copy
import itertools
import math
import os
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings, target
from hypothesis import strategies as st
from torch import nn

from fedsim.learning.training import clipped_block, clipping
from fedsim.learning.training.clipping import Clipper
from fedsim.learning.training.gradients import formed
from fedsim.learning.training.layers import RULES
from fedsim.learning.training.layerwise import LayerwiseModel
from fedsim.learning.training.models import ChannelAffine, parameter_shapes, size
from fedsim.learning.training.slots import SLOTS
from fedsim.learning.training.trainable import adapt

RECORDS = 3
ALLOWED = 1 + 1e-3
ACCELERATOR = Path(__file__).parents[3] / "device" / "accelerator.py"


class _Scaled(nn.Module):
    """A layer without a rule."""

    def __init__(self, width=6):
        super().__init__()
        self.gain = nn.Parameter(torch.ones(width))

    def forward(self, x):
        return x * self.gain


class _Tied(nn.Module):
    """A layer that is used twice."""

    def __init__(self):
        super().__init__()
        self.layer, self.head = nn.Linear(6, 6), nn.Linear(6, 3)

    def forward(self, x):
        return self.head(self.layer(self.layer(x).tanh()))


class _Text(nn.Module):
    """Tokens, two layers over positions, and their mean."""

    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(9, 8, padding_idx=0)
        self.norm, self.layer, self.head = nn.LayerNorm(8), nn.Linear(8, 8), nn.Linear(8, 3)

    def forward(self, x):
        return self.head(self.layer(self.norm(self.table(x))).tanh().mean(1))


def _low_rank():
    network = nn.Sequential(nn.Linear(6, 6), nn.ReLU(), nn.Linear(6, 3))
    return adapt(network.requires_grad_(False), 2)


def _chain(*layers, into):
    return lambda: copy.deepcopy(nn.Sequential(*layers, nn.Flatten(), nn.Linear(into, 3)))


NETWORKS = {
    "linear": (lambda: nn.Sequential(nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 3)), (6,)),
    # Few positions of many numbers: norms come from Gram matrices.
    "linear over positions": (_chain(nn.Linear(40, 40), nn.Tanh(), into=160), (4, 40)),
    "convolution over time": (_chain(nn.Conv1d(4, 5, 3), nn.ReLU(), into=20), (4, 6)),
    "convolutions": (
        _chain(nn.Conv2d(1, 20, 3), nn.ReLU(), nn.Conv2d(20, 20, 3), nn.ReLU(), into=80),
        (1, 6, 6),
    ),
    "grouped convolution": (_chain(nn.Conv2d(4, 8, 3, groups=2), into=32), (4, 4, 4)),
    "convolution in space": (_chain(nn.Conv3d(1, 4, 2), into=32), (1, 3, 3, 3)),
    "group norm": (_chain(nn.Conv2d(1, 4, 3), nn.GroupNorm(2, 4), into=16), (1, 4, 4)),
    "affine": (_chain(nn.Conv2d(1, 4, 3), ChannelAffine(4), nn.ReLU(), into=16), (1, 4, 4)),
    "text": (_Text, (7,)),
    "tied": (_Tied, (6,)),
    "low rank": (_low_rank, (6,)),
    "torch.func": (lambda: nn.Sequential(_Scaled(), nn.Linear(6, 3)), (6,)),
}


def _classes(networks):
    """Return the class names of all layers of some networks."""
    kinds = {type(layer) for build, _ in networks.values() for layer in build().modules()}
    return {f"{kind.__module__}.{kind.__qualname__}" for kind in kinds}


OWN = {name for name in RULES if ".conv." not in name and not name.startswith("transformers.")}
"""The classes of layers with a rule but for convolutions, and layers of other packages."""


def test_every_rule_is_searched():
    assert _classes(NETWORKS) >= OWN


def _records(shape, scale, text):
    if text:
        return torch.randint(0, 9, (RECORDS, *shape))
    return scale * torch.randn(RECORDS, *shape)


def _ratios(clipper, parameters, features, labels):
    """Return |contribution|/C of every record."""
    ones = torch.ones(len(parameters), len(labels), device=parameters.device)
    together = clipper.clipped_sum(parameters, features, labels, ones)
    found = []
    for record in range(len(labels)):
        weights = ones.clone()
        weights[:, record] = 0
        without = clipper.clipped_sum(parameters, features, labels, weights)
        found.append(float((together - without).norm(dim=1).max()) / clipper.clipping_norm)
    return found


@cache
def _clipper(name, precision, clipping_norm, device):
    torch.manual_seed(0)
    model = NETWORKS[name][0]().to(device)
    return Clipper(model, clipping_norm, precision=precision, exact=True)


def _largest(name, precision, seed, scales, record, device="cpu"):
    """Return the largest |contribution|/C of one model; the scales are powers of ten."""
    clipper = _clipper(name, precision, (1e-6, 1e-2, 10.0)[seed % 3], device)
    torch.manual_seed(seed)
    powers = itertools.cycle(scales)
    shapes = parameter_shapes(clipper.model).values()
    parts = [10 ** next(powers) * torch.randn(shape) for shape in shapes]
    # Heads of both signs let the gradients of two positions cancel.
    head = next(part for part in reversed(parts) if part.dim() > 1)
    head[:, 1::2] = -head[:, : head.shape[1] // 2 * 2 : 2]
    parameters = torch.cat([part.flatten() for part in parts])[None]
    features = _records(NETWORKS[name][1], 10**record, name == "text")
    moved = (x.to(device) for x in (parameters, features, torch.arange(RECORDS) % 3))
    return max(_ratios(clipper, *moved))


IN_BF16 = ("linear", "convolutions", "text")
"""What is also searched in bf16 by default: it changes what a layer computes, and no rule."""


@pytest.mark.parametrize(
    ("name", "precision"),
    [
        *((name, "float32") for name in NETWORKS),
        *(
            pytest.param(name, "bf16", marks=() if name in IN_BF16 else pytest.mark.slow)
            for name in NETWORKS
        ),
    ],
)
@settings(max_examples=30, deadline=None)
@given(
    seed=st.integers(0, 2**20),
    scales=st.lists(st.floats(-30, 18), min_size=1, max_size=6),
    record=st.floats(-25, 18),
)
def test_no_model_makes_a_record_contribute_more_than_the_clipping_norm(
    name, precision, seed, scales, record
):
    largest = _largest(name, precision, seed, scales, record)
    target(largest)
    assert largest <= ALLOWED


def _cancelling(steps):
    """Yield models and records of 'linear over positions', by ascent on (sum_l |a_l| |e_l|)/|g|.

    Positions start almost alike, with heads of opposite signs, so that their gradients cancel. A
    tiny first layer and a large head leave little gradient elsewhere.
    """
    build, shape = NETWORKS["linear over positions"]
    torch.manual_seed(1)
    model = build().double()
    weight, bias, head, shift = (p.detach().clone() for p in model.parameters())
    weight, bias, head = 1e-8 * weight, 1e-8 * bias, 1e8 * head.unflatten(1, (shape[0], -1))
    head[:, 1::2] = -head[:, ::2]
    positions = torch.randn(1, shape[1], dtype=torch.float64).repeat(shape[0], 1)
    positions += 1e-5 * torch.randn_like(positions)
    optimizer = torch.optim.Adam([positions.requires_grad_()], lr=1e-6)
    for _ in range(steps):
        hidden = torch.tanh(positions @ weight.mT + bias)
        logits = torch.einsum("cld,ld->c", head, hidden) + shift
        error = logits.softmax(0) - torch.tensor([1.0, 0, 0], dtype=torch.float64)
        errors = torch.einsum("c,cld->ld", error, head) * (1 - hidden**2)
        loss = (positions.mT @ errors).norm().log()
        loss = loss - (positions.norm(dim=1) * errors.norm(dim=1)).sum().log()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        parts = (weight, bias, head, shift)
        yield torch.cat([p.flatten() for p in parts]).float()[None], positions.detach().float()


@pytest.mark.parametrize("clipping_norm", [1e-3, 10.0])
def test_positions_that_cancel_do_not_hide_a_gradient_from_its_norm(clipping_norm):
    model = NETWORKS["linear over positions"][0]()
    largest, labels = 0.0, torch.zeros(1, dtype=torch.int64)
    clipper = Clipper(model, clipping_norm, exact=True)
    for parameters, record in itertools.islice(_cancelling(200), 0, None, 20):
        largest = max([largest, *_ratios(clipper, parameters, record[None], labels)])
    assert 0.1 < largest <= ALLOWED


def test_squares_that_underflow_do_not_switch_clipping_off():
    # The square of 1e-25 is 0 in float32; times the second layer's 1e15 it is a gradient of 1e-10.
    model = nn.Sequential(nn.Linear(1, 1, bias=False), nn.Linear(1, 2, bias=False))
    parameters = torch.tensor([[1.0, 1e15, -1e15]])
    clipper = Clipper(model, 1e-12, exact=True)
    (ratio,) = _ratios(clipper, parameters, torch.tensor([[1e-25]]), torch.tensor([0]))
    assert ratio <= ALLOWED


def _noise_times_a_million(width, hidden, seed):
    """Return a network whose logits are pure rounding noise, times 2^18, and records for it."""
    torch.manual_seed(seed)
    large, half = 2.0**18, width // 2
    model = nn.Sequential(nn.Linear(width, hidden), nn.Linear(hidden, 2))
    weight = torch.randn(hidden, width) * large / 4
    weight[:, half : 2 * half], weight[:, 2 * half :] = -weight[:, :half], 0
    head = torch.tensor([[-large], [large]]).repeat(1, hidden)
    parts = (weight, torch.zeros(hidden), head, torch.zeros(2))
    records = torch.rand(RECORDS_OF_NOISE, width)
    records[:, half : 2 * half] = records[:, :half]
    return model, torch.cat([part.flatten() for part in parts])[None], records


RECORDS_OF_NOISE = 100


@pytest.mark.parametrize("hidden", [1, 7, 16])
@pytest.mark.parametrize("start", range(1, 14))
def test_a_records_absence_changes_no_other_records_gradient(start, hidden):
    """For widths 1 to 130: in place of the record, the rows behind it would move up by one."""
    for width in range(start, 131, 13):
        model, parameters, records = _noise_times_a_million(width, hidden, width)
        labels = torch.arange(len(records)) % 2
        clipper = Clipper(model, 1.0, exact=True, expected=40)
        whole = clipper.clipped_sum(parameters, records, labels)
        others = torch.arange(len(records)) != 3
        without = clipper.clipped_sum(parameters, records[others], labels[others])
        assert float((whole - without).norm()) <= ALLOWED
        # Left out by its weight.
        weights = others[None].float()
        assert torch.equal(clipper.clipped_sum(parameters, records, labels, weights), without)


@pytest.mark.parametrize("copies", [2, 65, 257])
def test_the_absence_of_a_copy_changes_no_other_records_gradient(copies):
    model, parameters, records = _noise_times_a_million(37, 7, 0)
    records = torch.cat([records[:1].repeat(copies, 1), records])
    labels = torch.zeros(len(records), dtype=torch.int64)
    clipper = Clipper(model, 1.0, exact=True)
    whole = clipper.clipped_sum(parameters, records, labels)
    for absent in (0, copies - 1, copies):
        others = torch.arange(len(records)) != absent
        without = clipper.clipped_sum(parameters, records[others], labels[others])
        assert float((whole - without).norm()) <= ALLOWED


def _by_width(width):
    """Return a network for each rule whose arrays have a width of 1 to 130."""
    return {
        "linear": (_chain(nn.Linear(width, 7), nn.Tanh(), into=7), (width,)),
        "positions": (_chain(nn.Linear(width, width), nn.GELU(), into=3 * width), (3, width)),
        "time": (_chain(nn.Conv1d(width, 5, 2), nn.Sigmoid(), into=10), (width, 3)),
        "convolutions": (
            _chain(nn.Conv2d(1, width, 3), nn.ReLU(), nn.Conv2d(width, 3, 2), into=12),
            (1, 5, 5),
        ),
        "space": (_chain(nn.Conv3d(width, 3, 2), into=3), (width, 2, 2, 2)),
        "group norm": (_chain(nn.Conv1d(2, width, 2), nn.GroupNorm(1, width), into=width), (2, 2)),
        "affine": (_chain(nn.Conv1d(2, width, 2), ChannelAffine(width), into=width), (2, 2)),
        "layer norm": (_chain(nn.Linear(3, width), nn.LayerNorm(width), into=width), (3,)),
        "embedding": (_chain(nn.Embedding(9, width), nn.Softplus(), into=4 * width), (4,)),
        "low rank": (
            lambda: adapt(_chain(nn.Linear(width, 7), into=7)().requires_grad_(False), 2),
            (width,),
        ),
        "torch.func": (lambda: nn.Sequential(_Scaled(width), nn.Linear(width, 3)), (width,)),
    }


def test_every_rule_has_a_network_by_width():
    assert _classes(_by_width(8)) >= OWN


def _assert_places_are_alike(build, shape, seed, tokens):
    """Assert that a record has the same gradient, to the bit, in each group of a block.

    Every second slot has the same record in all groups; the other slots have others.
    """
    torch.manual_seed(seed)
    groups = 4 if seed % 2 else 16
    some = torch.randint(0, 9, (groups, SLOTS, *shape)) if tokens else None
    features = torch.randn(groups, SLOTS, *shape) if some is None else some
    labels = torch.randint(0, 3, (groups, SLOTS))
    features[:, ::2], labels[:, ::2] = features[:1, ::2], labels[:1, ::2]
    model = build()
    parameters = 10 ** (2 * torch.rand(1)) * torch.randn(1, size(model))
    gradients = clipped_block.by_groups(
        LayerwiseModel(model).gradients,
        parameters,
        features.flatten(0, 1)[None],
        labels.view(1, -1),
    )
    each = formed(gradients).view(groups, SLOTS, -1)[:, ::2]
    assert each.isfinite().all()
    assert torch.equal(each, each[:1].expand_as(each))


@pytest.mark.parametrize("threads", [1, 2, 16])
@pytest.mark.parametrize("name", list(_by_width(8)))
def test_a_record_has_the_same_gradient_in_every_group(name, threads):
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        for width in range(1 if threads == 1 else threads, 131, 1 if threads == 1 else 16):
            build, shape = _by_width(width)[name]
            _assert_places_are_alike(build, shape, width, name == "embedding")
    finally:
        torch.set_num_threads(before)


class _WholeProduct(nn.Module):
    """Own code that multiplies all rows of a batch by a constant matrix at once."""

    def __init__(self):
        super().__init__()
        self.register_buffer("table", torch.randn(37, 7))
        self.head = nn.Linear(7, 3)

    def forward(self, x):
        return self.head((x @ self.table).tanh())


def test_own_code_that_multiplies_a_whole_batch_gets_one_group_at_a_time():
    record, label = torch.zeros(37), torch.tensor(0)
    for build, rows in ((_WholeProduct, SLOTS), (_by_width(37)["linear"][0], clipping.MOST_ROWS)):
        clipper = Clipper(build(), 1.0, exact=True)
        assert clipper.cut(record, label, 1, 5000, own=True).records == rows


def test_an_exact_sum_does_not_round_other_records_away():
    """In float32 the terms of a thousand equal records round by more than a thousandth of C."""
    model = nn.Linear(6, 3)
    torch.manual_seed(0)
    features = torch.randn(1, 6).repeat(20_000, 1) + 0.01 * torch.randn(20_000, 6)
    labels, parameters = torch.zeros(20_000, dtype=torch.int64), torch.randn(1, size(model))
    ones = torch.ones(1, len(labels))
    without = ones.clone()
    without[:, 7] = 0
    clipper = Clipper(model, 0.1, exact=True)
    moved = clipper.clipped_sum(parameters, features, labels, ones)
    moved -= clipper.clipped_sum(parameters, features, labels, without)
    alone = clipper.clipped_gradients(parameters, features[7:8], labels[7:8])[:, 0]
    # The gradient alone comes from a batch of one, which a kernel may round otherwise.
    torch.testing.assert_close(moved, alone, rtol=1e-4, atol=1e-7)
    assert float(moved.norm()) <= 0.1


def test_a_record_whose_gradient_is_not_finite_adds_nothing_and_raises_no_error():
    """Else a server would learn from an error, uncharged, that some record is large."""
    model = nn.Sequential(nn.Linear(2, 2), nn.ReLU(), nn.Linear(2, 3))
    torch.manual_seed(0)
    parameters = torch.randn(2, size(model))
    features, labels = torch.tensor([[1.0, 1.0], [3e38, 3e38], [1.0, 0.0]]), torch.arange(3)
    clipper = Clipper(model, 1.0, exact=True)
    without = torch.tensor([[1.0, 0.0, 1.0]] * 2)
    expected = clipper.clipped_sum(parameters, features, labels, without)
    found = clipper.clipped_sum(parameters, features, labels)
    assert torch.equal(found, expected)
    assert float(found.norm()) > 0.1


def search(models):
    """Print the largest |contribution|/C that a search finds on an accelerator in host memory.

    `python tests/fedsim/learning/training/test_sensitivity.py MODELS` tries so many models of each
    network.
    """
    sys.path.insert(0, str(ACCELERATOR.parent))
    import accelerator  # noqa: PLC0415

    accelerator.install()
    clipping.BLOCK_BYTES["gpu"] = 2**25
    for name in NETWORKS:
        found = []
        generator = torch.Generator().manual_seed(0)
        for seed in range(models):
            uniform = torch.rand(5, generator=generator)
            wide = bool(seed // 3 % 2)  # every other model is of ordinary size
            scales = (48 * uniform[:4] - 30 if wide else 2 * uniform[:4] - 1).tolist()
            record = float(43 * uniform[4] - 25) if wide else 0.0
            found.append(_largest(name, "float32", seed, scales, record, "gpu"))
        print(f"{name:24} {max(found):.6g}")


@pytest.mark.device
@pytest.mark.slow
@pytest.mark.long
def test_no_model_makes_a_record_contribute_more_on_an_accelerator():
    command, own = [sys.executable, __file__, "12"], {**os.environ, "OMP_NUM_THREADS": "1"}
    found = subprocess.run(command, capture_output=True, text=True, env=own, check=False)
    assert found.returncode == 0, found.stderr
    largest = [float(line[24:]) for line in found.stdout.splitlines()]
    assert len(largest) == len(NETWORKS)
    assert 0.5 < max(largest) <= ALLOWED
    assert not any(map(math.isnan, largest))


if __name__ == "__main__":
    search(int(sys.argv[1]))
