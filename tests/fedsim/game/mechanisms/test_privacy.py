"""A configuration's mechanism composes the steps that its clients take, sampled or local."""

import pytest

from adversaries.errors import InputError
from fedsim.game.mechanisms import privacy
from fedsim.privacy import identifiability, risks
from fedsim.privacy.accounting import PLD
from fedsim.privacy.mechanism import Mechanism, Neighbouring

LOCAL_STEPS = {
    "training.rounds": 10,
    "training.local-steps": 3,
    "federation.trust": "local",
    "federation.clients": 5,
}


def test_local_steps_are_composed_and_hidden_by_the_clients_own_noise(small):
    given = small(LOCAL_STEPS | {"privacy.rho-beta": 0.0, "privacy.noise-multiplier": 2.0})
    assert privacy.mechanism(given, privacy.noise_multiplier(given)) == Mechanism.alike(2.0, 30)


@pytest.mark.parametrize(
    "changes",
    [
        LOCAL_STEPS,
        {"training.sampling-rate": 0.1},
        LOCAL_STEPS | {"training.sampling-rate": 0.1, "privacy.neighbouring": "add-remove"},
    ],
    ids=str,
)
def test_a_target_belief_is_met_by_all_the_steps_that_are_taken(changes, small):
    config = small(changes)
    mechanism = privacy.mechanism(config, privacy.noise_multiplier(config))
    assert mechanism.steps == config.training.rounds * config.training.local_steps
    assert [group.sampling_rate for group in mechanism.groups] == [config.training.sampling_rate]
    epsilon = PLD.epsilon(mechanism, config.privacy.delta)
    assert identifiability.rho_beta_of_epsilon(epsilon) == pytest.approx(0.9, rel=1e-6)


def test_sampling_needs_less_noise(small):
    sampled, full = small({"training.sampling-rate": 0.1}), small()
    assert privacy.noise_multiplier(sampled) < privacy.noise_multiplier(full) / 2


@pytest.mark.parametrize("accountant", ["rdp", "rdp-classic", "gdp"])
def test_an_accountant_that_does_not_cover_sampled_replacement_is_refused(accountant, small):
    keys = {"training.sampling-rate": 0.1, "privacy.neighbouring": Neighbouring.REPLACE.value}
    config = small(keys | {"privacy.accountant": accountant})
    with pytest.raises(InputError, match=f"accountant {accountant} does not apply.*use pld"):
        privacy.noise_multiplier(config)


@pytest.mark.parametrize("trust", ["local", "distributed"])
def test_noise_is_calibrated_for_the_fewest_clients_and_the_colluders(trust, small):
    less = {"federation.tolerated-dropouts": 2, "federation.colluding": 1}
    every = small({"federation.clients": 6, "federation.trust": trust})
    some = small({"federation.clients": 6, "federation.trust": trust} | less)
    # Five other clients' noise, of whom two may be missing and one is no secret.
    ratio = privacy.noise_multiplier(some) / privacy.noise_multiplier(every)
    assert ratio == pytest.approx((5 / 2) ** 0.5)
    effective = privacy.mechanism(some, privacy.noise_multiplier(some))
    assert effective.mu == pytest.approx(
        privacy.mechanism(every, privacy.noise_multiplier(every)).mu
    )


@pytest.mark.parametrize("changes", [{}, {"training.sampling-rate": 0.1}, LOCAL_STEPS], ids=str)
def test_a_target_risk_is_met_by_all_the_steps_that_are_taken(small, changes):
    """From a baseline of 1 in 100, any attack succeeds in at most 5 in 100."""
    target = {"privacy.max-risk": 0.05, "privacy.baseline-risk": 0.01, "privacy.rho-beta": 0.0}
    given = small(target | changes)
    mechanism = privacy.mechanism(given, privacy.noise_multiplier(given))
    assert risks.success(mechanism, 0.01) == pytest.approx(0.05, rel=1e-6)


def test_a_target_risk_below_its_baseline_is_refused(small):
    with pytest.raises(InputError, match=r"max-risk is 0\.01, but the attack already succeeds"):
        small({"privacy.max-risk": 0.01, "privacy.baseline-risk": 0.02, "privacy.rho-beta": 0.0})
