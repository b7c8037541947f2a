"""What theory says about one person, against the paper's numbers and simulated adversaries."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from adversaries.errors import InputError
from adversaries.statistics.forecast import simulate
from fedsim.privacy import identifiability as ident
from fedsim.privacy.accounting import PLD
from fedsim.privacy.calibration import epsilon_at_most, noise_multiplier
from fedsim.privacy.mechanism import Mechanism
from fedsim.privacy.releases import Releases, Rounds
from fedsim.privacy.trust import Trust, Vantage

CLASSIC = Mechanism.alike(8.38022703488798, 30)  # the paper's noise at rho_beta = 0.9, delta = 0.01


@pytest.mark.parametrize(
    ("rho_beta", "epsilon"),
    [(0.5, 0.0), (0.75, 1.0986122886681098), (0.9, 2.1972245773362196), (0.99, 4.59511985013459)],
)
def test_belief_and_epsilon_convert_as_in_the_paper(rho_beta, epsilon):
    assert ident.epsilon_of_rho_beta(rho_beta) == pytest.approx(epsilon, rel=1e-12)
    assert ident.rho_beta_of_epsilon(epsilon) == pytest.approx(rho_beta, rel=1e-12)


@pytest.mark.parametrize("rho_beta", [0.49, 1.0, 1.2, -1.0, math.nan])
def test_a_bound_on_belief_lies_between_a_coin_and_certainty(rho_beta):
    with pytest.raises(InputError, match="rho_beta"):
        ident.epsilon_of_rho_beta(rho_beta)


def test_rho_alpha_is_what_the_papers_adversary_reaches_in_thirty_steps():
    trials = 100_000
    random, worlds = np.random.default_rng(5), np.arange(trials) % 2
    log_odds, z = np.zeros(trials), CLASSIC.groups[0].noise_multiplier
    for _ in range(CLASSIC.steps):
        released = worlds + z * random.standard_normal(trials)
        log_odds += (released - 0.5) / z**2
    advantage = np.mean(log_odds[worlds == 1] > 0) - np.mean(log_odds[worlds == 0] > 0)
    assert advantage == pytest.approx(ident.rho_alpha(CLASSIC), abs=0.015)
    exceeded = np.mean(log_odds[worlds == 1] > 1.0)
    assert exceeded == pytest.approx(ident.tail_probability(CLASSIC, 1.0), abs=0.01)


def test_the_tail_is_larger_than_delta():
    tight = Mechanism.alike(noise_multiplier(epsilon_at_most(2.1972245773362196, 0.01), 30), 30)
    tail = ident.tail_probability(tight, 2.1972245773362196)
    assert tail is not None
    assert 3 * 0.01 < tail < 4 * 0.01


def test_a_milder_pair_may_pass_the_tail_of_the_worst_one_but_never_its_limit():
    """Sampled steps of a sixth of the sensitivity; and a pair that differs until it is ahead."""
    worst, random, trials = Mechanism.alike(0.3, 2, 0.02), np.random.default_rng(0), 20_000
    one = np.ones((1, 2))
    milder = simulate(one / 6, 0 * one, one / 6, 0.3 * one, 0.02, random, games=trials).world_d
    for epsilon in (0.0, 0.1, 1.0, 3.0):
        exceeded, limit = np.mean(milder > epsilon), ident.tail_limit(worst, epsilon)
        assert exceeded < limit + 0.01
        if epsilon == 0:
            assert exceeded > 3 * (ident.tail_probability(worst, epsilon) or 0)
    passed, log_odds = np.zeros((2, trials))
    for _ in range(CLASSIC.steps):
        step = np.where(log_odds > 1.0, 0.0, 1 / CLASSIC.groups[0].noise_multiplier)
        log_odds += step**2 / 2 + step * random.standard_normal(trials)
    passed = np.mean(log_odds > 1.0)
    assert 1.2 * (ident.tail_probability(CLASSIC, 1.0) or 0) < passed < ident.tail_limit(CLASSIC, 1)


@pytest.mark.parametrize("sampled", [Mechanism.alike(8.38, 30), Mechanism.alike(1.0, 50, 0.1)])
def test_the_limit_of_the_tail_is_the_largest_that_merging_outcomes_can_make(sampled):
    """Merged, all losses above c weigh e^epsilon if D has them as many times as often as D'."""
    tails = [(PLD.tail(sampled, c), PLD.tail_prime(sampled, c)) for c in np.linspace(0, 3, 200)]
    for epsilon in (1.5, 2.5):
        merged = max(
            there for there, back in tails if there and back and there >= np.exp(epsilon) * back
        )
        assert merged == pytest.approx(ident.tail_limit(sampled, epsilon), rel=0.08)
        assert merged > (ident.tail_probability(sampled, epsilon) or 0)


