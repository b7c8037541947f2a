"""Trainings with Opacus that break what their transcript rests on: none of those seen is supported.

The last tests are of what no transcript of Opacus shows: docs/how-to/transcripts.md says it.
"""

import gc
import types
import warnings

import pytest
import torch
from opacus import PrivacyEngine
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from fedsim.audits.judgement.claim import Claim
from fedsim.audits.judgement.options import AuditOptions
from fedsim.audits.recorded.audit import UNSEEN as UNSEEN_BY_ALL
from fedsim.audits.recorded.audit import audit
from fedsim.federation.transcripts.reader import read_transcript
from fedsim.recording import opacus

DELTA = 1e-5


@pytest.fixture(autouse=True)
def seeded():
    with torch.random.fork_rng(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.manual_seed(5)
        yield


def verdict(
    path,
    changed=lambda optimizer: None,
    batch_of=lambda batch, data: batch,
    at_half=lambda optimizer: None,
):
    """Train 44 steps, and return the verdict on the accountant's word and why.

    changed: what is done to the optimizer that is recorded; at_half: the same after 22 steps.
    """
    data = TensorDataset(torch.randn(505, 20), torch.randint(0, 5, (505,)))
    engine = opacus(PrivacyEngine(accountant="rdp"), path)
    net = nn.Linear(20, 100)
    module, optimizer, loader = engine.make_private(
        module=net,
        optimizer=torch.optim.SGD(net.parameters(), 0.1),
        data_loader=DataLoader(data, batch_size=50),
        noise_multiplier=1.0,
        max_grad_norm=1.0,
    )
    changed(optimizer)
    for epoch in range(4):
        if epoch == 2:
            at_half(optimizer)
        for drawn in loader:
            images, labels = batch_of(drawn, data)
            optimizer.zero_grad()
            nn.functional.cross_entropy(module(images), labels).backward()
            optimizer.step()
    claimed = engine.get_epsilon(DELTA) * 1.05
    del optimizer, module, loader
    gc.collect()
    report = audit(read_transcript(path), AuditOptions(claim=Claim(claimed, DELTA))).report
    texts = [each["why"] for each in report["findings"] if each["severity"] != "note"]
    return report["verdict"], " ".join([*report["reasons"], *texts])


def clipping(factor):
    """Return what clips by other factors of the norms [batch]."""

    def clip(self):
        gradients = [each.grad_sample for each in self.params]
        norms = torch.stack([each.flatten(1).norm(dim=1) for each in gradients]).norm(dim=0)
        for parameter, each in zip(self.params, gradients, strict=True):
            parameter.summed_grad = torch.einsum("i,i...", factor(norms), each)

    def changed(optimizer):
        optimizer.clip_and_accumulate = types.MethodType(clip, optimizer)

    return changed


def first_times_ten(norms):
    factors = (1 / (norms + 1e-6)).clamp(max=1)
    factors[:1] *= 10
    return factors


def noise_taken_back(optimizer):
    def hook(*_):
        for each in optimizer.params:
            each.grad = each.summed_grad / optimizer.expected_batch_size

    optimizer.original_optimizer.register_step_pre_hook(hook)


def recorder_taken_off(optimizer):
    del optimizer.pre_step


def with_the_first(batch, data):
    images, labels = data.tensors
    return torch.cat([batch[0], images[:1]]), torch.cat([batch[1], labels[:1]])


def constant_noise(optimizer):
    optimizer.generator = torch.Generator().manual_seed(0)


def own_draws(optimizer):
    def add_noise(self):
        for each in self.params:
            each.grad = each.summed_grad + torch.randn_like(each)

    optimizer.add_noise = types.MethodType(add_noise, optimizer)


def old_noise_in_another_order(optimizer):
    table = torch.randn(2100, generator=torch.Generator().manual_seed(3))

    def add_noise(self):
        drawn = table[torch.randperm(len(table))]
        for each in self.params:
            part, drawn = drawn[: each.numel()], drawn[each.numel() :]
            each.grad = each.summed_grad + part.view_as(each)

    optimizer.add_noise = types.MethodType(add_noise, optimizer)


def generator_set_back():
    """Return what sets PyTorch's generator back before every second step, and draws a little."""
    states = []

    def batch_of(batch, data):
        states.append(torch.get_rng_state())
        if len(states) % 2 == 0:
            torch.set_rng_state(states[-2])
            torch.randn(16)
        return batch

    return batch_of


LIES = {
    "three times the clipping norm": (
        {"changed": clipping(lambda norms: (3 / (norms + 1e-6)).clamp(max=1))}, "clipped gradient",
    ),
    "one record of a batch unclipped": ({"changed": clipping(first_times_ten)}, "clipped gradient"),
    "noise taken back before the step": ({"changed": noise_taken_back}, "from the recorded ones"),
    "half of the steps unrecorded": ({"at_half": recorder_taken_off}, "no recorded step"),
    "a record added to each batch": ({"batch_of": with_the_first}, "which trains on other records"),
    "noise of a seed that stands in the code": ({"changed": constant_noise}, "own code, generator"),
    "noise of the loop's own code": ({"changed": own_draws}, "own code, add_noise"),
    "noise of the step before, moved": ({"batch_of": generator_set_back()}, "repeats itself"),
    "old noise in another order": ({"changed": old_noise_in_another_order}, "is not Gaussian"),
}  # fmt: skip


@pytest.mark.parametrize("name", LIES)
def test_what_the_recorder_sees_to_be_otherwise_is_not_supported(name, tmp_path):
    how, why = LIES[name]
    found, reasons = verdict(tmp_path / "steps.fedt", **how)
    assert found in ("suspect", "not judged")
    assert why in reasons


def test_the_same_training_without_a_lie_is_supported(tmp_path):
    found, reasons = verdict(tmp_path / "steps.fedt")
    assert (found, reasons) == ("supported", UNSEEN_BY_ALL)


def with_the_first_in_place_of_another(batch, data):
    for part, whole in zip(batch, data.tensors, strict=True):
        part[:1] = whole[:1]
    return batch


def mixed_with_a_neighbour(batch, data):
    """Mix each record with the one beside it: a record moves two clipped gradients."""
    images, labels = batch
    return (images + images.roll(1, 0)) / 2, labels


UNSEEN = {
    "a record in place of one that was drawn": with_the_first_in_place_of_another,
    "each record mixed with another": mixed_with_a_neighbour,
}


@pytest.mark.parametrize("name", UNSEEN)
def test_what_no_transcript_shows_is_said_in_the_verdict(name, tmp_path):
    found, reasons = verdict(tmp_path / "steps.fedt", batch_of=UNSEEN[name])
    assert found == "supported"
    assert UNSEEN_BY_ALL in reasons
