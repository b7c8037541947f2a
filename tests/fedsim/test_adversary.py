"""The adversary learns from its messages alone, and what it believes is the exact posterior."""

import copy
from collections.abc import Callable

import numpy as np
import pytest
import torch
from flwr.app import Context, Message, RecordDict
from scipy import stats

from adversaries.posterior import log_odds
from fedsim import adversary, client_app, federation, messages, owner, server_app
from fedsim.config import Config, from_run_config, to_run_config
from fedsim.mechanism import Neighbouring
from fedsim.randomness import SERVER, gaussian_noise
from fedsim.run_directory import Arrays, RunDirectory
from fedsim.runtimes.inprocess import FIRST_NODE, InProcessGrid

MODES = [
    {"federation.trust": trust, "privacy.neighbouring": neighbouring, "privacy.sensitivity": scale}
    for trust in ("central", "local")
    for neighbouring in ("add-remove", "replace")
    for scale in ("global", "local")
]


def _name(mode: dict[str, str]) -> str:
    return "-".join(mode.values())


class RecordingGrid(InProcessGrid):
    """Keeps a copy of every message to every node."""

    def __init__(self, config: Config) -> None:
        super().__init__(client_app.app, config.federation.owners, to_run_config(config))
        self.recorded: dict[int, list[tuple[str, RecordDict]]] = {}

    def _execute(self, message: Message) -> Message:
        metadata = message.metadata
        self.recorded.setdefault(metadata.dst_node_id - FIRST_NODE, []).append(
            (metadata.message_type, copy.deepcopy(message.content))
        )
        return super()._execute(message)


def _record(config: Config, directory: RunDirectory) -> tuple[RecordingGrid, Arrays, int]:
    grid = RecordingGrid(config)
    server_app.run(grid, config, directory)
    chosen = directory.read_json("facts.json")["challenge"]
    return grid, directory.read_arrays("transcript.npz"), chosen["adversary"]


