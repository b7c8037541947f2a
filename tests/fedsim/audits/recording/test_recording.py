"""One line records a Flower app, which runs as it did; the quickstart app is in tests/apps.

The last tests are of claims: honest strategies are never convicted.
"""

import importlib
import math
from pathlib import Path

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.server.strategy import FedAvg as OlderFedAvg
from flwr.serverapp.strategy import (
    DifferentialPrivacyServerSideFixedClipping,
    FedAvg,
)

from adversaries.bounds.canaries import vector
from adversaries.errors import InputError
from adversaries.statistics import gaussian
from fedsim.audits.judgement.claim import Claim
from fedsim.audits.judgement.options import AuditOptions
from fedsim.audits.recorded.audit import audit
from fedsim.audits.recording.flower import _arrays
from fedsim.federation.runtimes.inprocess import FIRST_NODE, RUN_ID, InProcessGrid
from fedsim.federation.transcripts.reader import read_transcript
from fedsim.federation.transcripts.records import Transcript, TranscriptFacts
from fedsim.recording import record

APPS = Path(__file__).parents[3] / "apps"
NODES, ROUNDS = 3, 3


def test_the_server_sees_every_reply_and_aggregate(quickstart):
    found = quickstart()["server"]
    assert (found.facts.vantage, found.facts.app, found.ended) == ("server", "quickstart", True)
    assert [observed.round for observed in found.rounds] == [1, 2, 3]
    for observed, following in zip(found.rounds, found.rounds[1:], strict=False):
        assert observed.participants == (FIRST_NODE, FIRST_NODE + 1, FIRST_NODE + 2)
        assert list(observed.replies) == list(observed.participants)
        assert observed.aggregate is not None
        counts = np.array([reply.num_examples for reply in observed.replies.values()])
        sent = np.stack([vector(reply.arrays) for reply in observed.replies.values()])
        mean = counts / counts.sum() @ sent
        np.testing.assert_allclose(vector(observed.aggregate), mean, atol=1e-6)
        np.testing.assert_array_equal(vector(observed.aggregate), vector(following.model))
        assert observed.mechanism["aggregation"] == "mean"
        assert observed.mechanism["weighted_by"] == "num-examples"
        assert "noise_multiplier" not in observed.mechanism


def test_recording_changes_nothing(tmp_path):
    def final(recorded):
        np.random.seed(3)  # noqa: NPY002  (Flower draws its noise from there)
        strategy = DifferentialPrivacyServerSideFixedClipping(FedAvg(), 1.0, 0.1, NODES)
        if recorded:
            record(strategy, tmp_path / "t")
        return _run(strategy)

    np.testing.assert_allclose(final(recorded=False), final(recorded=True), rtol=1e-12)


def test_replies_are_kept_as_they_arrived_before_the_server_clips_them(quickstart):
    observed = quickstart(privacy="server", clipping_norm=0.01)["server"].rounds[0]
    for reply in observed.replies.values():
        assert np.linalg.norm(vector(reply.arrays) - vector(observed.model)) > 0.02


class Own(FedAvg):
    """A strategy with an aggregation of its own."""

    def aggregate_train(self, server_round, replies):
        arrays, metrics = super().aggregate_train(server_round, replies)
        return None if server_round == 2 else arrays, metrics


def test_any_strategy_is_recorded(tmp_path):
    seen = []
    _run(record(Own(fraction_evaluate=0.0), seen.append))
    assert [observed.aggregate is None for observed in seen] == [False, True, False]
    assert seen[0].mechanism["aggregation"] == "other"


def test_strategies_that_wrap_each_other_in_a_circle_are_recorded():
    outer, inner = Own(fraction_evaluate=0.0), Own(fraction_evaluate=0.0)
    outer.strategy, inner.strategy = inner, outer
    seen = []
    _run(record(outer, seen.append))
    assert seen[0].mechanism["strategy"] == "Own > Own"


def test_an_existing_transcript_is_not_mixed_with_another_run(tmp_path):
    path = tmp_path / "server.fedt"
    path.touch()
    with pytest.raises(InputError, match="exists"):
        record(FedAvg(), path)


@pytest.mark.parametrize("error", [KeyboardInterrupt, RuntimeError])
def test_a_run_that_an_exception_ended_can_be_taken_up_again(tmp_path, error):
    class Interrupted(FedAvg):
        def configure_evaluate(self, *_):
            raise error

    path = tmp_path / "server.fedt"
    with pytest.raises(error):
        _run(record(Interrupted(), path))
    assert error.__name__ in read_transcript(path).incomplete
    _run(record(FedAvg(fraction_evaluate=0.0), path, resume=True))
    found = read_transcript(path)
    assert [one.round for one in found.rounds] == [1, 1, 2, 3]
    assert (found.ended, found.incomplete) == (True, "")
    with pytest.raises(InputError, match="has ended"):
        record(FedAvg(), path, resume=True)


def test_the_app_goes_on_when_recording_fails(tmp_path, caplog):
    sent = 0

    def broken(observed):
        nonlocal sent
        sent += 1
        raise OSError("no space left")

    _run(record(FedAvg(fraction_evaluate=0.0), broken))
    assert sent == 1
    assert caplog.text.count("RECORDING STOPPED") == 1


