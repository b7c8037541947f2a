"""A claim is judged where a transcript can judge it; honest strategies are never convicted."""

import importlib
import math
from pathlib import Path

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp.strategy import DifferentialPrivacyServerSideFixedClipping, FedAvg

from adversaries.statistics import gaussian
from fedsim.audits.judgement.claim import Claim
from fedsim.audits.judgement.options import AuditOptions
from fedsim.audits.recorded.audit import audit
from fedsim.federation.runtimes.inprocess import FIRST_NODE, InProcessGrid
from fedsim.federation.transcripts.records import Transcript, TranscriptFacts
from fedsim.recording import record

APPS = Path(__file__).parents[3] / "apps"
DELTA, NODES, ROUNDS, NORM, Z, SIZE = 1e-5, 4, 4, 0.5, 1.0, 600
TRUTH = gaussian.epsilon(math.sqrt(ROUNDS) / Z, DELTA)


@pytest.fixture
def own(monkeypatch):
    monkeypatch.syspath_prepend(str(APPS / "dp_app"))
    return importlib.import_module("dp_app.own_strategies").OWN


def clients():
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
        said = MetricRecord({"num-examples": 1})
        return Message(RecordDict({"arrays": ArrayRecord(sent), "m": said}), reply_to=message)

    return app


def recorded(strategy):
    """Run a strategy, and return the server's transcript."""
    seen = []
    zeros = {"w": np.zeros((20, 20), np.float32), "b": np.zeros(200, np.float32)}
    initial = ArrayRecord({name: Array(value) for name, value in zeros.items()})
    record(strategy, seen.append).start(
        InProcessGrid(clients(), NODES, {}), initial, ROUNDS, train_config=ConfigRecord()
    )
    return Transcript(TranscriptFacts("server", "a test"), tuple(seen), True, "", 0)


def judged(transcript, claim, unit="client"):
    return audit(transcript, AuditOptions(claim=Claim(claim, DELTA, unit=unit))).report


def alarms(report):
    return [one["why"] for one in report["findings"] if one["severity"] == "alarm"]


def test_a_strategy_of_ones_own_is_warned_of_and_not_judged_and_its_seed_not_accused(own, caplog):
    for make in own.values():
        report = judged(recorded(make(NORM, Z, fraction_evaluate=0.0)), TRUTH + 0.1)
        assert report["verdict"] == "not judged"
        assert f"{make.__name__} is not what audits judge" in report["reasons"][0]
        assert f"{make.__name__} is not what audits judge" in caplog.text
        assert (report["details"]["release"], alarms(report)) == (None, [])


@pytest.mark.parametrize("unit", [None, "client", "record"])
def test_noise_that_clients_add_before_they_send_is_not_judged_by_a_server(unit):
    report = judged(recorded(FedAvg(fraction_evaluate=0.0)), 2.0, unit)
    assert report["verdict"] == "not judged"
    assert alarms(report) == []
    stated = "does not state what it protects" in report["reasons"][0]
    assert stated == (unit is None)


def test_a_transcript_that_may_lack_rounds_supports_nothing():
    np.random.seed(0)  # noqa: NPY002  (Flower draws its noise from there)
    whole = recorded(DifferentialPrivacyServerSideFixedClipping(FedAvg(), Z, NORM, NODES))
    assert judged(whole, TRUTH + 0.01)["verdict"] == "supported"
    open_ended = Transcript(whole.facts, whole.rounds, False, "", 0)
    report = judged(open_ended, TRUTH + 0.01)
    assert report["verdict"] == "not judged"
    assert "does not state that the run has ended" in report["reasons"][0]