def test_nothing_limits_the_tail_at_epsilon_0_and_a_belief_cannot_exceed_1():
    assert ident.tail_limit(CLASSIC, 0.0) == 1.0
    assert ident.tail_limit(Mechanism.alike(0.0, 5), math.inf) == 0.0
    assert ident.tail_limit(Mechanism.alike(0.0, 5), 3.0) == 1.0


@pytest.mark.parametrize(
    ("epsilon", "delta", "printed"),
    [
        (1.0986122886681098, 0.01, 0.1403087573671038),
        (2.1972245773362196, 0.01, 0.276312177349733),
        (2.1972245773362196, 0.001, 0.22887916402156994),
    ],
)
def test_theorem_2_gives_the_printed_numbers(epsilon, delta, printed):
    assert ident.theorem2_rho_alpha(epsilon, delta) == pytest.approx(printed, rel=1e-9)


def test_theorem_2_is_not_a_bound_under_tight_noise():
    tight = Mechanism.alike(noise_multiplier(epsilon_at_most(2.1972245773362196, 0.01), 30), 30)
    assert ident.rho_alpha(tight) == pytest.approx(0.369, abs=5e-4)
    assert ident.theorem2_rho_alpha(2.1972245773362196, 0.01) < 0.28


def test_yeoms_bound_grows_without_overflowing():
    assert ident.yeom_bound(math.log(2)) == pytest.approx(1.0)
    assert ident.yeom_bound(1e4) == math.inf
    assert ident.yeom_bound(math.inf) == math.inf


def test_bounds_put_the_named_accountant_beside_the_tight_one():
    bounds = ident.bounds(CLASSIC, 0.01, "rdp-classic")
    assert bounds.accountant == "rdp-classic"
    assert bounds.epsilon == pytest.approx(2.1972245773362196, rel=1e-6)
    assert bounds.rho_beta == pytest.approx(0.9, rel=1e-6)
    assert bounds.rho_alpha == pytest.approx(0.2561767421042713, rel=1e-6)
    assert bounds.tail_probability == pytest.approx(0.0012027268180968128, rel=1e-5)
    assert bounds.theorem2_rho_alpha == pytest.approx(0.276312177349733, rel=1e-6)
    assert bounds.yeom_bound == pytest.approx(8.0, rel=1e-5)
    assert bounds.tight_epsilon == pytest.approx(1.3134725502396565, rel=1e-6)
    assert bounds.tight_rho_beta == pytest.approx(1 / (1 + math.exp(-1.3134725502396565)))


def test_bounds_are_tight_unless_another_accountant_is_named():
    bounds = ident.bounds(CLASSIC, 0.01)
    assert bounds.accountant == "pld"
    assert bounds.epsilon == bounds.tight_epsilon


def test_without_noise_the_bounds_say_that_everything_is_known():
    bounds = ident.bounds(Mechanism.alike(0.0, 5), 0.01, "gdp")
    assert (bounds.epsilon, bounds.rho_beta, bounds.rho_alpha) == (math.inf, 1.0, 1.0)
    assert bounds.tail_probability == 0.0  # a belief cannot exceed 1
    assert ident.tail_probability(Mechanism.alike(0.0, 5), 3.0) == 1.0


def test_an_accountant_that_does_not_apply_is_refused():
    with pytest.raises(InputError, match="closed form"):
        ident.bounds(Mechanism.alike(1.0, 5, 0.1), 0.01, "gdp")


