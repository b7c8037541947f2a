"""The strategy is strict: a missing or failing owner ends the run and is named."""

from collections.abc import Callable, Iterable

import numpy as np
import pytest
from flwr.app import ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from fedsim import messages
from fedsim.challenge import Challenge
from fedsim.config import Config, to_run_config
from fedsim.runtimes.inprocess import FIRST_NODE, InProcessGrid
from fedsim.strategy import DPSGD, OwnerFailedError


def _sums(values: dict[int, float]) -> ClientApp:
    """Return a ClientApp whose owners send constant sums."""
    app = ClientApp()

    @app.train()
    def train(message: Message, context: Context) -> Message:
        partition = int(context.node_config["partition-id"])
        if partition not in values:
            raise ValueError("disk full")
        sums = np.full((2, 4), values[partition], dtype=np.float32)
        content = RecordDict({messages.REPLY: messages.array_record(sum=sums)})
        metrics = {"partition": partition, "seconds": 0.5, "round": 1}
        content[messages.METRICS] = MetricRecord(metrics)
        return Message(content, reply_to=message)

    return app


class ShufflingGrid(InProcessGrid):
    """Replies in another order, and loses those of some partitions."""

    lost: frozenset[int] = frozenset()

    def send_and_receive(
        self, messages: Iterable[Message], *, timeout: float | None = None
    ) -> Iterable[Message]:
        replies = list(super().send_and_receive(messages, timeout=timeout))
        kept = [r for r in replies if r.metadata.src_node_id - FIRST_NODE not in self.lost]
        return kept[::-1]


def _round(config: Config, app: ClientApp, lost: frozenset[int] = frozenset()) -> np.ndarray:
    grid = ShufflingGrid(app, 3, to_run_config(config))
    grid.lost = lost
    strategy = DPSGD(
        config=config,
        challenge=Challenge(0, None, 0, 2, "given", None),
        noise_multiplier=config.privacy.noise_multiplier,
        nodes={partition: FIRST_NODE + partition for partition in range(3)},
        trials=range(2),
        worlds=np.array([True, False]),
    )
    start = messages.array_record(parameters=np.zeros((2, 4), dtype=np.float32))
    requests = strategy.configure_train(1, start, ConfigRecord(), grid)
    model, metrics = strategy.aggregate_train(1, grid.send_and_receive(requests))
    assert metrics["seconds"] == 1.5
    return messages.only(model)


@pytest.fixture
def quiet(small: Callable[..., Config]) -> Config:
    """Almost no noise, so that a step can be read off."""
    return small({"privacy.rho-beta": 0.0, "privacy.noise-multiplier": 1e-12})


def test_a_round_steps_against_the_sum_over_n(quiet: Config) -> None:
    model = _round(quiet, _sums({0: 1.0, 1: 2.0, 2: 4.0}))
    expected = -quiet.training.learning_rate * 7.0 / quiet.data.records
    np.testing.assert_allclose(model, expected, rtol=1e-6)


def test_the_order_of_the_replies_does_not_change_a_bit(quiet: Config) -> None:
    # In another order 1e8 + 1 - 1e8 would lose the 1 in float32, and may differ even in float64.
    sums = _sums({0: 1e8, 1: 1.0, 2: -1e8})
    assert _round(quiet, sums)[0, 0] == pytest.approx(
        -quiet.training.learning_rate / quiet.data.records
    )


def test_a_failing_owner_is_an_error_with_its_reason(quiet: Config) -> None:
    with pytest.raises(OwnerFailedError, match=r"round 1: owner 1 failed: .*disk full"):
        _round(quiet, _sums({0: 1.0, 2: 1.0}))


def test_a_silent_owner_is_an_error_and_not_a_smaller_federation(quiet: Config) -> None:
    with pytest.raises(OwnerFailedError, match="round 1: no answer from owner 0, 2"):
        _round(quiet, _sums({0: 1.0, 1: 1.0, 2: 1.0}), lost=frozenset({0, 2}))