def test_a_run_that_fails_says_so_in_its_transcript(tmp_path):
    # A client that changes nothing ends Flower's server-side clipping.
    strategy = DifferentialPrivacyServerSideFixedClipping(FedAvg(), 1.0, 1.0, NODES)
    with pytest.raises(ZeroDivisionError):
        _run(record(strategy, tmp_path / "t"), change=0.0)
    found = read_transcript(tmp_path / "t")
    assert found.ended
    assert "ZeroDivisionError" in found.incomplete


def test_the_run_may_be_in_the_name_of_a_servers_transcript(tmp_path):
    _run(record(FedAvg(fraction_evaluate=0.0), tmp_path / "{run}.fedt"))
    (path,) = tmp_path.iterdir()
    assert path.name == f"{RUN_ID}.fedt"
    assert read_transcript(path).facts.run == str(RUN_ID)
    assert len(read_transcript(path).rounds) == ROUNDS
    # It exists now: nothing was trained before that is said.
    with pytest.raises(InputError, match="exists"):
        _run(record(FedAvg(fraction_evaluate=0.0), tmp_path / "{run}.fedt"))


def test_a_strategy_of_the_older_stack_is_refused_by_name(tmp_path):
    with pytest.raises(InputError, match=r"flwr\.server\.strategy\.fedavg\.FedAvg is not a"):
        record(OlderFedAvg(), tmp_path / "t")
    assert not (tmp_path / "t").exists()


def _run(strategy, change=0.01, size=4, rounds=ROUNDS):
    """Run a strategy on clients that each add a constant update; return the final model [size]."""
    app, drawn = ClientApp(), np.random.default_rng(1).standard_normal((NODES, size))

    @app.train()
    def training(message: Message, context: Context) -> Message:
        update = change * drawn[context.node_id - FIRST_NODE]
        model = message.content["arrays"]
        parts = zip(model.items(), np.split(update, [size // 3]), strict=True)
        sent = {name: Array(array.numpy() + part) for (name, array), part in parts}
        said = MetricRecord({"num-examples": 1})
        return Message(RecordDict({"arrays": ArrayRecord(sent), "m": said}), reply_to=message)

    zeros = np.split(np.zeros(size), [size // 3])
    initial = ArrayRecord({name: Array(part) for name, part in zip("bw", zeros, strict=True)})
    result = strategy.start(InProcessGrid(app, NODES, {}), initial, rounds)
    return np.concatenate([result.arrays[name].numpy() for name in "bw"])


DELTA, NORM, Z = 1e-5, 0.5, 1.0
TRUTH = gaussian.epsilon(math.sqrt(ROUNDS) / Z, DELTA)


def _recorded(strategy):
    """Run a strategy, and return the server's transcript."""
    seen = []
    _run(record(strategy, seen.append), 0.1, 600)
    return Transcript(TranscriptFacts("server", "a test"), tuple(seen), True, "", 0)


@pytest.fixture
def own(monkeypatch):
    monkeypatch.syspath_prepend(str(APPS / "dp_app"))
    return importlib.import_module("dp_app.own_strategies").OWN


def _judged(transcript, claim, unit="client"):
    return audit(transcript, AuditOptions(claim=Claim(claim, DELTA, unit=unit))).report


def _alarms(report):
    return [one["why"] for one in report["findings"] if one["severity"] == "alarm"]


def test_a_strategy_of_ones_own_is_warned_of_and_not_judged_and_its_seed_not_accused(own, caplog):
    for make in own.values():
        report = _judged(_recorded(make(NORM, Z, fraction_evaluate=0.0)), TRUTH + 0.1)
        assert report["verdict"] == "not judged"
        assert f"{make.__name__} is not what audits judge" in report["reasons"][0]
        assert f"{make.__name__} is not what audits judge" in caplog.text
        assert (report["details"]["release"], _alarms(report)) == (None, [])


@pytest.mark.parametrize("unit", [None, "client", "record"])
def test_noise_that_clients_add_before_they_send_is_not_judged_by_a_server(unit):
    report = _judged(_recorded(FedAvg(fraction_evaluate=0.0)), 2.0, unit)
    assert report["verdict"] == "not judged"
    assert _alarms(report) == []
    stated = "does not state what it protects" in report["reasons"][0]
    assert stated == (unit is None)


def test_a_transcript_that_may_lack_rounds_supports_nothing():
    np.random.seed(0)  # noqa: NPY002  (Flower draws its noise from there)
    whole = _recorded(DifferentialPrivacyServerSideFixedClipping(FedAvg(), Z, NORM, NODES))
    assert _judged(whole, TRUTH + 0.01)["verdict"] == "supported"
    open_ended = Transcript(whole.facts, whole.rounds, False, "", 0)
    report = _judged(open_ended, TRUTH + 0.01)
    assert report["verdict"] == "not judged"
    assert "does not state that the run has ended" in report["reasons"][0]


def test_arrays_of_several_records_keep_names_of_their_own():
    one = Array.from_numpy_ndarray(np.zeros(1))
    names = [("a/b", "c"), ("a", "b/c"), ("a%2Fb", "c"), ("a", "c")]
    content = RecordDict()
    for record_name, key in names:
        content.setdefault(record_name, ArrayRecord())[key] = one
    found = _arrays(Message(content, 1, "train"))
    assert len(found) == len(names)
    assert "a/c" in found
