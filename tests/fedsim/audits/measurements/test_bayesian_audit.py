"""Clients compare their own records, send distances alone, and the report says what follows."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from adversaries.errors import InputError
from fedsim import client_app, server_app
from fedsim.audits.measurements.bayesian_audit import bayesian_report
from fedsim.audits.results import report as results
from fedsim.audits.results.theory import OverTrials
from fedsim.audits.run.guarantee import UNCLIPPED
from fedsim.configuration import to_run_config
from fedsim.federation.protocol import messages
from fedsim.federation.runs.ledger import Ledger
from fedsim.federation.runs.run_directory import RunDirectory
from fedsim.federation.runtimes.inprocess import InProcessGrid
from fedsim.federation.server.plan import preflight
from fedsim.game import federation
from fedsim.game.client import gradient_distances
from fedsim.game.mechanisms import privacy
from fedsim.learning.training import models
from fedsim.privacy import bayesian
from fedsim.privacy.accounting import PLD
from fedsim.privacy.bayesian import GAMMA, ORDERS
from fedsim.privacy.mechanism import Mechanism, Neighbouring
from fedsim.privacy.participation.sampling import groups

PAIRS = {"audit.bayesian-pairs": 3}
UNBOUNDED = {
    "training.clipping": False,
    "training.clipping-norm": 0.5,
    "privacy.rho-beta": 0.0,
    "privacy.noise-multiplier": 4.0,
}


@pytest.mark.parametrize("neighbouring", Neighbouring)
def test_a_client_compares_records_of_its_own_at_the_model_of_the_round(neighbouring, small):
    config = small(PAIRS | {"privacy.neighbouring": neighbouring.value})
    known = federation.load(config.experiment)
    theta = models.initial_parameters(
        lambda: federation.build_model(config.game, known.split.dataset), 0, range(4)
    )
    client, trials = 1, range(2, 4)
    found = gradient_distances(
        config.game,
        config.audit.bayesian_pairs,
        known,
        client,
        theta[2:],
        trials,
        5,
    )
    assert found is not None
    assert found.dtype == torch.float64
    mine, members = known.owned_by(client), 2 if neighbouring is Neighbouring.REPLACE else 1
    drawn = groups(config.run.seed, trials, 5, client, len(mine), 3, members)
    for trial, row in enumerate(drawn):
        for group, records in enumerate(row):
            gradients = known.clipper.clipped_gradients(
                theta[2 + trial][None], *known.members(mine[records])
            )[0]
            expected = gradients[0] - gradients[1] if members == 2 else gradients[0]
            assert float(found[trial, group]) == pytest.approx(float(expected.norm()), rel=1e-5)


def test_distances_stay_within_what_clipping_allows(small, run):
    for neighbouring, bound in (("add-remove", 0.1), ("replace", 0.2)):
        keys = PAIRS | {"training.clipping-norm": 0.1, "privacy.neighbouring": neighbouring}
        distances = run(small(keys))["bayesian_distances"]
        assert distances.dtype == np.float64
        assert distances.max() <= bound * (1 + 1e-9)
        assert distances.max() > bound / 2


@pytest.mark.slow
def test_the_first_trials_of_the_campaign_are_gathered_whatever_the_batches(small, run):
    """4 evaluated trials of 8, in batches of 3: the last batch of trials has none of them."""
    mode = PAIRS | {"audit.evaluated-trials": 4}
    whole, parts = run(small(mode)), run(small(mode | {"trials.batch": 3}))
    assert whole["bayesian_distances"].shape == (4, 3, 9)
    assert whole.keys() == parts.keys()
    np.testing.assert_allclose(
        parts["bayesian_distances"], whole["bayesian_distances"], rtol=1e-4, atol=1e-6
    )


@pytest.mark.slow
def test_gathering_changes_nothing_else_and_both_audits_find_the_same(small, run):
    plain, gathered = run(small()), run(small(PAIRS))
    assert gathered.keys() - plain.keys() == {"bayesian_distances"}
    np.testing.assert_array_equal(plain["final_models"], gathered["final_models"])
    np.testing.assert_array_equal(plain["log_odds"], gathered["log_odds"])
    disclosed_noise = run(small(PAIRS | {"audit.mode": "oracle"}))
    np.testing.assert_array_equal(
        disclosed_noise["bayesian_distances"], gathered["bayesian_distances"]
    )


def test_a_client_of_one_record_compares_nothing(small, run):
    """Of 4 records one client of three has two, and finds one pair; nobody pairs three."""
    config = small(PAIRS | {"data.records": 4, "privacy.neighbouring": "replace"})
    known = federation.load(config.experiment)
    sizes = [len(known.owned_by(client)) for client in range(3)]
    assert sorted(sizes) == [1, 1, 2]
    transcript = run(config)
    assert transcript["bayesian_distances"].shape == (4, 3, 1)
    found = _stated(config, transcript)
    assert found.epsilon is None
    assert "gather more pairs" in found.note


def test_pairs_that_nobody_can_compare_are_refused_before_anything_is_written(small, tmp_path):
    config = small(PAIRS | {"data.records": 3, "run.out": str(tmp_path / "run")})
    refused = r"bayesian-pairs is 3, but no client has two records"
    with pytest.raises(InputError, match=refused):
        federation.load(config.experiment)
    with pytest.raises(InputError, match=refused):
        server_app.prepare(config)
    assert not list(tmp_path.iterdir())


def test_without_distances_there_is_nothing_to_report(config):
    assert (
        bayesian_report(
            config.training,
            config.privacy.neighbouring,
            config.federation.vantage,
            {},
            0.01,
            privacy.describe(config.scheme, 8.0),
        )
        is None
    )


def test_a_reply_holds_distances_of_evaluated_trials_and_no_gradient(small, tmp_path):
    replies = []

    class Watching(InProcessGrid):
        def execute(self, message):
            reply = super().execute(message)
            if message.metadata.message_type == "train":
                records = reply.content.array_records
                arrays = {name: messages.arrays_of(record) for name, record in records.items()}
                replies.append(
                    {
                        name: {key: array.shape for key, array in found.items()}
                        for name, found in arrays.items()
                    }
                )
            return reply

    config = small(PAIRS)
    grid = Watching(client_app.app, config.federation.clients, to_run_config(config))
    server_app.carry_out(grid, preflight(config), RunDirectory.create(tmp_path / "run", config))
    parameters = 650
    expected = {
        messages.REPLY: {"sum": (8, parameters)},
        messages.DISTANCES: {"distances": (4, 3)},
    }
    assert replies == [expected] * 9


def _stated(config, transcript, delta=0.01):
    planned = privacy.describe(config.scheme, privacy.noise_multiplier(config.scheme))
    found = bayesian_report(
        config.training,
        config.privacy.neighbouring,
        config.federation.vantage,
        transcript,
        delta,
        planned,
    )
    assert found is not None
    return found


def _transcript(distances, std):
    trials, rounds, _ = distances.shape
    # There are more trials than were gathered, with other noise.
    stds = np.full((trials + 3, rounds), 1e9)
    stds[:trials] = std
    return {"bayesian_distances": distances, "noise_stds": stds}


@pytest.fixture
def config(small):
    return small(
        {
            "training.rounds": 30,
            "privacy.rho-beta": 0.0,
            "privacy.noise-multiplier": 8.380227035,
            "privacy.delta": 0.01,
        }
    )


def test_distances_that_are_all_the_clipping_norm_give_the_moments_accountant(config):
    """The closed form without sampling, of which vector V9m is the order 4."""
    sigma = config.privacy.noise_multiplier
    found = _stated(config, _transcript(np.ones((2, 30, 5)), sigma))
    moments = [(30 * a * (a + 1) / (2 * sigma**2) - math.log(0.01)) / a for a in range(1, 1000)]
    assert found.epsilon.mean == pytest.approx(min(moments), rel=1e-9)
    assert found.worst_case_epsilon == pytest.approx(found.epsilon.max, rel=1e-9)
    strict = [(30 * a * (a + 1) / (2 * sigma**2) - math.log(1e-4)) / a for a in range(1, 1000)]
    assert found.epsilon_at_percentile.max == pytest.approx(min(strict), rel=1e-9)
    assert found.orders == (1 + int(np.argmin(moments)), 1 + int(np.argmin(strict)))
    assert found.dp_epsilon == pytest.approx(
        PLD.epsilon(Mechanism.alike(sigma, 30), 0.01), rel=1e-12
    )
    assert found.dp_epsilon < found.epsilon.mean
    assert (found.trials, found.pairs, found.percentile) == (2, 5, 0.99)
    assert found.gamma == 30 * GAMMA
    assert found.note == ""


@pytest.mark.parametrize("rate", [1.0, 0.3])
@pytest.mark.parametrize("neighbouring", Neighbouring)
def test_the_report_adds_up_the_rounds_of_each_trial(rate, neighbouring, small):
    config = small(
        {
            "training.rounds": 4,
            "training.sampling-rate": rate,
            "privacy.neighbouring": neighbouring.value,
            "privacy.rho-beta": 0.0,
            "privacy.noise-multiplier": 2.0,
        }
    )
    generator = np.random.default_rng(0)
    distances = generator.uniform(0, 0.5, (3, 4, 6))
    stds = generator.uniform(1, 3, (3, 4))
    found = _stated(config, _transcript(distances, stds))
    epsilons, bound = [], 2.0 if neighbouring is Neighbouring.REPLACE else 1.0
    for trial in range(3):
        spent = np.zeros(len(ORDERS))
        for step in range(4):
            moments = bayesian.log_moments(
                ORDERS, distances[trial, step], stds[trial, step], rate, neighbouring
            )
            spent += np.minimum(
                bayesian.estimate(moments, 4),
                bayesian.log_moments(ORDERS, bound, stds[trial, step], rate, neighbouring),
            )
        epsilons.append(bayesian.epsilons(spent, ORDERS, 0.01, 4 * GAMMA)[0])
    assert found.epsilon.mean == pytest.approx(np.mean(epsilons), rel=1e-9)
    assert found.epsilon.max == pytest.approx(max(epsilons), rel=1e-9)
    assert found.epsilon.max < found.epsilon_at_percentile.mean


def test_doubt_adds_no_more_than_clipping_allows(config):
    """Two distances tell next to nothing of the expectation; clipping bounds it all the same."""
    distances = np.broadcast_to([0.9, 1.0], (1, 30, 2))
    found = _stated(config, _transcript(distances, 8.0))
    assert found.epsilon.max == pytest.approx(found.worst_case_epsilon, rel=1e-9)
    unclipped = config.model_copy(
        update={"training": config.training.model_copy(update={"clipping": False})}
    )
    unbounded = _stated(unclipped, _transcript(distances, 8.0))
    assert unbounded.epsilon.max > 2 * found.worst_case_epsilon


def test_sampled_replacement_says_that_its_bound_is_loose(small):
    keys = {"training.sampling-rate": 0.3, "privacy.neighbouring": "replace"}
    config = small(keys)
    transcript = _transcript(np.ones((1, 3, 2)), 8.0)
    found = bayesian_report(
        config.training,
        config.privacy.neighbouring,
        config.federation.vantage,
        transcript,
        0.01,
        privacy.describe(config.scheme, 8.0),
    )
    assert found is not None
    assert "convexity" in found.note


def test_a_delta_that_the_estimator_alone_uses_up_is_stated_as_such(config):
    found = _stated(config, _transcript(np.ones((1, 30, 5)), 8.0), 1e-14)
    assert found.epsilon is None
    assert "too small" in found.note
    with pytest.raises(InputError, match=r"delta is 1\.5"):
        _stated(config, _transcript(np.ones((1, 30, 5)), 8.0), 1.5)


def test_rounds_that_left_no_distances_leave_no_bayesian_epsilon(config):
    """An interrupted attempt of 7 rounds with noise of its own; DP's epsilon counts them."""
    planned = privacy.describe(config.scheme, 8.0)
    (rounds,) = planned.rounds
    released = replace(planned, rounds=(rounds, replace(rounds, count=7)))
    found = bayesian_report(
        config.training,
        config.privacy.neighbouring,
        config.federation.vantage,
        _transcript(np.ones((1, 30, 5)), 8.0),
        0.01,
        released,
    )
    assert found is not None
    for name in ("epsilon", "epsilon_at_percentile", "orders", "worst_case_epsilon"):
        assert getattr(found, name) is None, name
    assert "7 rounds that interrupted attempts released have no distances" in found.note
    expected = PLD.epsilon(Mechanism.alike(8.0, 37), 0.01)
    assert found.dp_epsilon == pytest.approx(expected, rel=1e-12)


