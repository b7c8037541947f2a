"""A training is strict: a missing or failing client ends the run and is named."""

import numpy as np
import pytest
from flwr.app import Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from fedsim.configuration import to_run_config
from fedsim.federation.protocol import messages
from fedsim.federation.runtimes.inprocess import FIRST_NODE, InProcessGrid
from fedsim.federation.server.acceptance import ClientFailedError
from fedsim.federation.server.batch import Batch, Outgoing
from fedsim.federation.server.checkpoint import State
from fedsim.federation.server.plan import Plan
from fedsim.federation.server.training import Training
from fedsim.game.challenge import Challenge


def _sums(values):
    """Return a ClientApp whose clients send constant sums."""
    app = ClientApp()

    @app.train()
    def train(message: Message, context: Context) -> Message:
        partition = int(context.node_config["partition-id"])
        if partition not in values:
            raise ValueError("disk full")
        sums = np.full((2, 4), values[partition], dtype=np.float32)
        content = RecordDict({messages.REPLY: messages.array_record(sum=sums)})
        metrics = {"partition": partition, "round": 1}
        content[messages.METRICS] = MetricRecord(metrics)
        return Message(content, reply_to=message)

    return app


class ShufflingGrid(InProcessGrid):
    """Replies in another order, and loses those of some partitions."""

    lost: frozenset[int] = frozenset()

    def send_and_receive(self, messages, *, timeout=None):
        replies = list(super().send_and_receive(messages, timeout=timeout))
        kept = [r for r in replies if r.metadata.src_node_id - FIRST_NODE not in self.lost]
        return kept[::-1]


START = State(0, np.zeros((2, 4), dtype=np.float32))


def _batch(config, challenge, clients=3):
    return Batch(
        Plan(config, config.privacy.noise_multiplier, config.training.rounds, ()),
        challenge,
        nodes={partition: FIRST_NODE + partition for partition in range(clients)},
        trials=range(2),
        worlds=np.array([True, False]),
    )


def _round(config, app, lost=frozenset()):
    grid = ShufflingGrid(app, 3, to_run_config(config))
    grid.lost = lost
    training = Training(grid, _batch(config, Challenge(0, None, 0, 2, "given", None)))
    return training.play(START).model


@pytest.fixture
def quiet(small):
    """Almost no noise, so that a step can be read off."""
    return small({"privacy.rho-beta": 0.0, "privacy.noise-multiplier": 1e-12})


def test_a_round_steps_against_the_sum_over_n(quiet):
    model = _round(quiet, _sums({0: 1.0, 1: 2.0, 2: 4.0}))
    expected = -quiet.training.learning_rate * 7.0 / quiet.data.records
    np.testing.assert_allclose(model, expected, rtol=1e-6)


def test_the_order_of_the_replies_does_not_change_a_bit(small):
    loose = small(
        {"privacy.rho-beta": 0.0, "privacy.noise-multiplier": 1e-20}
        | {"training.clipping-norm": 1e8}
    )
    # In another order 1e8 + 1 - 1e8 would lose the 1 in float32, and may differ even in float64.
    sums = _sums({0: 1e8, 1: 1.0, 2: -1e8})
    assert _round(loose, sums)[0, 0] == pytest.approx(
        -loose.training.learning_rate / loose.data.records
    )


def test_a_failing_client_is_an_error_with_its_reason(quiet):
    with pytest.raises(ClientFailedError, match=r"round 1: client 1 failed: .*disk full"):
        _round(quiet, _sums({0: 1.0, 2: 1.0}))


def test_a_silent_client_is_an_error_and_not_a_smaller_federation(quiet):
    with pytest.raises(ClientFailedError, match="round 1: no answer from client 0, 2"):
        _round(quiet, _sums({0: 1.0, 1: 1.0, 2: 1.0}), lost=frozenset({0, 2}))


# What counts as a reply


def _false(partition, change):
    """Return a ClientApp one of whose clients sends something else than it was asked for."""
    honest, app = _sums({0: 1.0, 1: 1.0, 2: 1.0}), ClientApp()

    @app.train()
    def train(message: Message, context: Context) -> Message:
        reply = honest(message, context)
        if context.node_config["partition-id"] == partition:
            change(reply.content)
        return reply

    return app


def _sum_of(array):
    def change(content):
        content[messages.REPLY] = messages.array_record(sum=array)

    return change


def _metric_of(name, value):
    def change(content):
        content.metric_records[messages.METRICS][name] = value

    return change


