"""Whether a client answers is the same with and without any one of its records.

A hostile server sets every key of a run and chooses the model. An answer or a refusal that hangs on
a record tells more than any charged sum. Run as a program, this module searches longer:

    PYTHONPATH=. python tests/fedsim/federation/client/test_presence.py 2000
"""

import sys
import tempfile
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import torch
from hostile import PARAMETERS, RUN, SCHEMA, Case, Z, play

from adversaries.errors import InputError
from fedsim.configuration import from_run_config, to_run_config
from fedsim.configuration.jobs import JOBS
from fedsim.federation.client import training_node
from fedsim.game import federation
from fedsim.game.mechanisms import privacy
from fedsim.learning.training import models

HEAD, OTHERS = "age,ward,ill", tuple(f"{20 + age},north,no" for age in range(9))
RECORD = "120,south,yes"
"""The record that is there or not: its features are the largest, its ward is its own."""

NUMBERS = SCHEMA.replace('classes = ["no", "yes"]', "target = [0, 60]")
"""A schema of records with a number, which the squared error of a training may let diverge."""

PAIRS = (
    (SCHEMA, (HEAD, *OTHERS, RECORD), (HEAD, *OTHERS)),
    (SCHEMA, (HEAD, RECORD, *OTHERS), (HEAD, *OTHERS)),
    (SCHEMA, (HEAD, RECORD), (HEAD,)),
    (SCHEMA, (HEAD, *[RECORD] * 71), (HEAD, *[RECORD] * 70)),
    (NUMBERS, (HEAD, "20,north,30", "120,south,1e300"), (HEAD, "20,north,30")),
    (NUMBERS, (HEAD, *["20,north,30"] * 9, "120,north,0"), (HEAD, *["20,north,30"] * 9)),
)
"""Schema, and rows with and without the record: last, first, alone, beyond `data.records`."""

SOUTH = (0, 0, 2**20, 0, 0, -(2**20), 0, 0)
"""A linear model that is certain, and wrong, for records of the south alone."""

MODELS = ("zeros", "random", "largest", "smallest", "south")


ADVERSE = {
    "privacy.unit": "client",
    "training.local-learning-rate": 1000.0,
    "training.local-epochs": 20,
}
"""Settings with which one client's own training diverges."""

VALUES = {
    "privacy.unit": ("record", "client"),
    "privacy.neighbouring": ("add-remove", "replace"),
    "privacy.noise-multiplier": (5.0, 1e6),
    "privacy.epsilon": (0.001,),
    "federation.trust": ("local", "distributed", "central"),
    "federation.secure-aggregation": ("simulated", "secagg+"),
    "federation.vantage": ("server", "participant"),
    "federation.clients": (2, 3, 10**5),
    "federation.tolerated-dropouts": (0, 1),
    "model.task": ("classification", "regression", "next-token", "huber"),
    "model.name": ("linear", "mlp", "adult-mlp"),
    "model.class-priors": ("", "0.5,0.5", "1e-300,0.5"),
    "model.hidden": (1, 4096),
    "model.lora-rank": (0, 2),
    "model.initialisation": ("random", "fixed"),
    "model.trainable": ("", "*", "*.bias"),
    "training.rounds": (1, 3, 10**5),
    "training.learning-rate": (0.0, 1e-30, 1.0, 1000.0),
    "training.local-learning-rate": (0.0, 1e-30, 1.0, 1000.0),
    "training.clipping-norm": (1e-6, 1.0, 1e6),
    "training.sampling-rate": (1.0, 0.5, 1e-6),
    "training.local-steps": (1, 3, 1000),
    "training.local-epochs": (1, 20, 100),
    "training.batch-size": (0, 1, 4, 10**6),
    "training.optimizer": ("", "normalized", "sgd", "adam"),
    "training.schedule": ("", "linear", "cosine"),
    "training.warmup-rounds": (0, 10**9),
    "data.records": (3, 10, 40, 10**9),
    "run.precision": ("float32", "bf16"),
    "run.max-memory": ("", "1B", "1MB", "900TB"),
    "run.threads": (1, 2, 256),
    "challenge.kind": ("record", "gradient", "clipbkd", "mislabelled"),
    "canaries.count": (0, 4),
    "federation.dropout-rate": (0.0, 0.9),
}
"""Values of the keys that decide what a client computes, from an ordinary to an extreme one."""


