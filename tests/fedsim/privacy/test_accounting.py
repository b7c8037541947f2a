"""Accountants against the published implementations, integrals, samples and each other."""

import itertools
import math

import dp_accounting
import numpy as np
import opacus.accountants
import pytest
from dp_accounting.pld import PLDAccountant
from dp_accounting.rdp import RdpAccountant
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import norm

from adversaries.errors import InputError
from adversaries.statistics import gaussian
from fedsim.privacy.accounting import ACCOUNTANTS, PLD, accountant
from fedsim.privacy.loss_distribution import coarsened, step_epsilon
from fedsim.privacy.mechanism import Mechanism, Neighbouring, Steps

SAMPLED = [
    Mechanism.alike(1.0, 50, 0.1),
    Mechanism.alike(2.0, 8, 0.5),
    Mechanism.alike(1.0, 50, 0.1, Neighbouring.REPLACE),
    Mechanism.alike(1.0, 3, 0.5, Neighbouring.REPLACE),
]


def all_answers(mechanism):
    return (each for each in ACCOUNTANTS.values() if each.supports(mechanism) is None)


def sampled_losses(mechanism, trials, seed):
    """Return losses log p_D/p_D' of noisy scalar sums when the data were D, as a loop of steps.

    The record contributes +1 where it takes part. Its replacement would contribute -1, and the
    noise is in units of that difference; without a replacement it would contribute nothing.
    """
    replaced = mechanism.neighbouring is Neighbouring.REPLACE
    q, deviation = (
        mechanism.groups[0].sampling_rate,
        mechanism.groups[0].noise_multiplier * (2 if replaced else 1),
    )
    random = np.random.default_rng(seed)
    total = np.zeros(trials)
    for _ in range(mechanism.steps):
        output = (random.random(trials) < q) + deviation * random.standard_normal(trials)
        idle = (1 - q) * norm.pdf(output, 0, deviation)
        other = idle + q * norm.pdf(output, -1, deviation) if replaced else idle / (1 - q)
        total += np.log((idle + q * norm.pdf(output, 1, deviation)) / other)
    return total


# --- reference numbers ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("z", "delta", "epsilon"),
    [
        (15.984860642181161, 0.01, 1.0986122886681098),
        (8.38022703488798, 0.01, 2.1972245773362196),
        (9.951726965394187, 0.001, 2.1972245773362196),
    ],
)
def test_the_classic_conversion_gives_the_papers_epsilon(z, delta, epsilon):
    classic = accountant("rdp-classic")
    assert classic.epsilon(Mechanism.alike(z, 30), delta) == pytest.approx(epsilon, rel=1e-6)
    assert classic.delta(Mechanism.alike(z, 30), epsilon) == pytest.approx(delta, rel=1e-6)


