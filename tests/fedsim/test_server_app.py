"""A run's results depend on its configuration alone, and a killed run goes on where it was."""

import numpy as np
import pytest

from adversaries.errors import InputError
from fedsim import client_app, server_app
from fedsim.configuration import to_run_config
from fedsim.federation.runs.run_directory import RunDirectory
from fedsim.federation.runtimes.inprocess import InProcessGrid
from fedsim.federation.server import nodes
from fedsim.federation.server.plan import fit_batch, preflight, prepare
from fedsim.federation.server.training import Training


@pytest.mark.parametrize("trust", ["central", "local"])
@pytest.mark.parametrize("scale", ["global", "local"])
def test_beliefs_do_not_depend_on_the_size_of_the_batch(trust, scale, small, run):
    mode = {"federation.trust": trust, "privacy.sensitivity": scale}
    whole = run(small(mode))
    parts = run(small(mode | {"trials.batch": 3}))
    assert whole.keys() == parts.keys()
    # Kernels may order a sum differently for another batch: float32 rounding, not more.
    for name in ("worlds", "log_odds", "sensitivities", "noise_stds", "accuracies"):
        np.testing.assert_allclose(parts[name], whole[name], rtol=1e-5, atol=1e-5, err_msg=name)


def test_beliefs_do_not_depend_on_the_number_of_threads(small, run):
    one, three = run(small()), run(small({"run.threads": 3}))
    np.testing.assert_array_equal(one["log_odds"], three["log_odds"])


def test_another_seed_is_another_experiment(small, run):
    assert not np.array_equal(run(small())["log_odds"], run(small({"run.seed": 1}))["log_odds"])


def test_noise_from_the_operating_system_is_another_experiment_each_time(small, run):
    config = small({"privacy.noise-source": "system"})
    first, second = run(config), run(config)
    np.testing.assert_array_equal(first["worlds"], second["worlds"])
    assert not np.array_equal(first["log_odds"], second["log_odds"])


def test_noise_scaled_to_local_sensitivity_makes_every_step_equally_informative(small, run):
    transcript = run(small({"privacy.sensitivity": "local"}))
    ratio = transcript["sensitivities"] / transcript["noise_stds"]
    np.testing.assert_allclose(ratio, ratio[0, 0], rtol=1e-12)


def test_local_trust_hides_behind_the_noise_of_the_others(small, run):
    mode = {"federation.trust": "local", "privacy.noise-multiplier": 3.0, "privacy.rho-beta": 0.0}
    transcript = run(small(mode))
    np.testing.assert_allclose(transcript["noise_stds"], 3.0 * np.sqrt(2))


class Killed(BaseException):
    """What a signal does, in a test."""


def test_a_killed_run_resumes_after_its_last_batch(small, run, tmp_path, monkeypatch):
    config = small({"trials.batch": 2})
    expected = run(config)
    directory = RunDirectory.create(tmp_path / "killed", config)
    grid = InProcessGrid(client_app.app, config.federation.clients, to_run_config(config))
    batches = []

    def run_two_batches(*arguments, **options):
        if len(batches) == 2:
            raise Killed
        batches.append(arguments)
        return start(*arguments, **options)

    start = Training.run
    monkeypatch.setattr(Training, "run", run_two_batches)
    with pytest.raises(Killed):
        server_app.carry_out(grid, preflight(config), directory)
    assert not (directory.path / "report.json").exists()
    batches.clear()
    server_app.carry_out(grid, preflight(config), directory)
    assert len(batches) == 2
    resumed = directory.read_arrays("transcript.npz")
    np.testing.assert_array_equal(resumed["log_odds"], expected["log_odds"])


@pytest.mark.parametrize("trust", ["central", "local"])
def test_every_optimiser_and_schedule_runs_in_any_batch(trust, small, run):
    mode = {"federation.trust": trust, "training.optimizer": "adam", "training.schedule": "cosine"}
    mode |= {"training.learning-rate": 0.05, "training.sampling-rate": 0.5}
    whole, parts = run(small(mode)), run(small(mode | {"trials.batch": 3}))
    # Adam divides by the root of v, and so magnifies the rounding of sums near 0.
    np.testing.assert_allclose(parts["log_odds"], whole["log_odds"], rtol=1e-3, atol=1e-3)
    np.testing.assert_allclose(parts["accuracies"], whole["accuracies"], atol=0.051)


def test_local_steps_do_not_depend_on_the_size_of_the_batch(small, run):
    mode = {"federation.trust": "local", "training.local-steps": 3}
    whole, parts = run(small(mode)), run(small(mode | {"trials.batch": 3}))
    np.testing.assert_allclose(parts["log_odds"], whole["log_odds"], rtol=1e-5, atol=1e-5)


def test_too_few_clients_are_named_and_not_waited_for_without_end(small):
    config = small()
    grid = InProcessGrid(client_app.app, 2, to_run_config(config))
    with pytest.raises(Exception, match=r"2 of 3 clients connected within 0\.1 s"):
        nodes.Nodes(grid, 3).connect(timeout=0.1)


def test_a_batch_without_a_size_takes_what_memory_allows(small, tmp_path):
    place = {"run.out": str(tmp_path / "run"), "trials.batch": 0}
    assert fit_batch(small(place)).trials.batch == 100  # on a CPU
    tight = small(place | {"run.max-memory": "1MB", "trials.count": 400})
    plan = prepare(tight)
    assert 1 < plan.config.trials.batch < 100
    plan.begin()
    assert prepare(tight).batches == plan.batches


def test_batches_that_were_fitted_to_memory_stay_as_they_are(small, tmp_path):
    asked = small({"trials.batch": 8, "run.out": str(tmp_path / "run")})
    fitted = prepare(asked.with_batch(3))
    directory = fitted.begin()
    assert fitted.config.trials.batch == 3
    again = prepare(asked)
    assert again == fitted
    assert again.begin().config.trials.batch == directory.config.trials.batch == 3
    for other in ({"run.seed": 1}, {"trials.batch": 2}):
        with pytest.raises(InputError, match="another configuration"):
            prepare(small(other | {"run.out": str(tmp_path / "run")}))
