"""Regression and class weights: losses, clipped gradients, and a model that predicts."""

import csv
import json

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import fedsim
from adversaries.errors import InputError
from fedsim.learning.data import dataset, own_records, schema
from fedsim.learning.data.dataset import STEPS, TargetRange
from fedsim.learning.training import models, quality, tasks
from fedsim.learning.training.clipping import Clipper
from fedsim.learning.training.regression_and_text import SPAN


def test_a_number_is_a_step_of_its_range_and_what_lies_outside_is_clipped():
    stay = TargetRange(0, 60)
    values = np.array([-5, 0, 12.34567, 60, 1e9])
    steps = stay.steps(values)
    assert steps[[0, 1, 3, 4]].tolist() == [0, 0, STEPS, STEPS]
    # Half a step is lost at most.
    assert abs(stay.values(steps / STEPS)[2] - 12.34567) <= 60 / STEPS / 2
    for text in ("60,0", "0", "a,b", "0,inf"):
        with pytest.raises(InputError, match=r"range is|data\.target is"):
            dataset.parsed(text)


@pytest.mark.parametrize(
    ("task", "reference"),
    [
        ("regression", lambda output, target: (output - target) ** 2 / 2),
        ("huber", torch.nn.HuberLoss(reduction="none")),
    ],
)
def test_gradients_are_those_of_each_record_clipped_by_itself(task, reference):
    torch.manual_seed(0)
    model = models.build("mlp", (3,), 1, 4, task=task)
    features, labels = torch.randn(20, 3), torch.randint(0, STEPS + 1, (20,))
    theta = models.flatten(model)[None]
    total = Clipper(model, 0.5).clipped_sum(theta, features, labels, torch.ones(1, 20))
    expected = torch.zeros_like(total[0], dtype=torch.float64)
    for feature, label in zip(features, labels, strict=True):
        output = model(feature[None])[0, 0]
        loss = reference(output, SPAN * (label / STEPS - 0.5))
        gradient = torch.cat([g.flatten() for g in torch.autograd.grad(loss, model.parameters())])
        expected += gradient.double() / max(1.0, float(gradient.norm()) / 0.5)
    # float32 gradients, and the share of C that clipping leaves to rounding.
    torch.testing.assert_close(total[0].double(), expected, rtol=1e-4, atol=1e-4)


def test_class_priors_weigh_what_was_clipped_and_leave_what_is_measured_alone():
    outputs, labels = torch.randn(6, 2), torch.tensor([0, 0, 0, 1, 1, 0])
    plain, weighted = tasks.named("classification"), tasks.named("classification", "0.8,0.2")
    assert torch.equal(weighted.loss(outputs, labels), plain.loss(outputs, labels))
    shares = weighted.shares_of_norm(labels)
    assert shares is not None
    assert shares.tolist() == [0.25, 0.25, 0.25, 1, 1, 0.25]
    # Both classes' gradients are clipped; the common class's term is still four times shorter.
    model = models.build("linear", (4,), 2, 1, class_priors="0.8,0.2")
    theta = torch.zeros(1, models.size(model))
    features = 100 * torch.randn(1, 4)
    for label, longest in ((0, 0.125), (1, 0.5)):
        one = torch.tensor([label])
        clipper = Clipper(model, 0.5)
        term = clipper.clipped_sum(theta, features, one, torch.ones(1, 1))[0]
        assert float(term.double().norm()) == pytest.approx(longest, rel=1e-4)
        assert float(clipper.longest(one)) == longest
        ((formed,),) = clipper.clipped_gradients(theta, features, one)
        torch.testing.assert_close(formed, term, rtol=1e-4, atol=1e-6)
        distance = clipper.clipped_distances(theta, features, one)
        assert float(distance) == pytest.approx(longest, rel=1e-4)
    for priors, complaint in (("0.5", "sum to 1"), ("1,0", "sum to 1"), ("0.2,0.3,0.5", "names 3")):
        with pytest.raises(InputError, match=complaint):
            tasks.named("classification", priors).widths(2)


