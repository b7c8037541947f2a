"""A transcript that no run could have left is refused, and what runs leave is not."""

import copy

import numpy as np
import pytest

from adversaries.errors import InputError
from fedsim import client_app, server_app
from fedsim.configuration import to_run_config
from fedsim.federation.runs import batches, run_transcript
from fedsim.federation.runs.run_directory import RunDirectory
from fedsim.federation.runtimes.inprocess import InProcessGrid
from fedsim.federation.server.plan import preflight
from fedsim.reports import page


def played(config, path):
    directory = RunDirectory.create(path, config)
    grid = InProcessGrid(client_app.app, config.federation.clients, to_run_config(config))
    server_app.carry_out(grid, preflight(config), directory)
    return directory


def altered(arrays, name, at, value):
    changed = arrays[name].copy()
    changed[at] = value
    return arrays | {name: changed}


DAMAGE = {
    **{
        f"no {name}": (
            lambda arrays, name=name: {key: arrays[key] for key in arrays if key != name},
            f"it has no '{name}'",
        )
        for name in (
            *run_transcript.NEEDED,
            *(f"residual_{name}" for name in run_transcript.RESIDUALS),
        )
    },
    **{
        f"short {name}": (
            lambda arrays, name=name: arrays | {name: arrays[name][:3]},
            f"its '{name}' has the shape \\[3",
        )
        for name in (
            "worlds",
            "residual_squares",
            "sensitivities",
            "challenge_loss",
            "population_losses",
            "final_models",
        )
    },
    "one row of losses": (
        lambda arrays: arrays | {"losses": arrays["losses"][:1]},
        r"its 'losses' has the shape \[1, 4\]",
    ),
    "all arrays cut to the same trials": (
        lambda arrays: {
            name: array[:5] if len(array) == 8 else array for name, array in arrays.items()
        },
        "is damaged .it is not of trials",
    ),
    "no experiment": (
        lambda arrays: {name: arrays[name] for name in arrays if name != batches.EXPERIMENT},
        "it has no 'experiment'",
    ),
    "an unreadable experiment": (
        lambda arrays: arrays | {batches.EXPERIMENT: np.frombuffer(b"[]", np.uint8)},
        "is damaged",
    ),
    "no trials": (
        lambda arrays: arrays | {"log_odds": arrays["log_odds"][:0]},
        "is damaged .it is not of trials",
    ),
    "flat log-odds": (lambda arrays: arrays | {"log_odds": np.zeros(8)}, "is damaged"),
    "text": (
        lambda arrays: arrays | {"challenge_loss": np.array(["x"] * 8)},
        "its 'challenge_loss' is of type",
    ),
    "a rate of 7": (
        lambda arrays: altered(arrays, "true_positive_rate", 2, 7.0),
        "its 'true_positive_rate' has values that are not from 0 to 1",
    ),
    "a rate of NaN": (
        lambda arrays: altered(arrays, "accuracies", (1, 1), np.nan),
        "its 'accuracies' has values that are not from 0 to 1",
    ),
    "negative noise": (
        lambda arrays: altered(arrays, "noise_stds", (1, 1), -1.0),
        "its 'noise_stds' has values that are negative",
    ),
    "losses of NaN": (
        lambda arrays: altered(arrays, "challenge_loss", slice(None), np.nan),
        "its 'challenge_loss' contains NaN",
    ),
    "NaN in the middle": (
        lambda arrays: altered(arrays, "log_odds", (3, 1), np.nan),
        "its 'log_odds' contains a number after NaN",
    ),
}


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """Return a function that runs a configuration, once for all tests here."""
    kept = []

    def once(config):
        if not kept:
            kept.append(played(config, tmp_path_factory.mktemp("kept") / "run"))
        return kept[0]

    return once


@pytest.mark.parametrize(("damage", "complaint"), DAMAGE.values(), ids=DAMAGE)
def test_damage_is_one_line_with_the_remedy(damage, complaint, small, finished):
    directory = finished(small())
    arrays = directory.read_arrays("transcript.npz")
    report = (directory.path / "report.json").read_bytes()
    try:
        directory.write_arrays("transcript.npz", damage(arrays))
        with pytest.raises(InputError, match=f"{complaint}.*fedsim run") as refused:
            page.write_report(directory)
    finally:
        directory.write_arrays("transcript.npz", arrays)
    assert "\n" not in str(refused.value)
    assert (directory.path / "report.json").read_bytes() == report


FALSE = {
    "more noise": ("noise_multiplier", lambda facts: facts.update(noise_multiplier=123.0)),
    "other data": ("dataset", lambda facts: facts.update(dataset="mnist")),
    "more trials": ("planned_trials", lambda facts: facts.update(planned_trials=80)),
    "more clients": ("client_sizes", lambda facts: facts["client_sizes"].append(0)),
    "fewer records": ("client_sizes", lambda facts: facts["client_sizes"].__setitem__(1, 1)),
    "an adversary whose record it is": (
        "challenge.adversary",
        lambda facts: facts["challenge"].update(adversary=facts["challenge"]["client"]),
    ),
    "an adversary who is nobody": (
        "challenge.adversary",
        lambda facts: facts["challenge"].update(adversary=7),
    ),
    "nobody's record": ("challenge.client", lambda facts: facts["challenge"].update(client=7)),
}


@pytest.mark.parametrize(("key", "change"), FALSE.values(), ids=FALSE)
def test_facts_that_the_other_files_contradict_are_damage_too(key, change, small, finished):
    directory = finished(small())
    facts = directory.read_facts()
    try:
        false = copy.deepcopy(facts)
        change(false)
        directory.write_json("facts.json", false)
        said = rf"facts.json .*its '{key}' contradicts another file.*delete it"
        with pytest.raises(InputError, match=said):
            page.write_report(directory)
    finally:
        directory.write_json("facts.json", facts)


def test_a_model_that_diverged_keeps_its_own_message(small, finished):
    directory = finished(small())
    arrays = directory.read_arrays("transcript.npz")
    try:
        infinite = altered(arrays, "log_odds", (3, slice(1, None)), np.inf)
        directory.write_arrays("transcript.npz", infinite)
        page.write_report(directory)
        directory.write_arrays(
            "transcript.npz", altered(arrays, "log_odds", (3, slice(1, None)), np.nan)
        )
        assert np.isnan(run_transcript.read(directory)["log_odds"][3, -1])
        with pytest.raises(InputError, match="diverged"):
            page.write_report(directory)
    finally:
        directory.write_arrays("transcript.npz", arrays)
        page.write_report(directory)


@pytest.mark.parametrize(
    "changes",
    [
        {"privacy.unit": "client"},
        {"challenge.kind": "gradient"},
        {"challenge.kind": "mislabelled"},
        {"federation.vantage": "released-model"},
        {"federation.trust": "distributed", "audit.vantages": "all"},
        {"audit.mode": "oracle", "audit.vantages": "all"},
        {"training.sampling-rate": 0.5},
        {"training.local-steps": 2, "federation.trust": "local"},
        {"trials.batch": 3},
        {"canaries.count": 20, "audit.attacks": "none"},
        {"training.rounds": 1, "trials.batch": 2},
    ],
    ids=" ".join,
)
def test_what_runs_leave_is_read(changes, small, tmp_path):
    directory = played(small(changes), tmp_path / "run")
    arrays = run_transcript.read(directory)
    assert len(arrays["log_odds"]) == len(arrays["worlds"])