def _only_round(
    grid: RecordingGrid, partition: int
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return theta_0, the aggregate (float64) and theta_1 as a node of a one-round run saw them."""
    first = next(c for kind, c in grid.recorded[partition] if kind == "train")
    final = next(c for kind, c in grid.recorded[partition] if kind == "evaluate")
    theta, aggregate, model = (
        torch.tensor(messages.only(content.array_records[name]))
        for content, name in (
            (first, messages.MODEL),
            (final, messages.AGGREGATE),
            (final, messages.MODEL),
        )
    )
    return theta, aggregate.double(), model


@pytest.mark.parametrize("mode", MODES, ids=_name)
def test_the_posterior_is_a_function_of_the_messages(
    mode: dict[str, str],
    small: Callable[..., Config],
    tmp_path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Replayed into a node with another seed, the recorded messages give the same belief.

    Every source of randomness (the world bits, the server's noise, the other owners' noise) hangs
    on the seed, so a back channel to any of them would show. The one thing that the node is given
    back is its own noise under local trust, which it drew itself and sent.
    """
    config = small(mode)
    grid, transcript, partition = _record(config, RunDirectory.create(tmp_path / "run", config))
    other = from_run_config(to_run_config(config) | {"run.seed": 12345})
    monkeypatch.setattr(
        client_app, "noise", lambda seed, *rest: owner.noise(config.run.seed, *rest)
    )
    context = Context(
        run_id=1,
        node_id=FIRST_NODE + partition,
        node_config={"partition-id": partition},
        state=RecordDict(),
        run_config=to_run_config(other),
    )
    for kind, content in grid.recorded[partition]:
        reply = client_app.app(Message(content, context.node_id, kind), context)
    replayed = messages.arrays_of(reply.content.array_records[client_app.MEMORY])
    np.testing.assert_array_equal(
        log_odds(config.audit.prior, replayed["ratios"]), transcript["log_odds"]
    )


@pytest.mark.parametrize("mode", MODES, ids=_name)
def test_world_bits_reach_the_challenged_owner_only(
    mode: dict[str, str], small: Callable[..., Config], tmp_path
) -> None:
    config = small(mode)
    directory = RunDirectory.create(tmp_path / "run", config)
    grid, _, _ = _record(config, directory)
    owner = directory.read_json("facts.json")["challenge"]["owner"]
    told = {
        partition
        for partition, received in grid.recorded.items()
        for _, content in received
        if messages.WORLDS in content
    }
    assert told == {owner}


@pytest.mark.parametrize("mode", MODES, ids=_name)
def test_the_log_odds_are_those_of_the_densities_of_everything_unknown(
    mode: dict[str, str], small: Callable[..., Config], tmp_path
) -> None:
    """One round, by brute force: Gaussian densities of the aggregate minus the own message."""
    config = small(mode | {"training.rounds": 1})
    directory = RunDirectory.create(tmp_path / "run", config)
    grid, transcript, partition = _record(config, directory)
    facts = directory.read_json("facts.json")
    chosen, z = facts["challenge"], facts["noise_multiplier"]
    known = federation.load(config)
    theta, aggregate, _ = _only_round(grid, partition)

    def total(world: bool) -> torch.Tensor:
        positions = np.arange(config.data.records)
        features, labels = known.members(positions)
        weights = torch.ones(len(theta), len(positions))
        weights[:, chosen["record"]] = float(world)
        f = known.clipper.clipped_sum(theta, features, labels, weights)
        if chosen["replacement"] is not None and not world:
            f += known.clipper.clipped_sum(theta, *known.pool([chosen["replacement"]]))
        return f

    f_d, f_d_prime = total(True), total(False)
    local_sensitivity = (f_d - f_d_prime).norm(dim=1)
    bound = config.training.clipping_norm * (
        2 if config.privacy.neighbouring is Neighbouring.REPLACE else 1
    )
    scale = local_sensitivity if mode["privacy.sensitivity"] == "local" else torch.tensor(bound)
    std = (z * scale).expand(len(theta))
    own_noise = torch.zeros_like(f_d)
    if mode["federation.trust"] == "local":
        standard = gaussian_noise(config.run.seed, range(len(theta)), 1, partition, f_d.shape[1])
        own_noise = std[:, None] * torch.from_numpy(standard)
        std = std * np.sqrt(config.federation.owners - 1)
    unknown = torch.distributions.Normal(0.0, std[:, None])
    densities = [unknown.log_prob(aggregate - own_noise - f).sum(1) for f in (f_d, f_d_prime)]
    np.testing.assert_allclose(
        transcript["log_odds"][:, 0], densities[0] - densities[1], rtol=1e-4, atol=1e-4
    )


@pytest.mark.parametrize("mode", MODES, ids=_name)
def test_the_aggregate_is_the_sum_of_the_world_plus_exactly_the_claimed_noise(
    mode: dict[str, str], small: Callable[..., Config], tmp_path
) -> None:
    """The mechanism itself, not what the adversary believes of it: every share, rebuilt."""
    config = small(mode | {"training.rounds": 1})
    directory = RunDirectory.create(tmp_path / "run", config)
    grid, transcript, partition = _record(config, directory)
    facts = directory.read_json("facts.json")
    chosen, z = facts["challenge"], facts["noise_multiplier"]
    known = federation.load(config)
    theta, aggregate, model = _only_round(grid, partition)
    worlds = torch.tensor(transcript["worlds"]).double()[:, None]
    weights = torch.ones(len(theta), config.data.records)
    weights[:, chosen["record"]] = 0
    rest = known.clipper.clipped_sum(theta, *known.members(np.arange(24)), weights)
    present, absent = owner.challenge_gradients(
        known, theta, chosen["record"], chosen["replacement"]
    )
    expected = rest + worlds * present + (1 - worlds) * absent
    scale = torch.full((len(theta),), config.training.clipping_norm, dtype=torch.float64)
    if mode["privacy.neighbouring"] == "replace":
        scale *= 2
    if mode["privacy.sensitivity"] == "local":
        scale = (present - absent).norm(dim=1)
    sources = [SERVER] if mode["federation.trust"] == "central" else [0, 1, 2]
    for source in sources:
        standard = gaussian_noise(config.run.seed, range(len(theta)), 1, source, rest.shape[1])
        expected += z * scale[:, None] * torch.from_numpy(standard)
    np.testing.assert_allclose(aggregate, expected.float().numpy(), rtol=1e-5, atol=2e-5)
    step = config.training.learning_rate / config.data.records
    stepped = theta.double() - step * aggregate
    np.testing.assert_array_equal(model, stepped.float().numpy())


@pytest.mark.parametrize("neighbouring", ["add-remove", "replace"])
@pytest.mark.parametrize("trust", ["central", "local"])
def test_a_whole_federation_plays_the_game_that_theory_predicts(
    trust: str, neighbouring: str, small: Callable[..., Config], run: Callable[[Config], Arrays]
) -> None:
    config = small(
        {"federation.trust": trust, "privacy.neighbouring": neighbouring}
        | {"privacy.sensitivity": "local", "privacy.rho-beta": 0.0, "training.rounds": 4}
        | {"privacy.noise-multiplier": 2.0, "trials.count": 600, "trials.cohort": 300}
        | {"federation.partition": "dirichlet", "run.seed": 5}
    )
    transcript = run(config)
    effective = 2.0 * (np.sqrt(2) if trust == "local" else 1.0)
    mu = np.sqrt(4) / effective
    final, worlds = transcript["log_odds"][:, -1], transcript["worlds"]
    assert stats.kstest(final[worlds], "norm", args=(mu**2 / 2, mu)).pvalue > 1e-3
    assert stats.kstest(final[~worlds], "norm", args=(-(mu**2) / 2, mu)).pvalue > 1e-3
    wins = int(((final > 0) == worlds).sum())
    assert stats.binomtest(wins, 600, stats.norm.cdf(mu / 2)).pvalue > 1e-3


def test_a_lost_state_is_an_error_and_not_a_wrong_belief() -> None:
    memory = adversary.Memory.empty(2)
    with pytest.raises(RuntimeError, match="did not see begin"):
        adversary.observe(memory, torch.zeros(2, 3))


def test_memory_survives_its_arrays() -> None:
    memory = adversary.Memory.empty(2)
    back = adversary.Memory.from_arrays(memory.to_arrays(), torch.device("cpu"))
    assert back.pending is None
    assert back.ratios.shape == (2, 0)
