"""A configuration is refused by name, or is read back unchanged."""

import tomllib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adversaries.errors import InputError
from fedsim import configuration
from fedsim.common import configurations
from fedsim.configuration import Config, from_run_config, to_run_config
from fedsim.configuration import files as configuration_files
from fedsim.configuration.files import load, parse_override
from fedsim.privacy.mechanism import Steps

ROOT = Path(__file__).parents[3]


def test_pyproject_declares_every_key_with_its_default():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    declared = project["tool"]["flwr"]["app"]["config"]
    assert declared == configuration.declared()
    flat = dict(configuration.flatten(declared))
    open_ = {"privacy.rho-beta": "", "privacy.delta": 0.0}
    open_ |= {"training.optimizer": "", "training.schedule": ""}
    assert to_run_config(Config()) | open_ == flat
    # As Flower merges them with what a run is given.
    assert from_run_config(flat) == Config()
    asked = from_run_config(flat | {"privacy.epsilon": 2.0})
    assert (asked.privacy.epsilon, asked.privacy.rho_beta) == (2.0, 0.0)


def test_no_noise_is_never_taken_for_the_default_target():
    with pytest.raises(InputError, match="are all 0, which means not set"):
        from_run_config({"privacy.noise-multiplier": 0.0})
    with pytest.raises(InputError, match="between 1e-06, which hides nothing, and 1e100"):
        Steps(1e-7)


@pytest.mark.parametrize(
    ("changes", "stepping"),
    [
        ({}, ("normalized", "linear", 40 / 30**0.5)),
        ({"training.rounds": 100}, ("normalized", "linear", 4.0)),
        ({"training.learning-rate": 0.3}, ("sgd", "constant", 0.3)),
        ({"training.momentum": 0.9}, ("sgd", "constant", 0.5)),
        (
            {"training.local-steps": 2, "federation.trust": "local"},
            ("sgd", "constant", 0.5),
        ),
        ({"privacy.unit": "client"}, ("sgd", "constant", 0.5)),
        ({"federation.vantage": "released-model"}, ("sgd", "constant", 0.5)),
        ({"training.optimizer": "adam"}, ("adam", "constant", 0.1)),
        (
            {"training.optimizer": "normalized", "training.schedule": "cosine"},
            ("normalized", "cosine", 40 / 30**0.5),
        ),
    ],
)
def test_the_optimiser_and_its_rate_follow_from_what_is_given(changes, stepping):
    given = configuration.flatten(configuration.declared())
    for values in (changes, dict(given) | changes):  # a file, and what Flower merges
        training = from_run_config(values).training
        assert (training.optimizer, training.schedule) == stepping[:2]
        assert training.rate == pytest.approx(stepping[2])
        again = from_run_config(to_run_config(from_run_config(values)))
        assert again.training == training


def test_a_key_as_python_spells_it_chooses_the_same():
    spelled = Config.model_validate({"training": {"learning_rate": 0.1}})
    assert spelled == Config.model_validate({"training": {"learning-rate": 0.1}})
    assert spelled.training.optimizer == "sgd"


TARGETS = (
    ("privacy.rho-beta", 0.75),
    ("privacy.rho-alpha", 0.2),
    ("privacy.epsilon", 2.0),
    ("privacy.noise-multiplier", 3.0),
)


@pytest.mark.parametrize(("key", "value"), TARGETS)
@pytest.mark.parametrize("earlier", TARGETS)
def test_a_target_that_is_given_later_replaces_the_earlier_one(tmp_path, earlier, key, value):
    file, name = tmp_path / "c.toml", earlier[0].removeprefix("privacy.")
    file.write_text(f"[privacy]\n{name} = {earlier[1]}\n")
    flat = to_run_config(load(file, {key: value}))
    assert {each: flat[each] for each, _ in TARGETS} == dict.fromkeys(dict(TARGETS), 0.0) | {
        key: value
    }
    # What aims at nothing replaces nothing, and two in one place contradict each other.
    assert to_run_config(load(file, {"privacy.delta": 0.01}))[earlier[0]] == earlier[1]
    with pytest.raises(InputError, match="are set"):
        load(file, {"privacy.rho-beta": 0.8, "privacy.epsilon": 1.0})


