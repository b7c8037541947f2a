"""PAC noise: what is released of a secret candidate, and what the adversary makes of it."""

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import logsumexp
from scipy.stats import kstest

from adversaries.attacks.posterior import hypotheses, log_likelihood_ratio
from adversaries.statistics import gaussian
from fedsim import client_app, server_app
from fedsim.audits.run.audited_run import AuditedRun
from fedsim.config import Config, Scalar, to_run_config
from fedsim.federation.runs.run_directory import Arrays, RunDirectory
from fedsim.federation.runtimes.inprocess import InProcessGrid
from fedsim.federation.server.plan import preflight
from fedsim.game import challenge, client, federation
from fedsim.game.mechanisms import privacy
from fedsim.privacy import pac
from fedsim.privacy.noise.pac_release import (
    FLOOR,
    PacRelease,
    halves,
    log_odds,
    pair,
    release,
    secrets,
)

Make = Callable[..., Config]
Run = Callable[[Config], Arrays]

PAC: dict[str, Scalar] = {
    "privacy.noise": "pac",
    "privacy.mutual-information": 0.3,
    "privacy.rho-beta": 0.0,
    "audit.mode": "oracle",
}
HALVES = PAC | {"privacy.pac-prior": "halves", "privacy.pac-draws": 6}


def _released(
    candidates: np.ndarray,
    information: float = 0.3,
    *,
    fit: bool = False,
    posterior: np.ndarray | None = None,
    seed: int = 0,
) -> tuple[PacRelease, np.ndarray]:
    trials, count, _ = candidates.shape
    random = np.random.default_rng(seed)
    secret = random.integers(count, size=trials)
    if posterior is None:
        posterior = np.full((trials, count), 1 / count)
    normals = random.standard_normal((trials, count))
    return release(candidates, secret, np.log(posterior), information, normals, fit), secret


# Which records a candidate has.