def test_every_vantage_point_has_its_own_bounds():
    described = Releases((Rounds(2.0, 30),), clients=5)
    rows = {
        (row.trust, row.vantage): row
        for trust in Trust
        for row in ident.vantage_bounds(described, 0.01, trust)
    }
    assert len(rows) == 9
    clean = rows[Trust.CENTRAL, Vantage.SERVER]
    assert (clean.noise_multiplier, clean.epsilon) == (0.0, math.inf)
    assert (clean.rho_beta, clean.rho_alpha) == (1.0, 1.0)
    assert "no protection" in clean.note

    participant = rows[Trust.LOCAL, Vantage.PARTICIPANT]
    assert participant.noise_multiplier == pytest.approx(4.0)
    assert participant.epsilon == ident.bounds(Mechanism.alike(4.0, 30), 0.01).epsilon
    assert participant.rho_beta == ident.rho_beta_of_epsilon(participant.epsilon)
    assert participant.rho_alpha == ident.rho_alpha(Mechanism.alike(4.0, 30))

    for trust in Trust:
        released = rows[trust, Vantage.RELEASED_MODEL]
        assert released.epsilon == rows[trust, Vantage.PARTICIPANT].epsilon
        assert "upper bound" in released.note
    assert rows[Trust.LOCAL, Vantage.SERVER].epsilon > participant.epsilon


def test_local_steps_are_composed_under_the_clients_own_noise_at_every_vantage():
    described = Releases((Rounds(2.0, 10, local_steps=3),), trust=Trust.LOCAL, clients=5)
    rows = ident.vantage_bounds(described, 0.01)
    expected = ident.bounds(Mechanism.alike(2.0, 30), 0.01)
    for row in rows:
        assert row.noise_multiplier == 2.0
        assert (row.epsilon, row.rho_alpha) == (expected.epsilon, expected.rho_alpha)
        assert "every local step" in row.note


@pytest.mark.parametrize("epsilon", [-1.0, math.nan])
def test_bounds_need_an_epsilon_of_at_least_zero(epsilon):
    for function in (
        ident.rho_beta_of_epsilon,
        lambda e: ident.tail_probability(CLASSIC, e),
        lambda e: ident.theorem2_rho_alpha(e, 0.01),
    ):
        with pytest.raises(InputError, match="epsilon"):
            function(epsilon)


@pytest.mark.parametrize("delta", [0.0, 1.0, 2.0])
def test_theorem_2_needs_a_delta_between_zero_and_one(delta):
    with pytest.raises(InputError, match="delta"):
        ident.theorem2_rho_alpha(1.0, delta)


# --- the sampled game, by brute force --------------------------------------------------------


def sampled_game(q, z, steps, trials):
    """Return final log-odds of an add-remove game whose record joins a step with probability q."""
    random = np.random.default_rng(11)
    found = {}
    for world in (True, False):
        total = np.zeros(trials)
        for _ in range(steps):
            joined = world * (random.random(trials) < q)
            released = joined + z * random.standard_normal(trials)
            total += np.logaddexp(np.log1p(-q), np.log(q) + (released - 0.5) / z**2)
        found[world] = total
    return found


@pytest.mark.parametrize(("q", "z", "steps"), [(0.1, 1.0, 50), (0.3, 2.0, 20), (0.02, 0.6, 100)])
def test_rho_alpha_of_sampled_steps_is_what_brute_force_finds(q, z, steps):
    trials = 200_000
    game = sampled_game(q, z, steps, trials)
    advantage = np.mean(game[True] > 0) - np.mean(game[False] > 0)
    error = 4 * math.sqrt(0.5 / trials)  # four standard errors of a difference of two shares
    exact = ident.rho_alpha(Mechanism.alike(z, steps, q))
    assert advantage == pytest.approx(exact, abs=error)


@pytest.mark.parametrize(("q", "z", "steps"), [(0.1, 1.0, 50), (0.02, 0.6, 100)])
def test_the_tails_are_those_of_the_sampled_games_log_odds(q, z, steps):
    trials = 200_000
    game, mechanism = sampled_game(q, z, steps, trials), Mechanism.alike(z, steps, q)
    error = 4 * 0.5 / math.sqrt(trials)
    for belief in (0.2, 0.4, 0.6, 0.7, 0.8, 0.9):
        loss = math.log(belief / (1 - belief))
        assert PLD.tail(mechanism, loss) == pytest.approx(np.mean(game[True] > loss), abs=error)
        prime = np.mean(game[False] > loss)
        assert PLD.tail_prime(mechanism, loss) == pytest.approx(prime, abs=error)


@given(st.floats(0.3, 50), st.integers(1, 1000), st.floats(1e-9, 0.1))
def test_epsilon_and_delta_bound_the_advantage_from_above(z, steps, delta):
    mechanism = Mechanism.alike(z, steps)
    exact = ident.rho_alpha(mechanism)
    assert ident.advantage_of_epsilon(PLD.epsilon(mechanism, delta), delta) >= exact * (1 - 1e-9)