@pytest.mark.parametrize(
    ("given", "delta"),
    [
        ({}, 1 / 2000),
        ({"data.records": 1000}, 1 / 10_000),
        ({"data.records": 1000, "privacy.delta": 0.0}, 1 / 10_000),
        ({"data.records": 1000, "privacy.delta": 1e-5}, 1e-5),
        ({"privacy.unit": "client", "data.records": 400}, 1 / 4000),
    ],
)
def test_a_delta_that_nobody_gives_is_a_tenth_of_one_over_the_records(given, delta):
    config = from_run_config(given)
    assert config.privacy.delta == delta
    assert from_run_config(to_run_config(config)) == config


@pytest.mark.parametrize(
    "path", sorted(configurations.folder().glob("*.toml")), ids=lambda p: p.stem
)
def test_every_example_is_valid(path):
    assert load(path).run.name == path.stem


def test_a_dumped_configuration_loads_to_the_same_value(tmp_path):
    config = from_run_config({"privacy.rho-beta": 0.75, "data.root": 'a "quoted" path'})
    (tmp_path / "config.toml").write_text(configuration_files.dump(config))
    assert load(tmp_path / "config.toml") == config


def test_a_run_config_has_only_scalars_in_flowers_dotted_form():
    flat = to_run_config(Config())
    assert all(isinstance(value, bool | int | float | str) for value in flat.values())
    assert from_run_config(flat) == Config()


def test_an_experiment_is_named_for_its_file(tmp_path):
    (tmp_path / "skewed.toml").write_text("[trials]\ncount = 10\n")
    assert load(tmp_path / "skewed.toml").run.name == "skewed"


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("4GiB", 4 * 2**30),
        ("500MB", 500_000_000),
        ("1.5 gib", 3 * 2**29),
        ("2048", 2048),
        ("1TiB", 2**40),
        ("", None),
    ],
)
def test_a_memory_limit_is_read_in_bytes(text, size):
    assert from_run_config({"run.max-memory": text}).run.memory_limit == size


def test_files_that_cannot_be_read_are_named(tmp_path):
    with pytest.raises(InputError, match="no configuration file"):
        load(tmp_path / "absent.toml")
    (tmp_path / "broken.toml").write_text("[data\n")
    with pytest.raises(InputError, match="not valid TOML"):
        load(tmp_path / "broken.toml")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("trials.count=10", ("trials.count", 10)),
        ("privacy.delta=1e-5", ("privacy.delta", 1e-5)),
        ("data.root=/some/where", ("data.root", "/some/where")),
        ('data.name="mnist"', ("data.name", "mnist")),
        ("data.root=", ("data.root", "")),
        ("model.trainable=1", ("model.trainable", "1")),
    ],
)
def test_overrides_are_toml_scalars_or_plain_strings(text, expected):
    assert parse_override(text) == expected


@given(st.text().filter(lambda text: "=" not in text))
def test_an_override_without_equals_is_refused(text):
    with pytest.raises(InputError, match="KEY=VALUE"):
        parse_override(text)


def test_a_target_that_is_given_takes_the_place_of_the_default():
    config = from_run_config({"privacy.epsilon": 2.0})
    assert (config.privacy.rho_beta, config.privacy.epsilon) == (0.0, 2.0)
    assert from_run_config(to_run_config(config)) == config
    assert from_run_config({}).privacy.rho_beta == 0.9


@pytest.mark.parametrize("device", ["mps", "xpu:1"])
def test_a_gpu_without_float64_is_refused_with_the_reason(device):
    with pytest.raises(InputError, match=f"run.device is {device}, but .* lack float64.*; set it"):
        from_run_config({"run.device": device})
