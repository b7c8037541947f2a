"""One line records a training with Opacus, and the audit of it knows what the accountant does not.

Softmax regression on random data; noise and sampling are seeded. The last tests are of trainings
that break what their transcript rests on, and of what no transcript of Opacus shows:
docs/how-to/transcripts.md says it.
"""

import gc
import types
import warnings

import numpy as np
import pytest
import torch
from opacus import PrivacyEngine
from opacus.utils.batch_memory_manager import BatchMemoryManager
from torch import nn
from torch.utils.data import DataLoader, TensorDataset, WeightedRandomSampler

from adversaries.errors import InputError
from adversaries.statistics import gaussian
from fedsim.audits.judgement.claim import Claim
from fedsim.audits.judgement.options import AuditOptions
from fedsim.audits.recorded.audit import UNSEEN as UNSEEN_BY_ALL
from fedsim.audits.recorded.audit import audit
from fedsim.federation.transcripts.reader import read_transcript
from fedsim.recording import opacus

DELTA = 1e-5
ADAPTIVE = {
    "target_unclipped_quantile": 0.5,
    "clipbound_learning_rate": 0.2,
    "max_clipbound": 10.0,
    "min_clipbound": 0.01,
    "unclipped_num_std": 5.0,
}


@pytest.fixture(autouse=True)
def seeded():
    """Seed every generator, and leave out the warnings of Opacus, which are its users'."""
    with torch.random.fork_rng(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.manual_seed(5)
        yield


class Training:
    """A data set and a model, on which an engine may be built anew."""

    def __init__(self, records=500, batch=50, sampler=None, width=5):
        self.data = TensorDataset(torch.randn(records, 20), torch.randint(0, 5, (records,)))
        self.model = nn.Linear(20, width)
        self.batch, self.sampler = batch, sampler

    def run(
        self,
        engine,
        epochs=4,
        after=lambda optimizer: None,
        physical=None,
        batch_of=lambda batch, data: batch,
        at_half=lambda optimizer: None,
        **settings,
    ):
        """Train, and return what the accountant says.

        after: what is done to the optimizer, or returns another; at_half: after half of the epochs.
        """
        criterion = nn.CrossEntropyLoss()
        settings = {"noise_multiplier": 1.0, "max_grad_norm": 1.0} | settings
        loader = DataLoader(self.data, batch_size=self.batch, sampler=self.sampler)
        made = engine.make_private(
            module=self.model,
            optimizer=torch.optim.SGD(self.model.parameters(), 0.1),
            data_loader=loader,
            criterion=criterion,
            **settings,
        )
        module, optimizer, loader = made[0], after(made[1]) or made[1], made[-1]
        criterion = made[2] if len(made) == 4 else criterion
        for epoch in range(epochs):
            if 2 * epoch == epochs:
                at_half(optimizer)
            self._epoch(module, optimizer, criterion, loader, physical, batch_of)
        self.model = module.to_standard_module()
        return float(engine.get_epsilon(DELTA))

    def _epoch(self, module, optimizer, criterion, loader, physical, batch_of):
        if physical is not None:
            with BatchMemoryManager(
                data_loader=loader, max_physical_batch_size=physical, optimizer=optimizer
            ) as split:
                self._epoch(module, optimizer, criterion, split, None, batch_of)
            return
        for batch in loader:
            images, labels = batch_of(batch, self.data)
            optimizer.zero_grad()
            criterion(module(images), labels).backward()
            optimizer.step()


def _audited(path, claimed=None):
    gc.collect()  # an optimiser that nobody holds any more has ended its transcript
    claim = None if claimed is None else Claim(claimed, DELTA)
    return audit(
        read_transcript(path), AuditOptions(claim=claim, delta=None if claim else DELTA)
    ).report


def _texts(report, *severities):
    return " ".join(
        one["why"] for one in report["findings"] if not severities or one["severity"] in severities
    )


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"physical": 20},
        pytest.param(
            {"clipping": "per_layer", "max_grad_norm": [0.8, 0.6]}, marks=pytest.mark.slow
        ),
        {"grad_sample_mode": "ghost"},
    ],
    ids=["flat", "virtual steps", "per layer", "ghost"],
)
def test_a_correct_training_is_measured_and_its_accountants_word_supported(tmp_path, settings):
    path = tmp_path / "steps.fedt"
    epsilon = Training().run(opacus(PrivacyEngine(), path, size_public=True), 8, **settings)
    report = _audited(path, epsilon)
    assert report["verdict"] == "supported", report["findings"]
    assert report["details"]["rounds"] == 80
    noise = report["rows"]["loop"]["noise"]
    assert noise["low"] < 1 < noise["high"] < 1.05
    assert report["details"]["release"]["amplified"]
    # Its bound is looser than the loss distribution, by a hundredth.
    assert 0.9 < report["rows"]["loop"]["limit"]["epsilon"] / epsilon < 1