def test_a_report_without_a_bayesian_epsilon_says_why_and_promises_nothing(small, tmp_path):
    config = small(PAIRS | {"privacy.noise-source": "system", "privacy.stop-at": 99.0})
    directory = RunDirectory.create(tmp_path / "run", config)
    attempt = Ledger(config.scheme, directory).begin(
        range(1), 3, privacy.noise_multiplier(config.scheme)
    )
    attempt.charge(1, range(3))
    report, _, page = _reported(config, tmp_path)
    assert report.bayesian.epsilon is None
    assert "1 rounds that interrupted attempts released have no distances" in page
    assert "stays below the first ε" not in page
    assert "Before that, interrupted attempts had released 1 round." in page


def test_a_step_without_noise_is_infinite_and_says_so(config):
    stds = np.full((1, 30), 8.0)
    stds[0, 3] = 0.0
    found = _stated(config, _transcript(np.ones((1, 30, 5)), stds))
    assert found.epsilon == OverTrials(math.inf, math.inf)
    assert "no noise" in found.note


def _reported(config, tmp_path):
    directory = RunDirectory.create(tmp_path / "run", config)
    grid = InProcessGrid(client_app.app, config.federation.clients, to_run_config(config))
    server_app.carry_out(grid, preflight(config), directory)
    page = (directory.path / "report.html").read_text(encoding="utf-8")
    return results.read(directory), directory.read_arrays("transcript.npz"), page


