"""The ranges of the numbers that a server may set at a deployed client."""

import time
from pathlib import Path

import pytest
from flwr.app import Context, Message, RecordDict

from fedsim import client_app
from fedsim.configuration import Config, to_run_config
from fedsim.federation.protocol.consent import BOUNDS, Bound, RefusedError
from fedsim.federation.protocol.flower_private import become_task

ELSEWHERE = {
    "the schema of the client's own records decides": ("data.image-size", "data.length"),
    "they choose public records": (
        *("data.held-out", "data.pool", "data.seed", "run.seed", "federation.dirichlet-alpha"),
    ),
    "they are probabilities or shares": (
        *("federation.sampling-rate", "federation.dropout-rate"),
        *("privacy.rho-beta", "privacy.rho-alpha", "privacy.max-risk"),
        *("privacy.baseline-risk", "privacy.delta"),
    ),
    "federation.clients bounds them": (
        *("federation.colluding", "federation.tolerated-dropouts"),
        "challenge.client",
    ),
    "the client's own terms bound them": (*("trials.count", "trials.batch"),),
    "the noise multiplier that follows from them is searched for in a range": (
        *("privacy.epsilon", "privacy.stop-at"),
    ),
    "only the server computes with them": (
        *("training.momentum", "federation.timeout"),
        "audit.confidence",
    ),
    "they can only make a rate smaller": ("training.warmup-rounds",),
    "a training has no game, and a game needs consents": (
        *("challenge.record", "challenge.replacement"),
        "canaries.count",
        *("audit.evaluated-trials",),
    ),
}
"""Keys of numbers without a row, with the reason."""


def test_every_number_of_a_configuration_has_a_range_or_a_reason_for_none():
    numbers = {
        key
        for key, value in to_run_config(Config()).items()
        if isinstance(value, int | float) and not isinstance(value, bool)
    }
    bounded = {bound.key for bound in BOUNDS}
    free = [key for keys in ELSEWHERE.values() for key in keys]
    assert numbers == bounded | set(free), "a new number needs a row in BOUNDS, or a reason here"
    assert len(numbers) == len(bounded) + len(free)


@pytest.fixture
def client(tmp_path):
    node = {
        "partition-id": 0,
        "consent": "",
        "state-path": str(tmp_path / "state"),
        "epsilon-limit": 3.0,
    }
    become_task(1, 1)
    return Context(1, 7, node, RecordDict(), to_run_config(Config()))


def _set(context, key, value):
    context.run_config[key] = value
    if key.startswith("training.local-") and key != "training.local-learning-rate":
        context.run_config["federation.trust"] = "local"
    if key in ("training.local-epochs", "training.batch-size", "training.local-learning-rate"):
        context.run_config |= {"privacy.unit": "client", "training.optimizer": "sgd"}
    if key == "privacy.noise-multiplier":
        context.run_config["privacy.rho-beta"] = 0.0
    if key == "federation.clients":
        context.run_config["data.records"] = value


@pytest.mark.parametrize("kind", ["train", "query.data", "query.identify"])
@pytest.mark.parametrize("bound", BOUNDS, ids=lambda bound: bound.key)
def test_a_number_beyond_its_range_is_refused_before_anything_is_built(
    bound: Bound, kind: str, client: Context
) -> None:
    key, most = bound.key, bound.most
    if key == "training.sampling-rate":
        _set(client, key, bound.least / 10)
    else:
        whole = isinstance(client.run_config[key], int)
        _set(client, key, round(most * 10) if whole else most * 10.0)
    start = time.perf_counter()
    with pytest.raises(RefusedError, match=f"{key} is .*, but a client accepts {bound.range}"):
        client_app.app(Message(RecordDict(), 7, kind), client)
    assert time.perf_counter() - start < 1
    assert not Path(str(client.node_config["state-path"])).exists()


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("model.hidden", 10**8),
        ("training.local-steps", 10**7),
        ("training.clipping-norm", 1e-9),
    ],
)
def test_numbers_that_exhausted_a_client_are_refused(key, value, client):
    _set(client, key, value)
    with pytest.raises(RefusedError, match=f"{key} is .*set it within this range"):
        client_app.app(Message(RecordDict(), 7, "train"), client)