@given(st.integers(0, 2**30), st.integers(0, 5), st.integers(0, 40), st.integers(2, 20))
def test_every_record_is_in_exactly_half_of_the_candidates(
    seed: int, number: int, records: int, pairs: int
) -> None:
    masks = halves(seed, number, records, 2 * pairs)
    assert masks.shape == (2 * pairs, records)
    assert np.all(masks.sum(0) == pairs)
    assert np.all(masks[::2] ^ masks[1::2])
    assert np.all(masks[::2].sum(1) == records // 2)


def test_halves_depend_on_the_seed_and_the_client_and_are_not_all_alike() -> None:
    first = halves(0, 0, 30, 8)
    assert np.array_equal(first, halves(0, 0, 30, 8))
    assert not np.array_equal(first, halves(1, 0, 30, 8))
    assert not np.array_equal(first, halves(0, 1, 30, 8))
    assert len(np.unique(first, axis=0)) == 8


def test_a_pair_differs_in_the_challenge_alone() -> None:
    assert pair(3, 1, False).tolist() == [[True, True, True], [True, False, True]]
    assert pair(2, 0, True).tolist() == [[True, True, False], [False, True, True]]


def test_the_secret_is_uniform_and_agrees_with_the_world() -> None:
    worlds = challenge.worlds(0, 4000, "both")
    membership = np.array([True, False, False, True])
    chosen = secrets(0, range(4000), worlds, membership)
    assert np.array_equal(membership[chosen], worlds)
    counts = np.bincount(chosen)
    # A share of 1/4 of 4000 has standard deviation 27.
    assert np.abs(counts - 1000).max() < 4 * 27
    assert np.array_equal(chosen[1000:], secrets(0, range(1000, 4000), worlds[1000:], membership))


# The release.


@given(st.integers(0, 2**30), st.floats(1e-3, 10))
def test_the_noise_of_a_pair_lies_along_its_difference_and_is_as_large_as_budgeted(
    seed: int, information: float
) -> None:
    random = np.random.default_rng(seed)
    candidates = random.standard_normal((50, 2, 7))
    released, secret = _released(candidates, information, seed=seed)
    difference = candidates[:, 0] - candidates[:, 1]
    norms = np.linalg.norm(difference, axis=1)
    np.testing.assert_allclose(released.spread, norms)
    np.testing.assert_allclose(released.noise_std, norms / math.sqrt(8 * information))
    np.testing.assert_allclose(released.information, math.log1p(2 * information) / 2)
    noise = released.total - candidates[np.arange(50), secret]
    along = (noise * difference).sum(1) / norms
    np.testing.assert_allclose(noise, along[:, None] * difference / norms[:, None], atol=1e-9)


@given(st.integers(0, 2**30), st.floats(1e-3, 10))
def test_the_belief_about_a_pair_is_the_usual_posterior(seed: int, information: float) -> None:
    candidates = np.random.default_rng(seed).standard_normal((20, 2, 5))
    released, _ = _released(candidates, information, seed=seed)
    present, absent = torch.from_numpy(candidates).unbind(1)
    expected = log_likelihood_ratio(
        hypotheses(absent, present - absent, None, torch.from_numpy(released.noise_std)),
        torch.from_numpy(released.total),
    )
    odds = log_odds(released.log_posterior, np.array([True, False]))
    np.testing.assert_allclose(odds, expected.numpy(), rtol=1e-9, atol=1e-9)


@given(st.integers(0, 2**30), st.booleans())
def test_the_belief_about_several_candidates_is_bayes_rule_by_the_noises_covariance(
    seed: int, fit: bool
) -> None:
    random = np.random.default_rng(seed)
    candidates = random.standard_normal((3, 4, 3))  # they span the whole space
    prior = random.dirichlet(np.ones(4), 3)
    information = 0.4
    released, _ = _released(candidates, information, fit=fit, posterior=prior, seed=seed)
    for trial in range(3):
        shaped = (1 - FLOOR) * prior[trial] + FLOOR / 4 if fit else np.full(4, 0.25)
        budget = (1 - FLOOR) * information if fit else information
        covariance = np.cov(candidates[trial].T, ddof=0, aweights=shaped)
        values, directions = np.linalg.eigh(covariance)
        roots = np.sqrt(values)
        noise = directions @ np.diag(roots * roots.sum() / (2 * budget)) @ directions.T
        apart = released.total[trial] - candidates[trial]
        scores = -np.einsum("ip,pq,iq->i", apart, np.linalg.inv(noise), apart) / 2
        expected = np.log(prior[trial]) + scores
        expected -= logsumexp(expected)
        np.testing.assert_allclose(released.log_posterior[trial], expected, rtol=1e-6, atol=1e-6)
        believed = np.cov(
            candidates[trial].T, ddof=0, aweights=prior[trial] if fit else np.full(4, 0.25)
        )
        told = np.linalg.slogdet(np.eye(3) + believed @ np.linalg.inv(noise))[1] / 2
        assert released.information[trial] == pytest.approx(told, rel=1e-6)
        assert released.noise_std[trial] == pytest.approx(math.sqrt(np.trace(noise) / 3))


def test_the_noise_has_the_covariance_that_was_budgeted() -> None:
    random = np.random.default_rng(4)
    one = random.standard_normal((1, 5, 3))
    candidates = np.repeat(one, 40_000, axis=0)
    released, secret = _released(candidates, 0.5)
    noise = released.total - candidates[np.arange(40_000), secret]
    values, directions = np.linalg.eigh(np.cov(one[0].T, ddof=0))
    along = noise @ directions
    expected = pac.anisotropic_variances(values, 0.5)
    np.testing.assert_allclose(along.var(0), expected, rtol=0.04)
    correlations = np.corrcoef(along.T)[np.triu_indices(3, 1)]
    assert np.abs(correlations).max() < 4 / math.sqrt(40_000)
    assert kstest(along[:, 0] / math.sqrt(expected[0]), "norm").pvalue > 1e-3


@given(st.integers(0, 2**30), st.integers(2, 6), st.floats(1e-3, 20))
def test_a_fitted_round_keeps_its_budget_under_any_posterior(
    seed: int, count: int, information: float
) -> None:
    random = np.random.default_rng(seed)
    candidates = random.standard_normal((5, count, 8))
    posterior = random.dirichlet(np.full(count, 0.1), 5) + 1e-30
    posterior /= posterior.sum(1, keepdims=True)
    released, _ = _released(candidates, information, fit=True, posterior=posterior, seed=seed)
    assert np.all(released.information <= information * (1 + 1e-6))


def test_noise_that_ignores_the_posterior_would_break_its_budget() -> None:
    """Two likely candidates far apart, and many unlikely ones between them."""
    candidates = np.zeros((1, 10, 1))
    candidates[0, :2, 0] = -1, 1
    posterior = np.full((1, 10), 1e-6)
    posterior[0, :2] = 0.5 - 4e-6
    even = pac.spectrum(candidates)
    variances = pac.anisotropic_variances(even.eigenvalues, 0.05)
    assert pac.posterior_information(even.coordinates, posterior, variances)[0] > 0.15
    fitted, _ = _released(candidates, 0.05, fit=True, posterior=posterior)
    assert fitted.information[0] <= 0.05


def test_candidates_that_are_alike_are_released_as_they_are_and_say_nothing() -> None:
    candidates = np.repeat(np.random.default_rng(0).standard_normal((3, 1, 4)), 6, axis=1)
    released, _ = _released(candidates, fit=True)
    np.testing.assert_allclose(released.total, candidates[:, 0], rtol=1e-12)
    np.testing.assert_allclose(released.log_posterior, -math.log(6), rtol=1e-12)
    assert np.all(released.information == 0)
    assert np.all(released.noise_std == 0)


def test_the_order_of_the_candidates_does_not_shape_the_noise() -> None:
    """Eigenvectors have no sign of their own: what is released must not hang on it."""
    candidates = np.random.default_rng(0).standard_normal((2, 4, 6))
    normals, secret = np.random.default_rng(1).standard_normal((2, 4)), np.array([1, 3])
    even, order = np.full((2, 4), -math.log(4)), np.array([2, 0, 3, 1])
    first = release(candidates, secret, even, 0.2, normals, True)
    places = np.argsort(order)[secret]
    second = release(candidates[:, order], places, even, 0.2, normals[:, order], True)
    np.testing.assert_allclose(second.total, first.total, rtol=1e-9)


@pytest.mark.parametrize("information", [1e-12, 700.0])
def test_extreme_budgets_give_numbers(information: float) -> None:
    candidates = np.random.default_rng(0).standard_normal((4, 6, 9))
    released, _ = _released(candidates, information, fit=True)
    for array in (released.total, released.log_posterior, released.information):
        assert np.isfinite(array).all()


@pytest.mark.parametrize("fit", [False, True])
def test_a_simulated_game_is_not_won_more_often_than_the_budget_allows(fit: bool) -> None:
    """The candidates of later rounds depend on what was released; two of six are the record's."""
    random, trials, rounds, budget = np.random.default_rng(5), 20_000, 4, 0.2
    count = 6 if fit else 2
    membership = np.arange(count) % 2 == 0
    worlds = random.permutation(np.arange(trials) % 2 == 0)
    secret = secrets(1, range(trials), worlds, membership)
    posterior = np.full((trials, count), -math.log(count))
    model = np.zeros((trials, 3))
    told = np.zeros(trials)
    for _ in range(rounds):
        base = random.standard_normal((1, count, 3)) + np.tanh(model)[:, None]
        candidates = base * (1 + np.exp(posterior))[..., None]
        released = release(
            candidates,
            secret,
            posterior,
            budget / rounds,
            random.standard_normal((trials, count)),
            fit,
        )
        posterior, model = released.log_posterior, released.total
        told += released.information
    odds = log_odds(posterior, membership)
    success = ((odds > 0) == worlds).mean()
    assert told.mean() <= budget
    assert 0.5 + 0.02 < success <= pac.success_bound(told.mean()) + 4 * 0.5 / math.sqrt(trials)
    whole = (posterior.argmax(1) == secret).mean()
    assert whole <= pac.success_bound(told.mean(), 1 / count) + 4 * 0.5 / math.sqrt(trials)
    # Posteriors are calibrated: of those who believe p, the share p is right.
    belief = 1 / (1 + np.exp(-odds))
    assert abs(belief.mean() - 0.5) < 0.02
    assert abs(belief[worlds].mean() - np.square(belief).mean() / belief.mean()) < 0.02


# In the federation.


def test_a_client_sums_every_candidate_as_if_it_were_alone(small: Make) -> None:
    config = small(HALVES | {"run.max-memory": "40MB"})
    known, parameters = (
        federation.load(config.experiment),
        torch.randn(5, 650, generator=_generator()),
    )
    masks = client.candidate_masks(
        config.game,
        known,
        0,
        None,
        None,
        adversary=False,
    )
    sums = client.candidate_sums(known, 0, parameters, masks)
    assert sums.shape == (5, 6, 650)
    for candidate, mask in enumerate(masks):
        features, labels = known.members(known.owned_by(0)[mask])
        alone = known.clipper.clipped_sum(parameters, features, labels)
        torch.testing.assert_close(sums[:, candidate], alone, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("neighbouring", ["add-remove", "replace"])
def test_the_pair_of_the_target_client_is_its_sum_in_either_world(
    neighbouring: str, small: Make
) -> None:
    config = small(PAC | {"privacy.neighbouring": neighbouring})
    known, chosen = federation.load(config.experiment), challenge.choose(config.experiment)
    parameters = torch.randn(4, 650, generator=_generator())
    where = (known, chosen.client, parameters)
    masks = client.candidate_masks(
        config.game,
        known,
        chosen.client,
        chosen.record,
        chosen.replacement,
        adversary=False,
    )
    sums = client.candidate_sums(*where, masks, chosen.replacement)
    for candidate, world in enumerate((True, False)):
        worlds = torch.full((4,), world)
        alone = client.clean_sum(*where, chosen.record, chosen.replacement, worlds)
        torch.testing.assert_close(sums[:, candidate], alone, rtol=1e-5, atol=1e-5)


def _generator() -> torch.Generator:
    return torch.Generator().manual_seed(0)


@pytest.mark.parametrize("neighbouring", ["add-remove", "replace"])
def test_a_run_on_a_pair_plays_the_gaussian_game_of_its_budget(
    neighbouring: str, small: Make, run: Run
) -> None:
    changes = {"trials.count": 600, "trials.batch": 300, "privacy.neighbouring": neighbouring}
    transcript = run(small(PAC | changes))
    mu = math.sqrt(8 * 0.3)
    ratios = transcript["sensitivities"] / transcript["noise_stds"]
    np.testing.assert_allclose(np.square(ratios).sum(1), mu**2, rtol=1e-9)
    np.testing.assert_allclose(transcript["mutual_information"], math.log1p(2 * 0.1) / 2)
    signs = np.where(transcript["worlds"], 1, -1)
    deviations = transcript["log_odds"][:, -1] * signs / mu - mu / 2
    assert kstest(deviations, "norm").pvalue > 1e-3
    advantage = (np.sign(transcript["log_odds"][:, -1]) * signs).mean()
    predicted = gaussian.advantage(mu)
    assert abs(advantage - predicted) < 4 / math.sqrt(600)
    assert predicted < pac.advantage_bound(0.3)
    norms = transcript["present_norms"], transcript["absent_norms"]
    assert np.all(norms[0] > 0)
    assert np.all(norms[1] == 0) == (neighbouring == "add-remove")


def test_a_pairs_challenge_is_as_far_apart_as_without_pac_noise(small: Make, run: Run) -> None:
    """In the first round both runs are at the same models."""
    usual = run(small({"training.rounds": 1, "audit.mode": "oracle"}))
    shaped = run(small(PAC | {"training.rounds": 1}))
    np.testing.assert_allclose(shaped["sensitivities"], usual["sensitivities"], rtol=1e-4)


@pytest.mark.parametrize("prior", [PAC, HALVES], ids=["pair", "halves"])
def test_results_do_not_depend_on_the_size_of_the_batch(
    prior: dict[str, Scalar], small: Make, run: Run
) -> None:
    whole, parts = run(small(prior)), run(small(prior | {"trials.batch": 3}))
    for name in ("log_odds", "mutual_information", "noise_stds"):
        np.testing.assert_allclose(parts[name], whole[name], rtol=1e-4, atol=1e-4)


def _reported(config: Config, path: Path) -> tuple[dict[str, Any], Arrays, RunDirectory]:
    directory = RunDirectory.create(path, config)
    grid = InProcessGrid(client_app.app, config.federation.clients, to_run_config(config))
    server_app.carry_out(grid, preflight(config), directory)
    return directory.read_json("report.json"), directory.read_arrays("transcript.npz"), directory


def test_the_report_of_a_pair_bounds_the_success_and_claims_no_dp(
    small: Make, tmp_path: Path
) -> None:
    report, transcript, directory = _reported(
        small(PAC | {"trials.count": 200, "trials.batch": 200}), tmp_path / "run"
    )
    assert report["alarms"] == 0
    assert report["bounds"]["epsilon"] == "Infinity"
    assert report["bounds"]["rho_alpha"] == 1.0
    assert report["mechanism"]["dp_guarantee"] is False
    assert "hides nothing along directions" in report["mechanism"]["dp_note"]
    said = report["pac"]
    assert said["mutual_information"] == 0.3
    assert said["success_bound"] == pac.success_bound(0.3)
    assert said["advantage_bound"] == pac.advantage_bound(0.3)
    assert said["equivalent_epsilon"] == pac.epsilon_of_success(said["success_bound"], 0.005)
    assert said["realised_information"] == pytest.approx(3 * math.log1p(0.2) / 2)
    assert said["candidate_success_bound"] is None
    assert said["success"] == (1 + report["empirical"]["advantage"]) / 2
    assert report["prediction"]["advantage"] == pytest.approx(gaussian.advantage(math.sqrt(2.4)))
    page = (directory.path / "report.html").read_text()
    assert "an average over the stated prior: it does not hold for each person" in page
    assert "PAC noise, not a DP guarantee." in page
    for wrong in ("no noise hides the record", "is slack", "ε ≤ ∞", "Naming which"):
        assert wrong not in page, wrong
    assert "on the data D with the" in page
    assert "mutual_information" in transcript


@pytest.mark.figures
def test_the_report_of_halves_is_written_without_a_prediction(small: Make, tmp_path: Path) -> None:
    config = small(HALVES | {"trials.count": 300, "trials.batch": 300})
    report, transcript, directory = _reported(config, tmp_path / "run")
    assert report["alarms"] == 0
    assert report["prediction"]["advantage"] is None
    assert report["membership_inference"]["yeom"]["advantage"] is None
    assert report["empirical"]["epsilon"]["sensitivity"] is None
    assert report["pac"]["candidates"] == 6
    assert report["pac"]["realised_information"] <= 0.3
    low, high = report["empirical"]["advantage_interval"]
    assert low <= report["pac"]["advantage_bound"]
    # Six candidates and a nat or less: the adversary learns something.
    assert high > 0.05
    assert np.all(transcript["mutual_information"] <= 0.1)
    assert np.all(transcript["noise_stds"] > 0)
    page = (directory.path / "report.html").read_text()
    assert "random halves of the records" in page
    # The game is about six candidates: nobody is told D and D'.
    assert "on a secret candidate: one of 6 random halves" in page
    assert "The adversary knows both" not in page
    # The largest p with KL(p || 1/6) <= 0.3 nats.
    bound = report["pac"]["candidate_success_bound"]
    assert bound * math.log(6 * bound) + (1 - bound) * math.log((1 - bound) * 6 / 5) == (
        pytest.approx(0.3)
    )
    assert 1 / 6 < bound < report["pac"]["success_bound"]
    assert "Naming which of the 6 candidates" in page
    assert (directory.path / "figures" / "log-odds.svg").exists()


@pytest.mark.parametrize("prior", [PAC, HALVES], ids=["pair", "halves"])
def test_next_to_no_information_leaves_the_adversary_a_coin(
    prior: dict[str, Scalar], small: Make, run: Run
) -> None:
    config = small(
        prior | {"privacy.mutual-information": 1e-9, "trials.count": 400, "trials.batch": 400}
    )
    transcript = run(config)
    final = transcript["log_odds"][:, -1]
    assert np.abs(final).max() < 1e-3
    advantage = (np.sign(final) * np.where(transcript["worlds"], 1, -1)).mean()
    assert abs(advantage) < 4 / math.sqrt(400)


def test_a_budget_of_information_calibrates_isotropic_noise_too(small: Make) -> None:
    changes = {"privacy.rho-beta": 0.0, "privacy.mutual-information": 0.2}
    for more in ({}, {"training.sampling-rate": 0.2}, {"federation.trust": "local"}):
        config = small(changes | more)
        mechanism = privacy.mechanism(config.scheme, privacy.noise_multiplier(config.scheme))
        told = pac.mutual_information(mechanism)
        assert told == pytest.approx(0.2, rel=1e-9)


def test_an_adversary_that_wins_more_often_than_the_budget_allows_raises_an_alarm(
    small: Make, tmp_path: Path
) -> None:
    from fedsim.audits.run import audit  # noqa: PLC0415

    config = small(PAC | {"trials.count": 200, "trials.batch": 200})
    report, transcript, directory = _reported(config, tmp_path / "run")
    facts = directory.read_json("facts.json")
    certain = np.where(transcript["worlds"], 3.0, -3.0)[:, None] * np.ones((1, 3))
    alarmed = audit.assemble(
        AuditedRun(config, facts, transcript | {"log_odds": certain}, 0.95, 0.005)
    )
    assert "pac_advantage" in alarmed.contradictions
    assert report["alarms"] == 0


def test_the_target_client_is_not_told_the_world_under_pac_noise(
    small: Make, tmp_path: Path
) -> None:
    seen: list[bool] = []

    class Watching(InProcessGrid):
        def execute(self, message):  # type: ignore[no-untyped-def]
            if message.metadata.message_type == "train":
                seen.append("worlds" in message.content.array_records)
            return super().execute(message)

    config = small(PAC)
    directory = RunDirectory.create(tmp_path / "run", config)
    server_app.carry_out(
        Watching(client_app.app, 3, to_run_config(config)), preflight(config), directory
    )
    assert seen
    assert not any(seen)