@pytest.mark.parametrize("mode", ["participant", "oracle"])
@pytest.mark.figures
def test_a_run_without_clipping_claims_no_guarantee_and_measures_all_the_same(
    mode, small, tmp_path
):
    config = small(UNBOUNDED | PAIRS | {"audit.mode": mode, "training.rounds": 4})
    report, transcript, page = _reported(config, tmp_path)
    # Gradients are longer than the norm that sets the unit of the noise.
    assert transcript["present_norms"].max() > 0.5
    assert transcript["bayesian_distances"].max() > 0.5
    np.testing.assert_allclose(transcript["noise_stds"], 4.0 * 0.5)
    assert report.mechanism.effective_noise_multiplier == 0
    assert report.mechanism.noise_multiplier == 4.0
    assert not report.mechanism.clipping
    assert not report.mechanism.dp_guarantee
    assert UNCLIPPED in report.mechanism.dp_note.lower()
    assert report.accounted.epsilon == report.here.limit.epsilon == math.inf
    assert report.here.limit.rho_alpha == report.accounted.rho_beta == 1
    assert {(row.limit.noise_multiplier, row.limit.epsilon) for row in report.rows.values()} == {
        (0, math.inf)
    }
    assert {row.limit.note for row in report.rows.values()} == {UNCLIPPED}
    assert report.empirical.sensitivity_bound is None
    # The adversary works as usual: its log-odds follow the closed form of the realised steps.
    mu = np.sqrt(((transcript["sensitivities"] / transcript["noise_stds"]) ** 2).sum(axis=1))
    assert report.prediction.advantage == pytest.approx(
        np.mean([math.erf(m / 2 / math.sqrt(2)) for m in mu]), rel=1e-6
    )
    found = report.bayesian
    assert found.epsilon.mean > 0
    assert found.dp_epsilon == found.worst_case_epsilon == math.inf
    assert f"∞ ({UNCLIPPED})" in page
    # Of an infinite budget there is a sentence and no figure, and nothing to fall short of.
    assert "has spent ε = ∞ towards" in page
    assert not (tmp_path / "run" / "figures" / "budget.svg").exists()
    assert "Gradients are not clipped: no DP guarantee." in page
    for wrong in (
        "no noise hides",
        "(no noise)",
        "clipping allows.",
        "was clipped",
        "None",
        "ε ≤ ∞",
        "is slack",
        "may be passed, but",
    ):
        assert wrong not in page, wrong


