"""The server: Flower's strategies for differential privacy, used as the variant says.

It is recorded where the run config names a transcript.
"""

from collections.abc import Iterable
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message
from flwr.serverapp import (
    Grid,
    NeighboringRelation,
    PrivacyConfig,
    RdpAccountant,
    SamplingMethod,
    ServerApp,
)
from flwr.serverapp.strategy import (
    DifferentialPrivacyClientSideFixedClipping,
    DifferentialPrivacyServerSideAdaptiveClipping,
    DifferentialPrivacyServerSideFixedClipping,
    FedAdam,
    FedAvg,
    Result,
    Strategy,
)

from dp_app.own_strategies import OWN
from dp_app.variants import known
from fedsim.recording import record

app = ServerApp()


class TenthOfTheNoise(DifferentialPrivacyServerSideFixedClipping):
    """Adds a tenth of the noise that it is configured with."""

    rounds = 0

    def share(self) -> float:
        """Return the share of the noise that the round gets."""
        return 0.1

    def _add_noise_to_aggregated_arrays(self, aggregated_arrays: ArrayRecord) -> ArrayRecord:
        self.rounds += 1
        nominal = self.noise_multiplier
        self.noise_multiplier = nominal * self.share()
        try:
            return super()._add_noise_to_aggregated_arrays(aggregated_arrays)
        finally:
            self.noise_multiplier = nominal


class NoneAtFirst(TenthOfTheNoise):
    """Adds no noise in the first round, and 1.3 times the configured noise from then on."""

    def share(self) -> float:
        return 0.0 if self.rounds == 1 else 1.3


class SameNoise(DifferentialPrivacyServerSideFixedClipping):
    """Draws the same noise in every round."""

    state: Any = None

    def _add_noise_to_aggregated_arrays(self, aggregated_arrays: ArrayRecord) -> ArrayRecord:
        self.state = self.state or np.random.get_state()  # noqa: NPY002
        np.random.set_state(self.state)  # noqa: NPY002
        return super()._add_noise_to_aggregated_arrays(aggregated_arrays)


class OwnNoise(DifferentialPrivacyServerSideFixedClipping):
    """Has a noise method of its own, which adds what Flower's adds."""

    def _add_noise_to_aggregated_arrays(self, aggregated_arrays: ArrayRecord) -> ArrayRecord:
        return super()._add_noise_to_aggregated_arrays(aggregated_arrays)


class Uneven(DifferentialPrivacyServerSideFixedClipping):
    """Multiplies its noise multiplier and its divisor by these factors, the last of them again."""

    factors: tuple[tuple[float, int], ...] = ((1.0, 1),)
    nominal: tuple[float, int] | None = None

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        multiplier, clients = self.nominal = self.nominal or (
            self.noise_multiplier,
            self.num_sampled_clients,
        )
        share, divisor = self.factors[min(server_round, len(self.factors)) - 1]
        self.noise_multiplier, self.num_sampled_clients = multiplier * share, clients * divisor
        return super().configure_train(server_round, arrays, config, grid)


UNEVEN = {
    "noise-none-at-first": ((0.0, 1), (1.0, 1)),
    "noise-lowered": ((0.1, 1),),
}


class SentWithoutNoise(DifferentialPrivacyServerSideFixedClipping):
    """Returns the noised model, and sends clients the mean without noise."""

    without: ArrayRecord | None = None

    def _add_noise_to_aggregated_arrays(self, aggregated_arrays: ArrayRecord) -> ArrayRecord:
        self.without = aggregated_arrays
        return super()._add_noise_to_aggregated_arrays(aggregated_arrays)

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        return super().configure_train(server_round, self.without or arrays, config, grid)


class SentMoved(DifferentialPrivacyServerSideFixedClipping):
    """Sends clients nine tenths of the model."""

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        moved = {name: Array(0.9 * array.numpy()) for name, array in arrays.items()}
        return super().configure_train(server_round, ArrayRecord(moved), config, grid)