@settings(max_examples=60)
@given(
    seed=st.integers(0, 2**32 - 1),
    rarest=st.sampled_from([1e-9, 0.02, 0.18, 0.5]),
    norm=st.sampled_from([1e-3, 1.0, 50.0]),
    magnitude=st.sampled_from([1e-6, 1.0, 1e4, 1e30]),
)
def test_no_record_moves_a_weighted_sum_by_more_than_the_norm(seed, rarest, norm, magnitude):
    """Search for a record, model and priors that exceed C, by leaving each record out."""
    draw = torch.Generator().manual_seed(seed)
    model = models.build("mlp", (3,), 2, 4, class_priors=f"{1 - rarest!r},{rarest!r}")
    theta = magnitude * torch.randn(1, models.size(model), generator=draw)
    features = magnitude * torch.randn(7, 3, generator=draw)
    labels = torch.randint(2, (7,), generator=draw)
    clipper = Clipper(model, norm, exact=True)
    longest = clipper.longest(labels)
    assert float(longest.max()) <= norm
    whole = clipper.clipped_sum(theta, features, labels, torch.ones(1, 7))
    for left_out in range(7):
        weights = torch.ones(1, 7)
        weights[0, left_out] = 0
        moved = (whole - clipper.clipped_sum(theta, features, labels, weights)).norm()
        assert float(moved) <= float(longest[left_out])


def test_errors_of_a_regression_are_those_of_the_records():
    rng = np.random.default_rng(1)
    target = torch.tensor(rng.uniform(size=400))
    predicted = target + torch.tensor(rng.normal(scale=0.1, size=400))
    found = quality.errors(predicted, target)
    off = (predicted - target).numpy()
    assert found["mean_absolute"][0] == pytest.approx(np.abs(off).mean())
    assert found["root_mean_squared"][0] == pytest.approx(np.sqrt((off**2).mean()))
    assert found["r_squared"][0] == pytest.approx(1 - (off**2).mean() / target.numpy().var())
    for value, low, high in found.values():
        assert low < value < high
    assert "r_squared" not in quality.errors(predicted, torch.full((400,), 0.5).double())


@pytest.mark.parametrize(
    ("records", "measured"),
    [(1, set()), (2, {"mean_absolute", "root_mean_squared"}), (30, set(quality.ERRORS))],
)
def test_errors_of_few_records_are_those_with_an_interval(records, measured):
    target = torch.linspace(0.1, 0.9, records).double()
    for off in (0, 0.01):
        assert set(quality.errors(target + off, target)) == measured


@pytest.mark.parametrize("name", ["classification", "regression", "huber"])
def test_every_task_measures_a_model_on_one_record(name):
    task, model = tasks.TASKS[name], torch.nn.Linear(2, 1)
    outputs, features, label = torch.ones(1, 1), torch.ones(1, 2), torch.ones(1).long()
    task.baseline(model, features, label)
    task.of_trials(lambda: outputs[None], label)
    json.dumps(task.of_model(model, outputs, features, label), default=str, allow_nan=False)


SCHEMA = """
label = "days"
target = [0, 30]
unlabelled = "drop"

[columns]
age = [0, 100]
ward = ["A", "B"]
"""


def write_table(path, seed, records=400):
    rng = np.random.default_rng(seed)
    with path.open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["age", "ward", "days"])
        for row in range(records):
            age, ward = rng.uniform(20, 90), rng.choice(["A", "B"])
            days = age / 5 + (8 if ward == "B" else 0) + rng.normal()
            rows.writerow([f"{age:.1f}", ward, "" if row == 7 else f"{days:.2f}"])


def test_hospitals_learn_a_number_by_a_schema_and_predict_it(tmp_path):
    for seed, name in enumerate(("client-0", "client-1", "public")):
        write_table(tmp_path / f"{name}.csv", seed)
    found = own_records.inspect(str(tmp_path / "client-0.csv"), schema.parse(SCHEMA))
    assert len(found.records) == 399
    assert [str(problem).split(":")[0] for problem in found.problems] == ["column 'days'"]
    settings = {
        "data.name": "own",
        "data.public-schema": SCHEMA,
        "data.root": str(tmp_path / "client-{client}.csv"),
        "data.public-root": str(tmp_path / "public.csv"),
        "data.records": 798,
        "data.held-out": 399,
        "federation.clients": 2,
        "model.task": "huber",
        "training.rounds": 20,
        "privacy.rho-beta": 0.0,
        "privacy.epsilon": 20.0,
        "privacy.delta": 1e-5,
    }
    path = fedsim.train(settings, out=tmp_path / "run", progress=False).path
    card = json.loads((path / "public" / "model_card.json").read_text())
    error, low, high = card["utility"]["errors"]["mean_absolute"]
    assert low < error < high
    # Always saying the median is 16 % off. The noise is the system's: five trainings had 3 to 6 %.
    assert 1 - error > card["utility"]["majority"] + 0.02
    said = fedsim.predict(path, tmp_path / "public.csv").details.values
    assert said.min() >= 0
    assert said.max() <= 30
    rows = list(csv.DictReader((tmp_path / "public.csv").read_text().splitlines()))
    days = np.array([float(row["days"] or "nan") for row in rows])
    off = np.abs(said - days)[~np.isnan(days)].mean() / 30
    assert off == pytest.approx(error, rel=1e-3)  # steps of the range