@pytest.mark.parametrize(
    ("z", "classic", "improved"),
    [(5.02, 1.00466, 0.81343), (2.68, 2.00368, 1.68824), (1.55, 3.97711, 3.47078)],
)
def test_subsampled_renyi_accounting_gives_the_published_numbers(z, classic, improved):
    mechanism = Mechanism.alike(z, 24 * 6000 // 250, 250 / 6000)
    assert accountant("rdp-classic").epsilon(mechanism, 1e-5) == pytest.approx(classic, abs=1e-5)
    # The published numbers lack order 11, which is the best one in the second row.
    assert improved - 1e-3 < accountant("rdp").epsilon(mechanism, 1e-5) < improved + 1e-5


@pytest.mark.parametrize(
    ("z", "q", "steps"), [(1.1, 0.01, 1000), (0.7, 0.002, 5000), (4.0, 1.0, 30)]
)
def test_renyi_accounting_agrees_with_opacus(z, q, steps):
    library = opacus.accountants.RDPAccountant()
    library.history = [(z, q, steps)]
    # Both are minima over orders, each over its own grid of them.
    orders = [float(order) for order in accountant("rdp").orders]
    found = accountant("rdp").epsilon(Mechanism.alike(z, steps, q), 1e-5)
    assert found == pytest.approx(library.get_epsilon(1e-5, alphas=orders), rel=1e-4)


def test_the_prv_accountant_of_opacus_brackets_the_tight_epsilon():
    library = opacus.accountants.PRVAccountant()
    library.history = [(1.1, 0.01, 1000)]
    found = PLD.epsilon(Mechanism.alike(1.1, 1000, 0.01), 1e-5)
    # Its answer is an upper bound, by at most its own error of 0.01.
    error = 0.01
    assert found - 1e-6 <= library.get_epsilon(1e-5, eps_error=error) <= found + 2 * error


# --- the privacy loss distribution ----------------------------------------------------------


@pytest.mark.parametrize("delta", [1e-10, 1e-5, 0.01])
def test_without_sampling_pld_is_the_closed_form_and_agrees_with_dp_accounting(delta):
    mechanism = Mechanism.alike(8.38, 30)
    event = dp_accounting.SelfComposedDpEvent(dp_accounting.GaussianDpEvent(8.38), 30)
    library = PLDAccountant().compose(event).get_epsilon(delta)
    assert PLD.epsilon(mechanism, delta) == gaussian.epsilon(mechanism.mu, delta)
    assert PLD.epsilon(mechanism, delta) == pytest.approx(library, rel=1e-5)


@pytest.mark.parametrize("mechanism", SAMPLED)
def test_with_sampling_pld_agrees_with_dp_accounting(mechanism):
    replaced = mechanism.neighbouring is Neighbouring.REPLACE
    relation = dp_accounting.NeighboringRelation
    # dp_accounting measures noise against the clipping norm, of which a replacement moves two.
    noise = dp_accounting.GaussianDpEvent(
        mechanism.groups[0].noise_multiplier * (2 if replaced else 1)
    )
    event = dp_accounting.PoissonSampledDpEvent(mechanism.groups[0].sampling_rate, noise)
    library = PLDAccountant(
        relation.REPLACE_ONE if replaced else relation.ADD_OR_REMOVE_ONE
    ).compose(event, mechanism.steps)
    assert PLD.epsilon(mechanism, 1e-5) == pytest.approx(library.get_epsilon(1e-5), rel=1e-6)
    assert PLD.delta(mechanism, 0.5) == pytest.approx(library.get_delta(0.5), rel=1e-6)


@pytest.mark.parametrize("epsilon", [0.0, 0.1, 1.0])
@pytest.mark.parametrize("neighbouring", Neighbouring)
def test_one_sampled_step_is_the_divergence_of_the_two_mixtures(neighbouring, epsilon):
    q, z = 0.2, 0.5
    replaced = neighbouring is Neighbouring.REPLACE
    deviation = 2 * z if replaced else z
    outputs = np.linspace(-12, 12, 200_001)
    idle = (1 - q) * norm.pdf(outputs, 0, deviation)
    with_record = idle + q * norm.pdf(outputs, 1, deviation)
    other = idle + q * norm.pdf(outputs, -1 if replaced else 0, deviation)
    forth = np.maximum(with_record - math.exp(epsilon) * other, 0)
    back = np.maximum(other - math.exp(epsilon) * with_record, 0)
    expected = max(np.trapezoid(forth, outputs), np.trapezoid(back, outputs))
    mechanism = Mechanism.alike(z, 1, q, neighbouring)
    assert PLD.delta(mechanism, epsilon) == pytest.approx(expected, rel=1e-6)
    tail = np.trapezoid(with_record * (with_record > math.exp(epsilon) * other), outputs)
    if epsilon > 0:  # at 0 the losses of the many outputs that say nothing lie on the boundary
        assert PLD.tail(mechanism, epsilon) == pytest.approx(tail, rel=1e-3)


@pytest.mark.parametrize("mechanism", SAMPLED)
def test_composed_sampled_steps_leak_what_samples_of_their_losses_say(mechanism):
    trials, epsilon = 200_000, 0.7
    losses = sampled_losses(mechanism, trials, seed=3)
    error = 5 * 0.5 / math.sqrt(trials)
    assert PLD.tail(mechanism, epsilon) == pytest.approx(np.mean(losses > epsilon), abs=error)
    # Of the two directions this one, D against D', has the larger delta at these epsilons.
    estimate = np.mean(np.maximum(-np.expm1(epsilon - losses), 0))
    assert PLD.delta(mechanism, epsilon) == pytest.approx(estimate, abs=error)


@pytest.mark.parametrize(("z", "q", "steps"), [(500.0, 1e-5, 100_000), (20.0, 1e-5, 1000)])
def test_the_grid_is_fine_enough_for_the_faintest_signals(z, q, steps):
    # So little a step composes to a Gaussian, whose mu is known.
    mu = q * math.sqrt(steps * math.expm1(z**-2))
    mechanism = Mechanism.alike(z, steps, q)
    assert PLD.delta(mechanism, 0.0) == pytest.approx(gaussian.advantage(mu), rel=1e-3)
    assert PLD.note(mechanism, 1e-6) is None


@pytest.mark.parametrize("delta", [1.001e-10, 1e-9, 1e-6])
def test_what_the_transforms_round_away_never_makes_epsilon_too_small(delta):
    # All but a few of 1e12 records sampled: the closed form is a lower bound to 1e-7, and 1e5 steps
    # put the smallest of these deltas just above what the transforms resolve.
    nearly = Mechanism.alike(100.0, 100_000, 1 - 1e-12)
    exact = gaussian.epsilon(math.sqrt(100_000) / 100, delta)
    assert exact * (1 - 1e-6) <= PLD.epsilon(nearly, delta) <= exact * 1.003


def test_more_steps_than_the_grid_is_fine_enough_for_are_stated():
    assert "coarse grid" in str(PLD.note(Mechanism.alike(1.0, 10**9, 1e-3), 1e-3))


def test_a_delta_below_rounding_is_bounded_by_moments_and_the_fallback_is_stated():
    mechanism = Mechanism.alike(1.0, 50, 0.1)
    assert PLD.epsilon(mechanism, 1e-20) == accountant("rdp").epsilon(mechanism, 1e-20)
    assert "rdp" in str(PLD.note(mechanism, 1e-20))
    assert PLD.note(mechanism, 1e-5) is None
    assert PLD.epsilon(mechanism, 1e-20) > PLD.epsilon(mechanism, 1e-11)
    assert 0 < PLD.delta(mechanism, 40.0) <= 1e-12


def test_where_no_moments_are_known_the_fallback_forgoes_sampling():
    mechanism = Mechanism.alike(1.0, 50, 0.1, Neighbouring.REPLACE)
    assert PLD.epsilon(mechanism, 1e-20) == PLD.epsilon(Mechanism.alike(1.0, 50), 1e-20)
    assert "as if nothing were sampled" in str(PLD.note(mechanism, 1e-20))


def test_the_fallback_is_the_least_bound_that_holds():
    mechanism = Mechanism.alike(1e-3, 1, 0.01)
    others = {name: accountant(name).epsilon(mechanism, 1e-5) for name in ("rdp", "basic")}
    unsampled = accountant("gdp").epsilon(Mechanism.alike(1e-3, 1), 1e-5)
    assert PLD.epsilon(mechanism, 1e-5) == others["basic"] < unsampled < others["rdp"]
    assert "by basic instead" in str(PLD.note(mechanism, 1e-5))


def test_hardly_any_noise_gives_a_finite_epsilon_and_no_tail():
    mechanism = Mechanism.alike(1e-3, 10, 0.01)
    assert 1e5 < PLD.epsilon(mechanism, 1e-5) < math.inf
    assert PLD.tail(mechanism, 1.0) is None
    assert PLD.delta(mechanism, 1.0) == pytest.approx(mechanism.participation)
    assert "noise is too small" in str(PLD.note(mechanism, 1e-5))


# --- steps that differ ----------------------------------------------------------------------

MIXED = (Steps(1.0, 50, 0.05), Steps(1.4, 100, 0.02), Steps(8.0, 30))


@pytest.mark.parametrize("delta", [1e-9, 1e-5, 0.01])
@pytest.mark.parametrize("name", ["pld", "rdp"])
def test_steps_that_differ_compose_as_by_dp_accounting(name, delta):
    library = PLDAccountant() if name == "pld" else RdpAccountant()
    for step in MIXED:
        event = dp_accounting.GaussianDpEvent(step.noise_multiplier)
        if step.sampling_rate < 1:
            event = dp_accounting.PoissonSampledDpEvent(step.sampling_rate, event)
        library.compose(event, step.count)
    found, expected = accountant(name).epsilon(Mechanism(MIXED), delta), library.get_epsilon(delta)
    # The library's series is a little too large at fractional orders. What fedsim adds for the
    # rounding of the transforms is 1e-13 of probability.
    below = {"pld": 1e-6, "rdp": 1e-3}[name]
    assert expected * (1 - below) <= found <= expected * (1 + 1e-6 + 0.1 * 1e-13 / delta)


def test_the_order_of_steps_and_how_they_are_grouped_do_not_matter():
    split = Mechanism((*MIXED[::-1], Steps(8.0, 2), Steps(1.0, 7, 0.05)))
    together = Mechanism((Steps(1.0, 57, 0.05), Steps(1.4, 100, 0.02), Steps(8.0, 32)))
    assert split == together
    assert all(
        each.epsilon(split, 1e-5) == each.epsilon(together, 1e-5) for each in all_answers(split)
    )


def test_full_batches_of_different_noise_are_one_gaussian():
    noise = np.linspace(20, 40, 1000)
    mechanism = Mechanism(tuple(Steps(float(z)) for z in noise))
    mu = math.sqrt(float(np.sum(noise**-2)))
    for name in ("pld", "gdp"):
        assert accountant(name).epsilon(mechanism, 1e-5) == pytest.approx(
            gaussian.epsilon(mu, 1e-5), rel=1e-12
        )
    together = Mechanism((Steps(1 / mu),))
    for name in ("rdp", "rdp-classic"):
        found = accountant(name).epsilon(mechanism, 1e-5)
        assert found == pytest.approx(accountant(name).epsilon(together, 1e-5), rel=1e-9)
        assert accountant(name).note(mechanism, 1e-5) is None
    assert "1000 kinds of step" in str(accountant("basic").note(mechanism, 1e-5))


def test_kinds_are_counted_as_they_are_rounded():
    full = tuple(Steps(float(z)) for z in np.linspace(20, 40, 200))
    sampled = tuple(Steps(float(z), 1, 0.01) for z in np.linspace(1, 2, 200))
    mechanism = Mechanism(full + sampled)
    assert coarsened(mechanism, 256) == mechanism
    for name in ("basic", "advanced", "rdp", "pld"):
        assert accountant(name).note(mechanism, 1e-5) is None


@pytest.mark.slow
def test_ten_thousand_rounds_that_all_differ_are_rounded_for_the_adversary():
    random = np.random.default_rng(0)
    noise, rates = random.uniform(0.8, 1.2, 10_000), random.uniform(0.01, 0.0101, 10_000)
    mechanism = Mechanism(
        tuple(Steps(float(z), 1, float(q)) for z, q in zip(noise, rates, strict=True))
    )
    # Every round at least as harmful, and every round at most as harmful as it was.
    most, least = Mechanism.alike(0.8, 10_000, 0.0101), Mechanism.alike(1.2, 10_000, 0.01)
    epsilon = PLD.epsilon(mechanism, 1e-5)
    assert PLD.epsilon(least, 1e-5) < epsilon < PLD.epsilon(most, 1e-5)
    assert "10000 kinds of step" in str(PLD.note(mechanism, 1e-5))
    # The same rounds in 20 classes whose noise and rate are rounded the other way: a lower bound.
    edges = np.quantile(noise, np.linspace(0, 1, 21)[1:])
    quieter = tuple(Steps(float(edge), 500, 0.01) for edge in edges)
    assert PLD.epsilon(Mechanism(quieter), 1e-5) < epsilon
    assert epsilon < PLD.epsilon(Mechanism(quieter), 1e-5) * 1.06


@pytest.mark.slow
@given(
    st.lists(
        st.tuples(st.floats(0.5, 20), st.sampled_from([0.001, 0.01, 0.3, 1.0])),
        min_size=1,
        max_size=40,
    ),
    st.integers(1, 8),
)
@settings(max_examples=40)
def test_a_coarser_mechanism_has_fewer_kinds_and_never_less_harm(kinds, most):
    mechanism = Mechanism(tuple(Steps(z, 1, q) for z, q in kinds))
    coarse = coarsened(mechanism, most)
    assert len(coarse.groups) <= min(2 * most, len(mechanism.groups))
    assert coarse.steps == mechanism.steps
    for kind in coarse.groups:
        assert any(group.noise_multiplier == kind.noise_multiplier for group in mechanism.groups)
    assert coarse.mu >= mechanism.mu * (1 - 1e-12)
    assert coarse.participation >= mechanism.participation * (1 - 1e-12)
    classic = accountant("rdp-classic")
    assert classic.epsilon(coarse, 1e-5) >= classic.epsilon(mechanism, 1e-5) * (1 - 1e-9)


# --- composition by epsilon and delta -------------------------------------------------------


def test_basic_composition_adds_the_exact_epsilons_of_the_steps():
    found = accountant("basic").epsilon(Mechanism((Steps(4.0, 10), Steps(6.0, 5))), 1.5e-4)
    each = [gaussian.epsilon(1 / z, 1e-5) for z in (4.0, 6.0)]
    assert found == pytest.approx(10 * each[0] + 5 * each[1], rel=1e-12)


def test_advanced_composition_is_its_formula_at_the_best_share_of_a_grid():
    delta, steps, z = 1e-5, 400, 30.0

    def formula(share):
        epsilon = gaussian.epsilon(1 / z, (1 - share) * delta / steps)
        spread = epsilon * math.sqrt(2 * steps * math.log(1 / (share * delta)))
        return spread + steps * epsilon * math.expm1(epsilon)

    best = min(formula(share) for share in np.linspace(0.001, 0.999, 999))
    found = accountant("advanced").epsilon(Mechanism.alike(z, steps), delta)
    assert best <= found * (1 + 1e-9)
    assert found < 1.01 * best
    # The point of it: of many small steps it certifies less than their sum.
    assert found < accountant("basic").epsilon(Mechanism.alike(z, steps), delta)


@pytest.mark.parametrize("neighbouring", Neighbouring)
@pytest.mark.parametrize("delta", [1e-12, 1e-6, 0.01])
def test_one_sampled_step_has_the_epsilon_of_its_loss_distribution(neighbouring, delta):
    mechanism = Mechanism.alike(0.8, 1, 0.05, neighbouring)
    found = step_epsilon(mechanism.groups[0], neighbouring, delta)
    # At 1e-12, a tenth of delta is for the rounding of the transforms.
    assert found == pytest.approx(PLD.epsilon(mechanism, delta), rel=1e-3 if delta > 1e-9 else 1e-2)


# --- every accountant -----------------------------------------------------------------------


@pytest.mark.parametrize("mechanism", [Mechanism.alike(2.0, 20), Mechanism.alike(1.0, 100, 0.05)])
@pytest.mark.parametrize("delta", [1e-9, 1e-5, 0.01])
def test_no_accountant_certifies_less_than_the_tight_epsilon(mechanism, delta):
    tight = PLD.epsilon(mechanism, delta)
    for each in all_answers(mechanism):
        assert each.epsilon(mechanism, delta) >= tight * (1 - 1e-6)


@pytest.mark.parametrize(
    "mechanism", [Mechanism.alike(2.0, 20), Mechanism.alike(1.0, 100, 0.05), SAMPLED[2]]
)
def test_delta_and_epsilon_are_inverse_by_every_accountant(mechanism):
    for each in all_answers(mechanism):
        epsilon = each.epsilon(mechanism, 1e-4)
        assert each.delta(mechanism, epsilon) == pytest.approx(1e-4, rel=1e-6)


@given(
    st.floats(0.05, 100),
    st.integers(1, 10_000),
    st.floats(1e-10, 0.5),
    st.floats(1.01, 3),
    st.sampled_from(Neighbouring),
)
@settings(max_examples=50)
def test_more_noise_helps_and_more_steps_hurt_by_every_accountant(
    z, steps, delta, factor, neighbouring
):
    mechanism = Mechanism.alike(z, steps, 1.0, neighbouring)
    quieter = Mechanism.alike(z * factor, steps, 1.0, neighbouring)
    longer = Mechanism.alike(z, steps + 1, 1.0, neighbouring)
    for each in ACCOUNTANTS.values():
        epsilon = each.epsilon(mechanism, delta)
        assert 0 <= each.epsilon(quieter, delta) <= epsilon * (1 + 1e-9)
        assert epsilon <= each.epsilon(longer, delta) * (1 + 1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("z", [1e-6, 0.03, 1e4])
@pytest.mark.parametrize("q", [1e-8, 0.1, 1.0])
@pytest.mark.parametrize("neighbouring", Neighbouring)
def test_extreme_mechanisms_get_numbers_never_nan(z, q, neighbouring):
    mechanism = Mechanism.alike(z, 10, q, neighbouring)
    for each in all_answers(mechanism):
        epsilons = [each.epsilon(mechanism, delta) for delta in (1e-300, 1e-9, 0.3)]
        assert epsilons == sorted(epsilons, reverse=True)
        assert epsilons[-1] >= 0
        deltas = [each.delta(mechanism, epsilon) for epsilon in (0.0, 1.0, 1e6)]
        assert np.all(np.diff(deltas) < 1e-15)
        assert all(0 <= delta <= 1 for delta in deltas)


RANGE = list(
    itertools.product(
        (0.3, 1.0, 20.0, 500.0), (1e-5, 1e-3, 0.1, 1.0), (1, 1000, 100_000), Neighbouring
    )
)


@pytest.mark.slow
@pytest.mark.parametrize("name", ACCOUNTANTS)
def test_over_the_whole_range_of_use_there_is_an_answer_or_a_refusal(name):
    chosen_accountant, answered = accountant(name), 0
    for z, q, steps, neighbouring in RANGE:
        mechanism = Mechanism.alike(z, steps, q, neighbouring)
        if chosen_accountant.supports(mechanism) is not None:
            continue
        answered += 1
        epsilons = [chosen_accountant.epsilon(mechanism, delta) for delta in (1e-12, 1e-5, 0.01)]
        assert all(0 <= epsilon < math.inf for epsilon in epsilons), mechanism
        assert all(b <= a * (1 + 1e-9) for a, b in itertools.pairwise(epsilons)), mechanism
        # An upper bound, but for the grid of the distribution that it is compared with.
        if PLD.note(mechanism, 1e-5) is None:
            assert epsilons[1] >= PLD.epsilon(mechanism, 1e-5) * (1 - 2e-3) - 1e-9, mechanism
        assert all(
            0 < chosen_accountant.delta(mechanism, epsilon) <= 1 for epsilon in (0.0, 1.0, 300.0)
        )
    assert answered >= len(RANGE) // 4


@given(
    st.floats(0.7, 5),
    st.integers(1, 300),
    st.floats(0.005, 0.5),
    st.floats(1e-8, 0.1),
    st.floats(1.1, 2),
    st.sampled_from(Neighbouring),
)
@settings(max_examples=15)
@pytest.mark.slow
def test_every_parameter_moves_epsilon_in_its_direction_under_sampling(
    z, steps, q, delta, factor, neighbouring
):
    mechanism = Mechanism.alike(z, steps, q, neighbouring)
    less_harm = [
        (Mechanism.alike(z * factor, steps, q, neighbouring), delta),
        (Mechanism.alike(z, max(1, round(steps / factor)), q, neighbouring), delta),
        (Mechanism.alike(z, steps, q / factor, neighbouring), delta),
        (mechanism, min(0.99, delta * factor)),
    ]
    assert PLD.epsilon(mechanism, delta) <= PLD.epsilon(mechanism.unsampled(), delta) * (1 + 1e-6)
    for each in all_answers(mechanism):
        epsilon = each.epsilon(mechanism, delta)
        for other, at in less_harm:
            assert each.epsilon(other, at) <= epsilon * (1 + 1e-5) + 1e-9, (each.name, other, at)
        assert each.delta(mechanism, 2.0) <= each.delta(mechanism, 1.0)


@pytest.mark.parametrize("q", [0.1, 1.0])
def test_no_noise_means_no_guarantee(q):
    mechanism = Mechanism.alike(0.0, 3, q)
    for each in all_answers(mechanism):
        assert each.epsilon(mechanism, 0.01) == math.inf
        # Where the record is in no sample, not even noiseless sums depend on it.
        assert each.delta(mechanism, 5.0) == pytest.approx(1 - (1 - q) ** 3, rel=1e-12)
        assert "no guarantee" in str(each.note(mechanism, 0.01))


@pytest.mark.parametrize(
    ("name", "mechanism", "reason"),
    [
        ("gdp", Mechanism.alike(1.0, 10, 0.5), "closed form"),
        ("rdp", Mechanism.alike(1.0, 10, 0.5, Neighbouring.REPLACE), "add-remove"),
        ("rdp-classic", Mechanism.alike(1.0, 10, 0.5, Neighbouring.REPLACE), "add-remove"),
    ],
)
def test_what_an_accountant_cannot_do_it_refuses_with_the_reason(name, mechanism, reason):
    assert reason in str(accountant(name).supports(mechanism))
    with pytest.raises(InputError, match=reason):
        accountant(name).epsilon(mechanism, 0.01)
    with pytest.raises(InputError, match=reason):
        accountant(name).delta(mechanism, 1.0)


@pytest.mark.parametrize("name", ACCOUNTANTS)
@pytest.mark.parametrize("delta", [0.0, 1.0, -1.0, math.nan])
def test_delta_is_a_probability_between_zero_and_one(name, delta):
    with pytest.raises(InputError, match="delta"):
        accountant(name).epsilon(Mechanism.alike(1.0, 1), delta)


@pytest.mark.parametrize("epsilon", [-0.1, math.inf, math.nan])
def test_delta_is_asked_at_a_finite_epsilon(epsilon):
    with pytest.raises(InputError, match="epsilon"):
        PLD.delta(Mechanism.alike(1.0, 1), epsilon)


def test_a_divergence_that_rounds_to_nothing_is_not_taken_for_perfect_privacy():
    # The true epsilon at this delta is small but not 0; the raw divergence rounds to 0.
    mechanism = Mechanism.alike(1e9, 10_000)
    curve = accountant("rdp").curve(mechanism)
    assert np.all(curve > 0)
    assert accountant("rdp").epsilon(mechanism, 1e-12) > 0


@pytest.mark.parametrize(("typed", "nearest"), [("pdl", "pld"), ("rdp_classic", "rdp-classic")])
def test_an_unknown_accountant_is_refused_with_the_nearest_name(typed, nearest):
    with pytest.raises(InputError, match=f"did you mean '{nearest}'"):
        accountant(typed)


@pytest.mark.parametrize(
    ("z", "rate", "epsilon"), [(1.0, 0.1, 5.0), (1.0, 0.01, 5.0), (0.5, 0.5, 20.0)]
)
def test_delta_of_one_sampled_step_is_that_of_its_closed_form_however_small(z, rate, epsilon):
    # Where (1 - q) N(0, z^2) + q N(1, z^2) is e^epsilon times N(0, z^2), and the mass beyond.
    edge = z**2 * (math.log(math.exp(epsilon) - 1 + rate) - math.log(rate)) + 0.5
    with_record = (1 - rate) * norm.sf(edge / z) + rate * norm.sf((edge - 1) / z)
    exact = with_record - math.exp(epsilon) * norm.sf(edge / z)
    assert exact < 1e-12
    delta = accountant("pld").delta(Mechanism((Steps(z, 1, rate),)), epsilon)
    assert delta == pytest.approx(exact, rel=1e-6, abs=0)
