"""Reading the noise gives the belief that the adversary has to compute its way to."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from adversaries.attacks.posterior import hypotheses, log_likelihood_ratio
from fedsim import client_app, server_app
from fedsim.configuration import to_run_config
from fedsim.federation.protocol import messages, replies
from fedsim.federation.runs.run_directory import RunDirectory
from fedsim.federation.runtimes.inprocess import InProcessGrid
from fedsim.federation.server.plan import preflight
from fedsim.game.mechanisms.step import Step, UnknownNoise, join
from fedsim.game.observers.disclosed_noise import measure
from fedsim.privacy.trust import Vantage

MODES = [
    {
        "federation.trust": trust,
        "privacy.neighbouring": neighbouring,
        "privacy.sensitivity": scale,
        "training.sampling-rate": rate,
    }
    for trust in ("central", "local")
    for neighbouring in ("add-remove", "replace")
    for scale in ("global", "local")
    for rate in (1.0, 0.4)
    # No one distance describes a sampled pair: the configuration refuses that.
    if not (neighbouring == "replace" and scale == "local" and rate < 1)
]

HALF = [
    pytest.param(mode, marks=pytest.mark.slow if index.bit_count() % 2 else ())
    for index, mode in enumerate(MODES)
]
"""Half of the modes, in which every two choices meet, by default; the others are slow tests."""


@settings(max_examples=50)
@given(
    st.integers(0, 2**30),
    st.sampled_from([1.0, 0.9, 0.1]),
    st.floats(0.1, 10),
    st.booleans(),
    st.integers(1, 3),
)
def test_the_measurement_is_the_posterior_of_what_the_noise_makes_of_the_sum(
    seed, rate, sigma, replaced, parts
):
    generator = torch.Generator().manual_seed(seed)
    trials, size = 6, 10

    def draw(*shape):
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    rest, present = draw(2, trials, size)
    absent = draw(trials, size) if replaced else None
    noises = sigma / np.sqrt(parts) * draw(parts, trials, size)
    worlds = torch.rand(trials, generator=generator) < 0.5
    taking_part = torch.rand(trials, generator=generator) < rate
    std = torch.full((trials,), sigma, dtype=torch.float64)
    other = torch.zeros_like(present) if absent is None else absent
    contribution = torch.where(worlds[:, None], present, other) * taking_part[:, None]
    aggregate = rest + contribution + noises.sum(0)
    expected = log_likelihood_ratio(hypotheses(rest, present, absent, std, rate), aggregate)
    coins = None if rate == 1 else taking_part
    sources = frozenset(range(parts))
    unknowns = {Vantage.PARTICIPANT: UnknownNoise(sources, std)}
    heard = [*enumerate(noises), (parts, draw(trials, size))]  # and one that hides nothing
    step = measure(present, absent, heard, worlds, coins, unknowns, rate)[Vantage.PARTICIPANT]
    torch.testing.assert_close(step.ratios, expected, rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(step.sensitivities, (present - other).norm(dim=1))
    torch.testing.assert_close(step.present_norms, present.norm(dim=1))
    torch.testing.assert_close(step.absent_norms, other.norm(dim=1))


def test_a_step_without_a_difference_says_nothing_even_without_noise():
    same = torch.ones(2, 3, dtype=torch.float64)
    nothing = torch.zeros(2, dtype=torch.float64)
    worlds = torch.tensor([True, False])
    for rate in (1.0, 0.5):
        for sources in (frozenset({0}), frozenset[int]()):
            unknowns = {Vantage.SERVER: UnknownNoise(sources, nothing)}
            steps = measure(same, same, [(0, 0 * same)], worlds, None, unknowns, rate)
            assert steps[Vantage.SERVER].ratios.tolist() == [0.0, 0.0]


@pytest.mark.parametrize(
    ("told", "reason"),
    [
        ({0: 7}, r"noise of \[1\], which hides the target from participant, was not"),
        ({0: 7, 2: 7}, r"noise of \[1\], which"),
        # One number for all coordinates would be broadcast.
        ({0: 7, 1: 1}, r"noise of source 1 has shape \[5, 1\]"),
    ],
)
def test_noise_that_is_missing_or_of_another_shape_is_no_belief(told, reason):
    """A belief without some of the noise would be more certain than anybody can be."""
    std = torch.ones(5, dtype=torch.float64)
    unknowns = {Vantage.PARTICIPANT: UnknownNoise(frozenset({0, 1}), std)}
    worlds, present = torch.arange(5) < 2, torch.ones(5, 7, dtype=torch.float64)

    def measured(shapes):
        noises = [(j, torch.ones(5, size, dtype=torch.float64)) for j, size in shapes.items()]
        return measure(present, None, noises, worlds, None, unknowns, 1.0)

    measured({0: 7, 1: 7, 2: 7})
    with pytest.raises(ValueError, match=reason):
        measured(told)


def test_each_vantage_hears_the_noise_that_hides_from_it_alone():
    generator = torch.Generator().manual_seed(0)
    present, *noises = torch.randn(4, 5, 7, generator=generator, dtype=torch.float64)
    worlds = torch.tensor([True, False, True, False, True])
    std = torch.full((5,), 2.0, dtype=torch.float64)
    unknowns = {
        Vantage.SERVER: UnknownNoise(frozenset({1}), std),
        Vantage.PARTICIPANT: UnknownNoise(frozenset({0, 2}), 3 * std),
    }
    together = measure(present, None, enumerate(noises), worlds, None, unknowns, 1.0)
    for vantage, unknown in unknowns.items():
        own = [(source, noises[source]) for source in unknown.sources]
        alone = measure(present, None, own, worlds, None, {vantage: unknown}, 1.0)[vantage]
        torch.testing.assert_close(together[vantage].ratios, alone.ratios)
        assert together[vantage].noise_stds.equal(unknown.noise_std)


def test_who_sees_the_sum_without_noise_is_certain():
    present = torch.ones(4, 3, dtype=torch.float64)
    worlds = torch.tensor([True, False, True, False])
    coins = torch.tensor([True, True, False, False])
    unknowns = {Vantage.SERVER: UnknownNoise(frozenset(), torch.zeros(4, dtype=torch.float64))}
    noise = [(0, torch.ones_like(present))]

    def ratios(absent, rate):
        taking_part = coins if rate < 1 else None
        found = measure(present, absent, noise, worlds, taking_part, unknowns, rate)
        return found[Vantage.SERVER].ratios.tolist()

    assert ratios(None, 1.0) == [math.inf, -math.inf, math.inf, -math.inf]
    assert ratios(2 * present, 1.0) == [math.inf, -math.inf, math.inf, -math.inf]
    # A record that is not there might not have taken part.
    assert ratios(None, 0.4) == pytest.approx([math.inf, *[math.log(0.6)] * 3])
    assert ratios(2 * present, 0.4) == [math.inf, -math.inf, 0.0, 0.0]


def test_steps_are_joined_under_the_transcripts_names():
    column = torch.ones(2, dtype=torch.float64)
    joined = join([Step(column * times, *[0 * column] * 4).learnt for times in (1, 2)])
    assert joined["ratios"].tolist() == [[1.0, 2.0], [1.0, 2.0]]
    assert list(joined) == [
        "ratios",
        "sensitivities",
        "noise_stds",
        "present_norms",
        "absent_norms",
    ]


LEFT = ("residual_", "batch_sizes")


@pytest.mark.parametrize("mode", HALF, ids=lambda mode: "-".join(map(str, mode.values())))
def test_the_adversary_and_the_auditor_agree(mode, small, run):
    fixed = {"privacy.rho-beta": 0.0, "privacy.noise-multiplier": 1.5, "training.momentum": 0.5}
    fixed["audit.vantages"] = "all"
    config = small(mode | fixed)
    disclosed_noise = small(mode | fixed | {"audit.mode": "oracle"})
    participant, auditor = run(config), run(disclosed_noise)
    # What is left of an aggregate when all that is known is subtracted, only who knows it can say.
    assert set(auditor) == {name for name in participant if not name.startswith(LEFT)}
    np.testing.assert_allclose(auditor["log_odds"], participant["log_odds"], rtol=0, atol=1e-6)
    assert np.abs(participant["log_odds"]).max() > 0.1
    for name in ("log_odds_server", "log_odds_released_model"):
        np.testing.assert_allclose(auditor[name], participant[name], rtol=0, atol=1e-6)
        assert np.abs(participant[name]).max() > 0.1
    certain = np.isinf(participant["log_odds_server"])
    assert certain.any() == (mode["federation.trust"] == "central")
    # The federation itself is the same, to the last bit.
    for name in ("final_models", "worlds", "true_positive_rate", "challenge_is_member"):
        np.testing.assert_array_equal(auditor[name], participant[name])
    steps = ("sensitivities", "noise_stds", "present_norms", "absent_norms")
    for name in (*steps, *(f"{name}_server" for name in steps)):
        assert auditor[name].shape == participant[name].shape
        np.testing.assert_allclose(auditor[name], participant[name], rtol=1e-6, err_msg=name)


def test_beliefs_do_not_depend_on_the_size_of_the_batch(small, run):
    mode = {"audit.mode": "oracle", "training.sampling-rate": 0.4}
    whole, parts = run(small(mode)), run(small(mode | {"trials.batch": 3}))
    np.testing.assert_allclose(parts["log_odds"], whole["log_odds"], rtol=1e-5, atol=1e-5)


def test_noise_of_the_operating_system_can_be_measured_too(small, run):
    mode = {"audit.mode": "oracle", "privacy.noise-source": "system"}
    config = small(mode | {"training.sampling-rate": 0.4, "federation.trust": "local"})
    first, second = run(config), run(config)
    assert np.isfinite(first["log_odds"]).all()
    assert not np.array_equal(first["log_odds"], second["log_odds"])


def _replies(config, directory):
    """Return, for every trained reply, its partition and whether it holds a measurement."""
    found = []

    class Watching(InProcessGrid):
        def execute(self, message):
            reply = super().execute(message)
            if message.metadata.message_type == "train":
                records = reply.content.array_records
                partition = int(replies.metric(reply, "partition"))
                found.append((partition, messages.MEASUREMENT in records))
            return reply

    grid = Watching(client_app.app, config.federation.clients, to_run_config(config))
    server_app.carry_out(grid, preflight(config), directory)
    return found


@pytest.mark.parametrize("trust", ["central", "local"])
def test_only_an_oracle_audit_measures_and_never_the_adversarys_own_noise(trust, small, tmp_path):
    config = small({"federation.trust": trust})
    directory = RunDirectory.create(tmp_path / "participant", config)
    assert not any(measured for _, measured in _replies(config, directory))
    config = small({"federation.trust": trust, "audit.mode": "oracle"})
    directory = RunDirectory.create(tmp_path / "oracle", config)
    measured = {partition for partition, measured in _replies(config, directory) if measured}
    chosen = directory.read_json("facts.json")["challenge"]
    everyone_else = {0, 1, 2} - {chosen["adversary"]}
    assert measured == ({chosen["client"]} if trust == "central" else everyone_else)
