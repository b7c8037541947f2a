"""The least noise for a target, against recorded noise scales and a library."""

import math

import dp_accounting
import pytest
from dp_accounting.rdp import RdpAccountant
from hypothesis import given, settings
from hypothesis import strategies as st

from adversaries.errors import InputError
from adversaries.statistics import gaussian
from fedsim.privacy import calibration, identifiability
from fedsim.privacy.accounting import ACCOUNTANTS, PLD, accountant
from fedsim.privacy.calibration import advantage_at_most, epsilon_at_most
from fedsim.privacy.identifiability import rho_alpha
from fedsim.privacy.mechanism import Mechanism, Neighbouring

EPSILON = math.log(9)  # rho_beta = 0.9


def noise_multiplier(
    epsilon,
    delta,
    steps,
    sampling_rate=1.0,
    neighbouring=Neighbouring.ADD_REMOVE,
    accountant_name="pld",
):
    required = epsilon_at_most(epsilon, delta, accountant_name)
    return calibration.noise_multiplier(required, steps, sampling_rate, neighbouring)


@pytest.mark.parametrize(
    ("epsilon", "delta", "classic", "improved"),
    [
        (1.0986122886681098, 0.01, 15.984860642181161, 11.190349628153513),
        (2.1972245773362196, 0.01, 8.38022703488798, 6.518779145720487),
        (2.1972245773362196, 0.001, 9.951726965394187, 8.138283262023947),
    ],
)
def test_the_papers_noise_scales_are_reproduced(epsilon, delta, classic, improved):
    found = noise_multiplier(epsilon, delta, 30, accountant_name="rdp-classic")
    assert found == pytest.approx(classic, rel=1e-8)
    found = noise_multiplier(epsilon, delta, 30, accountant_name="rdp")
    assert found == pytest.approx(improved, rel=1e-8)


@pytest.mark.parametrize("name", ["pld", "gdp"])
def test_without_sampling_tight_noise_is_the_closed_form(name):
    closed_form = math.sqrt(30) / gaussian.mu_of_epsilon(EPSILON, 0.01)
    found = noise_multiplier(EPSILON, 0.01, 30, accountant_name=name)
    assert found == pytest.approx(closed_form, rel=1e-9)


def test_with_sampling_moments_agree_with_dp_accountings_own_calibration():
    library = dp_accounting.calibrate_dp_mechanism(
        RdpAccountant,
        lambda z: dp_accounting.SelfComposedDpEvent(
            dp_accounting.PoissonSampledDpEvent(0.05, dp_accounting.GaussianDpEvent(z)), 200
        ),
        2.0,
        1e-5,
    )
    found = noise_multiplier(2.0, 1e-5, 200, 0.05, accountant_name="rdp")
    assert found == pytest.approx(library, rel=1e-6)


@pytest.mark.parametrize("neighbouring", Neighbouring)
@pytest.mark.parametrize(("epsilon", "delta"), [(0.0, 0.05), (1.0, 1e-5)])
def test_with_sampling_the_noise_is_enough_and_a_millionth_less_is_not(
    neighbouring, epsilon, delta
):
    z = noise_multiplier(epsilon, delta, 100, 0.1, neighbouring)
    chosen_accountant = accountant("pld")
    assert chosen_accountant.delta(Mechanism.alike(z, 100, 0.1, neighbouring), epsilon) <= delta
    assert (
        chosen_accountant.delta(Mechanism.alike(z * (1 - 1e-6), 100, 0.1, neighbouring), epsilon)
        > delta
    )


@given(
    st.floats(0.3, 20), st.floats(1e-9, 0.1), st.integers(1, 5000), st.sampled_from(Neighbouring)
)
@settings(max_examples=40)
def test_every_accountant_certifies_what_it_was_calibrated_for(epsilon, delta, steps, neighbouring):
    for name, chosen_accountant in ACCOUNTANTS.items():
        try:
            z = noise_multiplier(epsilon, delta, steps, 1.0, neighbouring, name)
        except InputError:
            # Only the classic conversion has a least epsilon: at its largest order, 63.
            assert name == "rdp-classic"
            assert epsilon < -math.log(delta) / 62 * (1 + 1e-6)
            continue
        assert chosen_accountant.epsilon(
            Mechanism.alike(z, steps, 1.0, neighbouring), delta
        ) == pytest.approx(epsilon, rel=1e-6)


@given(st.floats(1e-6, 0.9))
def test_even_epsilon_zero_is_reached_where_delta_is_the_advantage(delta):
    z = noise_multiplier(0.0, delta, 30)
    assert gaussian.advantage(math.sqrt(30) / z) == pytest.approx(delta, rel=1e-8)


def test_a_target_that_no_noise_reaches_is_refused_with_the_best_one():
    with pytest.raises(InputError, match=r"no noise reaches.*rdp-classic.* 0\.1857"):
        noise_multiplier(0.1, 1e-5, 30, accountant_name="rdp-classic")


