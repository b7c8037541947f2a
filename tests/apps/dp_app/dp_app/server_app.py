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
    DifferentialPrivacyClientSideAdaptiveClipping,
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

    share = 0.1

    def _add_noise_to_aggregated_arrays(self, aggregated_arrays: ArrayRecord) -> ArrayRecord:
        nominal = self.noise_multiplier
        self.noise_multiplier = nominal * self.share
        try:
            return super()._add_noise_to_aggregated_arrays(aggregated_arrays)
        finally:
            self.noise_multiplier = nominal


class TwiceTheNoise(TenthOfTheNoise):
    """Adds twice the noise that it is configured with."""

    share = 2.0


class NoneAtFirst(DifferentialPrivacyServerSideFixedClipping):
    """Adds no noise in the first round, and 1.3 times the configured noise from then on."""

    rounds = 0

    def _add_noise_to_aggregated_arrays(self, aggregated_arrays: ArrayRecord) -> ArrayRecord:
        self.rounds += 1
        nominal = self.noise_multiplier
        self.noise_multiplier = nominal * (0.0 if self.rounds == 1 else 1.3)
        try:
            return super()._add_noise_to_aggregated_arrays(aggregated_arrays)
        finally:
            self.noise_multiplier = nominal


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


class Moving(DifferentialPrivacyServerSideFixedClipping):
    """Has the noise that the round asks for; `share` and `divisor` are of the configured values."""

    nominal: tuple[float, int] | None = None

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        self.nominal = self.nominal or (self.noise_multiplier, self.num_sampled_clients)
        multiplier, clients = self.nominal
        self.noise_multiplier = multiplier * self.share(server_round)
        self.num_sampled_clients = clients * self.divisor(server_round)
        return super().configure_train(server_round, arrays, config, grid)

    def share(self, server_round: int) -> float:
        """Return the round's share of the noise multiplier."""
        return 1.0

    def divisor(self, server_round: int) -> int:
        """Return the factor on the number of clients that divides the noise."""
        return 1


class LessAtFirst(Moving):
    """Configures a tenth of its noise in the first two rounds."""

    def share(self, server_round: int) -> float:
        return 0.1 if server_round <= 2 else 1.0


class ConfiguresNoneAtFirst(Moving):
    """Configures no noise in the first round."""

    def share(self, server_round: int) -> float:
        return 0.0 if server_round == 1 else 1.0


class Lowered(Moving):
    """Configures a tenth of its noise in every round."""

    def share(self, server_round: int) -> float:
        return 0.1


class GrowingClients(Moving):
    """Divides its noise by ten times the clients in the first two rounds."""

    def divisor(self, server_round: int) -> int:
        return 10 if server_round <= 2 else 1


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
    "noise-less-at-first": LessAtFirst,
    "noise-none-at-first": ConfiguresNoneAtFirst,
    "noise-lowered": Lowered,
    "clients-growing": GrowingClients,
    "sent-without-noise": SentWithoutNoise,
    "sent-moved": SentMoved,
    "own-start": OwnStart,
    "own-start-quiet": OwnStartQuiet,
    "noise-too-small": TenthOfTheNoise,
    "noise-loud": TwiceTheNoise,
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
            record(strategy, path, app="dp-app", **_declared(config))
        strategy.start(grid, arrays, num_rounds=rounds)


def _declared(config: Any) -> dict[str, float]:
    """Return what cannot be read off a strategy of one's own, if it is to be declared."""
    if not config["declared"]:
        return {}
    names = ("clipping-norm", "noise-multiplier")
    return {name.replace("-", "_"): float(config[name]) for name in names}


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
    if variant == "none" or variant.startswith("local-dp"):
        return average
    if variant in ("adaptive", "client-adaptive"):
        wrap = {
            "adaptive": DifferentialPrivacyServerSideAdaptiveClipping,
            "client-adaptive": DifferentialPrivacyClientSideAdaptiveClipping,
        }[variant]
        return wrap(average, z, clients, initial_clipping_norm=norm, clipped_count_stddev=2 * z)
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