FALSE = {
    "NaN": (_sum_of(np.full((2, 4), np.nan, np.float32)), "'reply' is not finite"),
    "infinity": (_sum_of(np.full((2, 4), np.inf, np.float32)), "'reply' is not finite"),
    "another shape": (_sum_of(np.ones((2, 5), np.float32)), r"is float32 \[2, 5\], not float32"),
    "another type": (_sum_of(np.ones((2, 4))), r"is float64 \[2, 4\], not float32"),
    "no sum": (lambda content: content.pop(messages.REPLY), "its record 'reply' must have exactly"),
    "a stale round": (_metric_of("round", 0), "belongs to round 0"),
    "another's partition": (_metric_of("partition", 2), "claims partition 2"),
    "no metrics": (lambda content: content.pop(messages.METRICS), "invalid reply"),
}


@pytest.mark.parametrize("name", FALSE)
def test_a_false_reply_ends_the_run_by_the_name_of_its_client(quiet, name):
    change, reason = FALSE[name]
    with pytest.raises(ClientFailedError, match=rf"round 1: client 1 failed: .*{reason}"):
        _round(quiet, _false(1, change))


class EchoingGrid(InProcessGrid):
    """Delivers the replies of one node twice."""

    def send_and_receive(self, messages, *, timeout=None):
        replies = list(super().send_and_receive(messages, timeout=timeout))
        return [*replies, replies[1]]


def _rounds(config, grid, challenge=None):
    events = []
    clients = config.federation.clients
    chosen = challenge or Challenge(0, None, 0, clients - 1, "given", None)
    training = Training(
        grid, _batch(config, chosen, clients), log_event=lambda **event: events.append(event)
    )
    return training, training.play(START), events


def test_two_answers_of_one_client_are_none(quiet):
    grid = EchoingGrid(_sums({0: 1.0, 1: 1.0, 2: 1.0}), 3, to_run_config(quiet))
    with pytest.raises(ClientFailedError, match="client 1 failed: it answered 2 times"):
        _rounds(quiet, grid)


def test_an_answer_of_a_node_that_was_not_asked_is_an_error(quiet):
    class Talkative(InProcessGrid):
        def send_and_receive(self, messages, *, timeout=None):
            requests = list(messages)
            stranger = Message(requests[0].content, FIRST_NODE + 2, "train")
            return super().send_and_receive([*requests, stranger])

    grid = Talkative(_sums({0: 1.0, 1: 1.0, 2: 1.0}), 3, to_run_config(quiet))
    training = Training(grid, _batch(quiet, Challenge(0, None, 0, 1, "given", None), 2))
    with pytest.raises(ClientFailedError, match="node 1002 answered without being asked"):
        training.play(START)


# Missing clients


@pytest.fixture
def tolerant(small):
    """Five clients of whom two may be missing, and almost no noise."""
    return small(
        {
            "federation.clients": 5,
            "federation.tolerated-dropouts": 2,
            "privacy.rho-beta": 0.0,
            "privacy.noise-multiplier": 1e-12,
        }
    )


def test_a_round_goes_on_without_as_many_clients_as_are_tolerated(tolerant):
    app = _sums({0: 0.1, 2: 0.2, 4: 0.4})
    training, state, events = _rounds(tolerant, InProcessGrid(app, 5, to_run_config(tolerant)))
    expected = -tolerant.training.learning_rate * 0.7 / tolerant.data.records
    np.testing.assert_allclose(state.model, expected, rtol=1e-6)
    assert [event["dropped"] for event in events] == [1, 3]
    assert "disk full" in str(events[0]["reason"])
    for request in Outgoing(training.batch, state, (0, 0, 1)).to_clients("train", range(5)):
        assert request.content.config_records[messages.PARTICIPANTS]["clients"] == [0, 2, 4]


def test_with_more_missing_the_round_is_refused_by_name(tolerant):
    grid = InProcessGrid(_sums({0: 1.0, 4: 1.0}), 5, to_run_config(tolerant))
    missing = "3 of 5 clients are missing.*clients 1, 2, 3 failed"
    with pytest.raises(ClientFailedError, match=missing):
        _rounds(tolerant, grid)


def test_the_adversary_that_keeps_a_belief_cannot_be_missing(tolerant):
    grid = InProcessGrid(_sums({0: 1.0, 1: 1.0, 2: 1.0, 3: 1.0}), 5, to_run_config(tolerant))
    with pytest.raises(ClientFailedError, match="the adversary's node is missing"):
        _rounds(tolerant, grid)


def test_a_clean_sum_longer_than_clipping_allows_is_refused(quiet):
    """8 of the 24 records, of norm 1 each, and a canary of the client's: 9 at most."""
    _round(quiet, _sums({0: 1.0, 1: 0.5, 2: 0.5}))
    with pytest.raises(ClientFailedError, match=r"client 2 failed.*norm 200, .* at most 9\.0009"):
        _round(quiet, _sums({0: 1.0, 1: 1.0, 2: 100.0}))