def test_a_target_that_needs_no_noise_is_refused():
    # In 10 steps a record takes part with probability 0.096 at all, fewer than delta.
    with pytest.raises(InputError, match="no noise is needed"):
        noise_multiplier(1.0, 0.1, 10, 0.01)


@pytest.mark.parametrize(
    ("values", "complaint"),
    [
        ((-1.0, 0.01, 30), "epsilon"),
        ((math.inf, 0.01, 30), "epsilon"),
        ((math.nan, 0.01, 30), "epsilon"),
        ((1.0, 0.0, 30), "delta"),
        ((1.0, 1.0, 30), "delta"),
        ((1.0, 0.01, 0), "steps"),
        ((1.0, 0.01, 30, 1.5), "sampling rate"),
        ((1.0, 0.01, 30, 0.5, Neighbouring.REPLACE, "rdp"), "add-remove"),
        ((1.0, 0.01, 30, 0.5, Neighbouring.ADD_REMOVE, "gdp"), "closed form"),
        ((1.0, 0.01, 30, 1.0, Neighbouring.ADD_REMOVE, "rpd"), "did you mean"),
    ],
)
def test_impossible_requests_are_refused(values, complaint):
    with pytest.raises(InputError, match=complaint):
        noise_multiplier(*values)


# --- other targets, other unknowns -----------------------------------------------------------


@pytest.mark.parametrize("q", [0.05, 1.0])
def test_noise_for_a_bound_on_the_advantage_just_meets_it(q):
    z = calibration.noise_multiplier(advantage_at_most(0.25), 50, q)
    assert rho_alpha(Mechanism.alike(z, 50, q)) == pytest.approx(0.25, rel=1e-4)
    if q == 1:
        assert z == pytest.approx(math.sqrt(50) / gaussian.mu_of_advantage(0.25), rel=1e-8)


@pytest.mark.parametrize("q", [0.05, 1.0])
@pytest.mark.parametrize("requirement", [epsilon_at_most(1.0, 1e-5), advantage_at_most(0.2)])
def test_one_step_more_than_the_most_is_too_many(requirement, q):
    def rounds(count):
        return Mechanism.alike(9.0 if q == 1 else 1.5, count, q)

    found = calibration.most_rounds(requirement, rounds)
    for count, satisfied in ((found, True), (found + 1, False)):
        assert (requirement.excess(rounds(count)) <= 0) == satisfied


@pytest.mark.slow
def test_a_delta_at_the_resolution_of_the_loss_distribution_is_no_plateau():
    required = epsilon_at_most(1.0, 1e-12)
    z = calibration.noise_multiplier(required, 1000, 0.01)
    assert accountant("pld").epsilon(Mechanism.alike(z, 1000, 0.01), 1e-12) == pytest.approx(
        1, rel=1e-4
    )


def most(requirement, noise):
    return calibration.most_rounds(requirement, lambda count: Mechanism.alike(noise, count))


@pytest.mark.parametrize(
    ("search", "complaint"),
    [
        (lambda: most(epsilon_at_most(0.1, 1e-5), 1.0), "not even one round"),
        (lambda: most(advantage_at_most(0.9), 1e9), "give less noise"),
        (
            lambda: calibration.noise_multiplier(advantage_at_most(0.5), 10, 0.01),
            "no noise is needed",
        ),
        (lambda: advantage_at_most(1.0), "rho_alpha is 1"),
        (lambda: advantage_at_most(0.0), "rho_alpha is 0"),
    ],
)
def test_what_cannot_be_found_says_why(search, complaint):
    with pytest.raises(InputError, match=complaint):
        search()


# --- the paper's calibration beside the tight one --------------------------------------------


@pytest.mark.parametrize(
    ("rho_beta", "delta", "classic", "tight", "exact"),
    [
        (0.75, 0.01, 15.984860642181161, 9.584118, 0.5538039814125555),
        (0.9, 0.01, 8.38022703488798, 5.699546592, 1.3134725502396565),
        (0.9, 0.001, 9.951726965394187, 7.326, 1.5173783421251537),
    ],
)
def test_the_accountants_reproduce_the_recorded_runs(rho_beta, delta, classic, tight, exact):
    epsilon = identifiability.epsilon_of_rho_beta(rho_beta)
    z = noise_multiplier(epsilon, delta, 30, accountant_name="rdp-classic")
    tight_z = noise_multiplier(epsilon, delta, 30)
    assert z == pytest.approx(classic, rel=1e-8)
    assert tight_z == pytest.approx(tight, rel=1e-4)
    whole, least = Mechanism.alike(z, 30), Mechanism.alike(tight_z, 30)
    assert PLD.epsilon(whole, delta) == pytest.approx(exact, rel=1e-8)
    advantage = gaussian.advantage(math.sqrt(30) / z)
    assert rho_alpha(whole) == pytest.approx(advantage, rel=1e-9)
    assert identifiability.advantage_of_epsilon(epsilon, delta) > advantage
    # The printed theorem lies above the truth for its own noise, below it for the tight one.
    assert advantage < identifiability.theorem2_rho_alpha(epsilon, delta) < rho_alpha(least)