def test_recording_changes_nothing_and_keeps_what_a_step_released():
    def weights(steps):
        torch.manual_seed(9)
        seen = []

        def watched(optimizer):
            apply = optimizer.original_optimizer.step

            def step():
                seen.append(optimizer.params[0].grad.numpy().copy())
                return apply()

            optimizer.original_optimizer.step = step
            return optimizer if steps is None else opacus(optimizer, steps.append)

        training = Training()
        training.run(PrivacyEngine(), 1, watched)
        return training.model.weight.detach().numpy(), seen

    steps = []
    bare, _ = weights(None)
    recorded, seen = weights(steps)
    np.testing.assert_array_equal(bare, recorded)
    assert len(steps) == 10
    for step, gradient in zip(steps, seen, strict=True):
        assert step.aggregate is not None
        np.testing.assert_array_equal(step.aggregate["0"], gradient)


def test_what_the_code_set_on_an_optimizer_still_runs_and_its_noise_is_named():
    calls = []

    def changed(optimizer):
        for name in ("pre_step", "add_noise"):
            vars(optimizer)[name] = _counting(getattr(optimizer, name), name, calls)
        return opacus(optimizer, steps.append)

    steps = []
    Training().run(PrivacyEngine(), 1, changed)
    assert (calls.count("pre_step"), calls.count("add_noise")) == (10, 10)
    assert {step.mechanism["randomness"] for step in steps} == {"own code"}


def _counting(method, name, calls):
    def counted(*arguments):
        calls.append(name)
        return method(*arguments)

    return counted


@pytest.mark.slow
def test_an_engine_in_every_round_is_convicted_by_the_total_and_its_mended_twin_is_not(tmp_path):
    rounds, path, mended = 5, tmp_path / "anew.fedt", tmp_path / "kept.fedt"
    training = Training()
    for _ in range(rounds):
        # As Flower's own example does: an engine per round, whose epsilon is of that round.
        last = training.run(opacus(PrivacyEngine(), path, resume=True, size_public=True), 2)
    report = _audited(path, last)
    assert report["verdict"] == "convicted"
    assert "restarted (5 engines)" in _texts(report)
    proven = report["rows"]["loop"]["attack"]["proven"]
    assert report["details"]["rounds"] == 100
    # The mended twin keeps its accountant: the last word is of all rounds.
    training, history = Training(), []
    for _ in range(rounds):
        engine = PrivacyEngine()
        engine.accountant.history = history
        total = training.run(opacus(engine, mended, resume=True, size_public=True), 2)
        history = engine.accountant.history
    report = _audited(mended, total)
    assert report["verdict"] == "supported", report["findings"]
    assert "restarted" not in _texts(report)
    # The proof is nearly the total that the twin is supported by.
    assert last < 0.9 * total
    assert 0.9 * total < proven < total


@pytest.mark.parametrize("factor", [0.9, pytest.param(0.5, marks=pytest.mark.slow)])
def test_less_noise_than_the_accountant_was_told_is_convicted(tmp_path, factor):
    path = tmp_path / "steps.fedt"
    engine = opacus(PrivacyEngine(), path, size_public=True)
    epsilon = Training().run(engine, 8, _of(factor))
    report = _audited(path, epsilon)
    assert report["verdict"] == "convicted"
    assert "less than configured" in _texts(report, "alarm")


def _scaled(optimizer, add, factor):
    add()
    for p in optimizer.params:
        p.grad = p.summed_grad + factor * (p.grad - p.summed_grad)


def test_a_divisor_that_depends_on_the_number_of_records_is_an_alarm_where_it_does(tmp_path):
    verdicts = {}
    for records in (500, 505):
        path = tmp_path / f"{records}.fedt"
        training = Training(records)
        training.model = nn.Linear(20, 200)
        epsilon = training.run(opacus(PrivacyEngine(), path), 4)
        verdicts[records] = _audited(path, epsilon)
    # int(500/10) is 50 and int(499/10) 49; int(505/11) is int(504/11).
    assert verdicts[500]["verdict"] == "suspect"
    assert "50, but 49 with one record fewer" in _texts(verdicts[500], "alarm")
    assert verdicts[505]["verdict"] == "supported", verdicts[505]["findings"]


def _of(factor):
    """Return what weakens the noise of an optimiser by this factor."""

    def weakened(optimizer):
        add, optimizer.add_noise = optimizer.add_noise, lambda: _scaled(optimizer, add, factor)
        return optimizer

    return weakened


