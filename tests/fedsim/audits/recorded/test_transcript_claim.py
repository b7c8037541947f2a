"""A claim is judged where a transcript can judge it; honest strategies are never convicted."""

import importlib
import math
from pathlib import Path

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp.strategy import FedAvg

from adversaries.statistics import gaussian
from fedsim.audits.judgement.claim import Claim
from fedsim.audits.judgement.options import AuditOptions
from fedsim.audits.recorded.audit import audit
from fedsim.federation.runtimes.inprocess import FIRST_NODE, InProcessGrid
from fedsim.federation.transcripts.records import Transcript, TranscriptFacts
from fedsim.recording import record

from .test_audit import canary_transcript

APPS = Path(__file__).parents[3] / "apps"
DELTA, NODES, ROUNDS, NORM, Z, SIZE = 1e-5, 4, 4, 0.5, 1.0, 600
TRUTH = gaussian.epsilon(math.sqrt(ROUNDS) / Z, DELTA)
"""What every honest strategy here gives a client whose update may be as long as the norm."""

DECLARED = {"clipping_norm": NORM, "noise_multiplier": Z}


@pytest.fixture
def own(monkeypatch):
    monkeypatch.syspath_prepend(str(APPS / "dp_app"))
    strategies = importlib.import_module("dp_app.own_strategies")
    return strategies.OWN


def clients(unequal=False):
    """Return clients whose updates hardly change from round to round, and are clipped.

    unequal: whether the second has twice as many examples as the first, and so on
    """
    app, pull = ClientApp(), np.random.default_rng(1).standard_normal((NODES, SIZE))

    @app.train()
    def training(message: Message, context: Context) -> Message:
        model = message.content["arrays"]
        update = 0.1 * pull[context.node_id - FIRST_NODE]
        parts = {"w": update[:400].reshape(20, 20), "b": update[400:]}
        sent = {
            name: Array((model[name].numpy() + part).astype(np.float32))
            for name, part in parts.items()
        }
        examples = context.node_id - FIRST_NODE + 1 if unequal else 1
        said = MetricRecord({"num-examples": examples})
        return Message(RecordDict({"arrays": ArrayRecord(sent), "m": said}), reply_to=message)

    return app


def recorded(strategy, unequal=False, **declared):
    """Run a strategy, and return the server's transcript."""
    seen = []
    zeros = {"w": np.zeros((20, 20), np.float32), "b": np.zeros(200, np.float32)}
    initial = ArrayRecord({name: Array(value) for name, value in zeros.items()})
    record(strategy, seen.append, **declared).start(
        InProcessGrid(clients(unequal), NODES, {}), initial, ROUNDS, train_config=ConfigRecord()
    )
    return Transcript(TranscriptFacts("server", "a test"), tuple(seen), True, "", 0)


def judged(transcript, claim, unit="client"):
    return audit(transcript, AuditOptions(claim=Claim(claim, DELTA, unit=unit))).report


def alarms(report):
    return [one["why"] for one in report["findings"] if one["severity"] == "alarm"]


@pytest.mark.parametrize("name", ["own-clipping", "own-per-layer", "own-adaptive", "own-adam"])
def test_an_honest_strategy_of_ones_own_is_not_judged_and_its_seed_not_accused(own, name):
    report = judged(recorded(own[name](NORM, Z, fraction_evaluate=0.0)), TRUTH + 0.1)
    assert report["verdict"] == "not judged"
    assert "declare it: record(" in report["reasons"][0]
    assert report["details"]["release"] is None
    assert alarms(report) == []


def test_what_is_declared_of_an_honest_strategy_is_supported_and_of_a_quiet_one_refuted(own):
    for seed in range(10):
        np.random.seed(seed)  # noqa: NPY002  (as Flower's wrappers, they draw from there)
        report = judged(recorded(own["own-clipping"](NORM, Z), **DECLARED), TRUTH + 0.01)
        assert (report["verdict"], alarms(report)) == ("supported", [])
        assert report["details"]["release"]["noise"] == "as claimed"
    quiet = judged(recorded(own["own-quiet"](NORM, Z), **DECLARED), TRUTH + 0.01)
    assert quiet["verdict"] == "convicted"
    assert "the noise is less than configured" in " ".join(alarms(quiet))
    same = judged(recorded(own["own-same-seed"](NORM, Z), **DECLARED), TRUTH + 0.01)
    assert same["verdict"] == "suspect"
    assert "the noise of round 2 repeats that of round 1" in alarms(same)[0]


def test_a_declared_mean_is_plain_however_many_examples_clients_have(own):
    for seed in range(10):
        np.random.seed(seed)  # noqa: NPY002
        transcript = recorded(own["own-clipping"](NORM, Z), unequal=True, **DECLARED)
        report = judged(transcript, TRUTH + 0.01)
        assert (report["verdict"], alarms(report)) == ("supported", [])
        assert report["details"]["release"]["weighting"] == "uniform"


def test_a_declaration_that_does_not_fit_accuses_nobody(own):
    report = judged(recorded(own["own-adam"](NORM, Z), **DECLARED), TRUTH + 0.01)
    assert report["verdict"] == "not judged"
    assert "an optimiser" in report["reasons"][0]
    assert alarms(report) == []


@pytest.mark.parametrize("unit", [None, "client", "record"])
def test_noise_that_clients_add_before_they_send_is_not_judged_by_a_server(unit):
    report = judged(recorded(FedAvg(fraction_evaluate=0.0)), 2.0, unit)
    assert report["verdict"] == "not judged"
    assert alarms(report) == []
    stated = "does not state what it protects" in report["reasons"][0]
    assert stated == (unit is None)


@pytest.mark.parametrize("rate", [0.5, 0.9])
def test_a_server_learning_rate_after_the_declared_noise_is_not_taken_for_too_little_noise(
    own, rate
):
    for seed in range(10):
        np.random.seed(seed)  # noqa: NPY002
        strategy = own["own-server-rate"](NORM, Z, fraction_evaluate=0.0)
        strategy.rate = rate
        report = judged(recorded(strategy, **DECLARED), TRUTH + 0.01)
        assert report["verdict"] == "not judged"
        assert "A server learning rate below 1" in report["reasons"][0]
        assert alarms(report) == []


def test_declared_noise_that_is_partly_the_same_in_every_round_supports_nothing(own):
    report = judged(recorded(own["own-partly-same-noise"](NORM, Z), **DECLARED), TRUTH + 0.01)
    assert report["details"]["release"]["noise"] == "as claimed"
    assert report["verdict"] == "not judged"
    assert "alike in several rounds than chance explains" in report["reasons"][0]
    assert alarms(report) == []


def test_a_transcript_that_may_lack_rounds_supports_nothing(own):
    whole = recorded(own["own-clipping"](NORM, Z), **DECLARED)
    open_ended = Transcript(whole.facts, whole.rounds, False, "", 0)
    report = judged(open_ended, TRUTH + 0.01)
    assert report["verdict"] == "not judged"
    assert "does not state that the run has ended" in report["reasons"][0]


def test_canaries_disprove_claims_about_updates_alone():
    transcript = canary_transcript(0, 5.0, 30)
    assert "does not state what it protects" in judged(transcript, 2.0, None)["reasons"][0]
    assert judged(transcript, 2.0, "client")["verdict"] == "convicted"
    assert judged(transcript, 1e6, "client")["verdict"] == "not judged"