def test_clipping_that_never_binds_is_no_clipping(small, run):
    """The same training, to the last bit, with noise of the same standard deviation."""
    off = run(small(UNBOUNDED | {"training.clipping-norm": 1000.0}))
    on = run(small(UNBOUNDED | {"training.clipping-norm": 1000.0, "training.clipping": True}))
    for name in ("final_models", "log_odds", "noise_stds", "sensitivities"):
        np.testing.assert_array_equal(off[name], on[name])


@pytest.mark.slow
@pytest.mark.figures
def test_a_gathering_run_is_no_dp_release_and_its_report_says_what_bayesian_means(small, tmp_path):
    config = small(PAIRS | {"privacy.noise-source": "system"})
    report, _, page = _reported(config, tmp_path)
    assert not report.mechanism.dp_guarantee
    assert "audit.bayesian-pairs = 0" in report.mechanism.dp_note
    assert report.bayesian.dp_epsilon == pytest.approx(report.here.limit.epsilon, rel=1e-12)
    for words in (
        '<h2 id="bayesian-dp">Bayesian DP',
        "no guarantee for outliers",
        "released without protection",
        "Gradient distances were released: no DP guarantee.",
        "each of 99% of people",
    ):
        assert words in " ".join(page.split()), words


def test_without_pairs_the_report_has_no_bayesian_section(small, tmp_path):
    report, _, page = _reported(small({"privacy.noise-source": "system"}), tmp_path)
    assert report.bayesian is None
    assert report.mechanism.dp_guarantee
    assert "Bayesian" not in page