def test_batches_of_one_size_are_judged_without_amplification(tmp_path):
    path = tmp_path / "steps.fedt"
    engine = opacus(PrivacyEngine(), path, size_public=True)
    epsilon = Training().run(engine, 4, poisson_sampling=False)
    report = _audited(path, epsilon)
    assert report["verdict"] == "suspect"
    # Each record is in one batch of an epoch: four Gaussian steps, which a larger claim may be.
    at_most = report["rows"]["loop"]["limit"]["epsilon"]
    assert at_most == pytest.approx(gaussian.epsilon(2, DELTA))
    assert _audited(path, at_most)["verdict"] == "supported"


def test_the_optimiser_alone_shows_by_its_batches_that_they_are_not_poissons(tmp_path):
    """Where it knows of how many records they are."""
    for records, verdict in ((500, "suspect"), (None, "not judged")):
        path = tmp_path / f"{records}.fedt"
        epsilon = Training().run(
            PrivacyEngine(),
            4,
            lambda made, to=path, of=records: opacus(made, to, records=of),
            poisson_sampling=False,
        )
        report = _audited(path, epsilon)
        assert report["verdict"] == verdict
        if records:
            assert "contradict Poisson sampling" in _texts(report, "alarm")
            assert not report["details"]["release"]["amplified"]


def test_a_weighted_sampler_is_found_by_the_record_that_it_favours(tmp_path):
    weights = torch.ones(500)
    weights[7] = 20
    sampler = WeightedRandomSampler(weights.tolist(), 500)
    path = tmp_path / "steps.fedt"
    engine = opacus(PrivacyEngine(), path, size_public=True)
    epsilon = Training(sampler=sampler).run(engine, 12, poisson_sampling=False)
    report = _audited(path, epsilon)
    assert "a record was in" in _texts(report, "alarm")
    assert report["verdict"] == "convicted"


def test_adaptive_clipping_is_named_and_not_judged(tmp_path):
    path = tmp_path / "steps.fedt"
    engine = opacus(PrivacyEngine(), path, size_public=True)
    epsilon = Training().run(engine, 2, clipping="adaptive", **ADAPTIVE)
    report = _audited(path, epsilon)
    assert report["verdict"] == "not judged"
    assert "adaptive clipping releases a count" in report["reasons"][0]


def test_noise_of_the_same_seed_in_every_round_is_found(tmp_path):
    path, training = tmp_path / "steps.fedt", Training()
    for _ in range(2):
        generator = torch.Generator().manual_seed(3)
        engine = opacus(PrivacyEngine(), path, resume=True, size_public=True)
        epsilon = training.run(engine, 1, noise_generator=generator)
    report = _audited(path, 2 * epsilon)
    assert "repeats that of" in _texts(report, "alarm")
    assert report["verdict"] == "suspect"


def test_what_is_wrong_with_the_line_is_said_before_training(tmp_path):
    with pytest.raises(InputError, match="neither an Opacus optimizer nor a PrivacyEngine"):
        opacus(object(), tmp_path / "steps.fedt")
    path = tmp_path / "steps.fedt"
    Training().run(opacus(PrivacyEngine(), path), 1)
    gc.collect()
    with pytest.raises(InputError, match="exists"):
        Training().run(opacus(PrivacyEngine(), path), 1)


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
        {"after": clipping(lambda norms: (3 / (norms + 1e-6)).clamp(max=1))}, "clipped gradient",
    ),
    "one record of a batch unclipped": ({"after": clipping(first_times_ten)}, "clipped gradient"),
    "noise taken back before the step": ({"after": noise_taken_back}, "from the recorded ones"),
    "half of the steps unrecorded": ({"at_half": recorder_taken_off}, "no recorded step"),
    "a record added to each batch": ({"batch_of": with_the_first}, "which trains on other records"),
    "noise of a seed that stands in the code": ({"after": constant_noise}, "own code, generator"),
    "noise of the loop's own code": ({"after": own_draws}, "own code, add_noise"),
    "noise of the step before, moved": ({"batch_of": generator_set_back()}, "repeats itself"),
    "old noise in another order": ({"after": old_noise_in_another_order}, "is not Gaussian"),
}  # fmt: skip


def verdict(path, **how):
    """Train 44 steps, and return the verdict on the accountant's word and why."""
    engine = opacus(PrivacyEngine(accountant="rdp"), path)
    epsilon = Training(505, width=100).run(engine, 4, **how)
    report = _audited(path, 1.05 * epsilon)
    texts = [each["why"] for each in report["findings"] if each["severity"] != "note"]
    return report["verdict"], " ".join([*report["reasons"], *texts])


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