class OwnStart(DifferentialPrivacyServerSideFixedClipping):
    """Runs its rounds itself."""

    def start(
        self, grid: Grid, initial_arrays: ArrayRecord, num_rounds: int = 3, **options: Any
    ) -> Result:
        result = Result()
        result.arrays = initial_arrays
        for number in range(1, num_rounds + 1):
            messages = self.configure_train(number, result.arrays, ConfigRecord(), grid)
            arrays, _ = self.aggregate_train(number, grid.send_and_receive(messages))
            result.arrays = arrays
        return result


class OwnStartQuiet(OwnStart, TenthOfTheNoise):
    """Runs its rounds itself, with a tenth of the noise."""


OWN_NOISE = {
    **{name: type("Uneven", (Uneven,), {"factors": each}) for name, each in UNEVEN.items()},
    "sent-without-noise": SentWithoutNoise,
    "sent-moved": SentMoved,
    "own-start": OwnStart,
    "own-start-quiet": OwnStartQuiet,
    "noise-too-small": TenthOfTheNoise,
    "noise-but-first": NoneAtFirst,
    "noise-repeated": SameNoise,
    "noise-renamed": OwnNoise,
}


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Train for the configured number of rounds."""
    config = context.run_config
    rounds, variant = int(config["num-server-rounds"]), known(config["variant"])
    model = {"weights": np.zeros((64, 10), np.float32), "bias": np.zeros(10, np.float32)}
    arrays = ArrayRecord({name: Array(value) for name, value in model.items()})
    if variant == "seeded":
        np.random.seed(42)  # noqa: NPY002  (the mistake itself)
    if variant == "accountant-rebuilt":
        for _ in range(rounds):
            strategy = _strategy(config, variant)
            arrays = strategy.start(grid, arrays, num_rounds=1).arrays
    elif variant == "private-at-last":
        arrays = _strategy(config, "none").start(grid, arrays, num_rounds=1).arrays
        _strategy(config, "uniform").start(grid, arrays, num_rounds=rounds - 1)
    else:
        strategy = _strategy(config, variant)
        if path := str(config["transcript"]):
            record(strategy, path, app="dp-app")
        strategy.start(grid, arrays, num_rounds=rounds)


def _strategy(config: Any, variant: str) -> Strategy:
    clients = int(config["clients"])
    norm, z = float(config["clipping-norm"]), float(config["noise-multiplier"])
    by_examples = variant in ("weighted", "none")
    make = FedAdam if variant == "server-adam" else FedAvg
    average = make(
        fraction_evaluate=0.0,
        min_train_nodes=clients,
        min_available_nodes=clients,
        weighted_by_key="num-examples" if by_examples else "one",
    )
    if variant in OWN:
        options = {"fraction_evaluate": 0.0, "min_available_nodes": clients}
        return OWN[variant](norm, z, min_train_nodes=clients, **options)
    if variant in ("none", "local-dp"):
        return average
    if variant == "adaptive":
        return DifferentialPrivacyServerSideAdaptiveClipping(
            average, z, clients, initial_clipping_norm=norm, clipped_count_stddev=2 * z
        )
    if variant in ("client-fixed", "client-unclipped"):
        return DifferentialPrivacyClientSideFixedClipping(average, z, norm, clients)
    accountant = None
    if variant.startswith("accountant"):
        accountant = RdpAccountant(
            PrivacyConfig(
                float(config["delta"]),
                clients,
                NeighboringRelation.ADD_OR_REMOVE_ONE,
                SamplingMethod.NO_AMPLIFICATION,
            )
        )
    normaliser = 10 * clients if variant == "too-many-clients" else clients
    wrap = OWN_NOISE.get(variant, DifferentialPrivacyServerSideFixedClipping)
    return wrap(average, z, norm, normaliser, accountant=accountant)
