"""One line records a Flower app, which runs as it did; the quickstart app is in tests/apps."""

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.server.strategy import FedAvg as OlderFedAvg
from flwr.serverapp.strategy import (
    DifferentialPrivacyServerSideFixedClipping,
    FedAvg,
)

from adversaries.bounds.canaries import vector
from adversaries.errors import InputError
from fedsim.federation.runtimes.inprocess import FIRST_NODE, RUN_ID, InProcessGrid
from fedsim.federation.transcripts.reader import read_transcript
from fedsim.recording import record

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


def _run(strategy, mods=(), change=0.01):
    """Run a strategy on clients that add a constant; return the final model."""
    app = ClientApp()

    @app.train(mods=list(mods))
    def training(message: Message, context: Context) -> Message:
        weight = message.content["arrays"]["w"].numpy()
        step = change * (1 + context.node_id - FIRST_NODE)
        content = {
            "arrays": ArrayRecord({"w": Array(weight + step)}),
            "metrics": MetricRecord({"num-examples": 1}),
        }
        return Message(RecordDict(content), reply_to=message)

    grid = InProcessGrid(app, NODES, {})
    initial = ArrayRecord({"w": Array(np.zeros(4))})
    result = strategy.start(grid, initial, num_rounds=ROUNDS, train_config=ConfigRecord())
    return result.arrays["w"].numpy()