def _model(name, run, random):
    """Return the model of a hostile server, float32 [1, P]."""
    try:
        size = models.size(federation.load(run).model)
    except InputError:  # a client will say the same
        size = PARAMETERS
    if name == "south" and size == PARAMETERS:
        return np.asarray([SOUTH], dtype=np.float32)
    signs = random.choice([-1.0, 1.0], (1, size))
    scales = {"zeros": 0.0, "largest": 2.0**20, "smallest": 1e-44, "random": 1.0, "south": 2.0**10}
    if name == "random":
        signs *= 2.0 ** random.integers(-140, 21, (1, size))
    return (scales[name] * signs).astype(np.float32)


def _settings(random, pair):
    """Return a run that differs in some keys; None where its configuration contradicts itself."""
    changes = dict(ADVERSE) if random.random() < 0.4 else {}
    for key in random.choice(list(VALUES), random.integers(1, 7), replace=False):
        changes[str(key)] = VALUES[str(key)][random.integers(len(VALUES[str(key)]))]
    if "privacy.epsilon" in changes:
        changes["privacy.noise-multiplier"] = 0.0
    changes |= {"data.public-schema": PAIRS[pair][0]}
    if PAIRS[pair][0] == NUMBERS:
        changes["model.task"] = "regression"
    try:
        return from_run_config(JOBS["training"](RUN | changes))
    except InputError:
        return None


KINDS = (*["train"] * 4, "evaluate", "query.data")
NODE = {
    "epsilon-limit": 1e6,
    "consent": "central,canaries",
}


def _answers(run, model, pair, machine, kind="train"):
    schema, *rows = PAIRS[pair]
    try:
        multiplier = privacy.noise_multiplier(run)
    except InputError:  # a client will say the same
        multiplier = Z
    case = Case(
        "",
        to_run_config(run),
        lie={"noise_multiplier": multiplier},
        kind=kind,
        model=lambda _: model,
        node=NODE,
        checked=False,
        schema=schema,
    )
    return [play(case, "patients.csv", machine / str(n), each) for n, each in enumerate(rows)]


def _search(seed, count, machine):
    """Return how many settings were answered, refused, and differed, of `count` possible ones."""
    random, found = np.random.default_rng(seed), Counter[str]()
    while found.total() < count:
        name, pair = MODELS[random.integers(len(MODELS))], int(random.integers(len(PAIRS)))
        if (run := _settings(random, pair)) is None:
            continue
        model = _model(name, run, random)
        kind = KINDS[random.integers(len(KINDS))]
        one, other = _answers(run, model, pair, machine / str(found.total()), kind)
        if one == other:
            found["refused" if one.said.startswith("refused") else "answered"] += 1
        else:
            found["differed"] += 1
            values = to_run_config(run)
            print({key: values[key] for key in VALUES}, name, pair, one, other, file=sys.stderr)
    return found


@pytest.mark.parametrize("count", [20, pytest.param(150, marks=pytest.mark.slow)])
def test_an_answer_comes_with_and_without_a_record_for_all_settings(count, tmp_path):
    found = _search(0, count, tmp_path)
    assert found["differed"] == 0
    assert found["answered"] > count / 3 and found["refused"] > 0


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("pair", range(len(PAIRS)))
def test_a_training_that_diverges_is_answered_as_any_other(pair, model, tmp_path):
    schema = PAIRS[pair][0]
    task = "regression" if schema == NUMBERS else "classification"
    changes = {"data.public-schema": schema, "model.task": task}
    run = from_run_config(JOBS["training"](RUN | ADVERSE | changes))
    one, other = _answers(run, _model(model, run, np.random.default_rng(0)), pair, tmp_path)
    assert one.has_sum and one == other


def test_a_sum_beyond_float32_is_cut_off_after_its_noise():
    total = torch.tensor([[1e39, -1e300, 1.0]], dtype=torch.float64)
    sent, _ = training_node._encoded(total, None, bounded=True)
    largest = np.finfo(np.float32).max
    np.testing.assert_array_equal(sent, [[largest, -largest, 1.0]])
    with pytest.raises(FloatingPointError):
        training_node._encoded(total, None, bounded=False)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        print(dict(_search(1, int(sys.argv[1]), Path(folder))))
