"""A configuration is refused by name, or is read back unchanged."""

import tomllib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adversaries.errors import InputError
from fedsim import config as configuration
from fedsim.common import configurations
from fedsim.config import Config, Scalar, from_run_config, load, parse_override, to_run_config
from fedsim.privacy.mechanism import Steps

ROOT = Path(__file__).parents[3]

CLIENT: dict[str, configuration.Scalar] = {
    "privacy.unit": "client",
    "privacy.rho-beta": 0.0,
    "privacy.noise-multiplier": 1.0,
}


def test_pyproject_declares_every_key_with_its_default() -> None:
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


def test_no_noise_is_never_taken_for_the_default_target() -> None:
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
def test_the_optimiser_and_its_rate_follow_from_what_is_given(
    changes: dict[str, Scalar], stepping: tuple[str, str, float]
) -> None:
    given = configuration.flatten(configuration.declared())
    for values in (changes, dict(given) | changes):  # a file, and what Flower merges
        training = from_run_config(values).training
        assert (training.optimizer, training.schedule) == stepping[:2]
        assert training.rate == pytest.approx(stepping[2])
        again = from_run_config(to_run_config(from_run_config(values)))
        assert again.training == training


TARGETS = (
    ("privacy.rho-beta", 0.75),
    ("privacy.rho-alpha", 0.2),
    ("privacy.epsilon", 2.0),
    ("privacy.noise-multiplier", 3.0),
)


@pytest.mark.parametrize(("key", "value"), TARGETS)
@pytest.mark.parametrize("earlier", TARGETS)
def test_a_target_that_is_given_later_replaces_the_earlier_one(
    tmp_path: Path, earlier: tuple[str, float], key: str, value: float
) -> None:
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
def test_a_delta_that_nobody_gives_is_a_tenth_of_one_over_the_records(
    given: dict[str, configuration.Scalar], delta: float
) -> None:
    config = from_run_config(given)
    assert config.privacy.delta == delta
    assert from_run_config(to_run_config(config)) == config


@pytest.mark.parametrize(
    "path", sorted(configurations.folder().glob("*.toml")), ids=lambda p: p.stem
)
def test_every_example_is_valid(path: Path) -> None:
    assert load(path).run.name == path.stem


def test_a_dumped_configuration_loads_to_the_same_value(tmp_path: Path) -> None:
    config = from_run_config({"privacy.rho-beta": 0.75, "data.root": 'a "quoted" path'})
    (tmp_path / "config.toml").write_text(configuration.dump(config))
    assert load(tmp_path / "config.toml") == config


def test_a_run_config_has_only_scalars_in_flowers_dotted_form() -> None:
    flat = to_run_config(Config())
    assert all(isinstance(value, bool | int | float | str) for value in flat.values())
    assert from_run_config(flat) == Config()


def test_an_experiment_is_named_for_its_file(tmp_path: Path) -> None:
    (tmp_path / "skewed.toml").write_text("[trials]\ncount = 10\n")
    assert load(tmp_path / "skewed.toml").run.name == "skewed"


@pytest.mark.parametrize(
    ("values", "complaint"),
    [
        (
            {"privacy.rho-bta": 0.9},
            r"unknown key 'privacy.rho-bta'; did you mean 'privacy.rho-beta'",
        ),
        (
            {"federation.fraction": 0.1},
            r"fixed number of clients.*federation.sampling-rate, which samples",
        ),
        ({"rounds": 3}, r"unknown key 'rounds'; did you mean 'training.rounds'"),
        ({"qqq.www": 3}, r"unknown key 'qqq.www'; the tables are data, federation"),
        ({"training.clipping-norm": -1.0}, r"training.clipping-norm is -1.0: .*greater than 0"),
        ({"privacy.rho-beta": 1.2}, r"privacy.rho-beta is 1.2: .*less than 1"),
        ({"privacy.rho-beta": 0.4}, r"a coin toss already gives a belief"),
        ({"federation.clients": 1}, r"federation.clients is 1: .*greater than or equal to 2"),
        ({"federation.clients": "three"}, r"federation.clients is 'three': .*integer"),
        (
            {"federation.trust": "distributed", "privacy.sensitivity": "local"},
            r"sensitivity is 'local', but .*'distributed'.* depend on the data. Set .*\"global\"",
        ),
        (
            {
                "federation.trust": "distributed",
                "training.clipping": False,
                "privacy.rho-beta": 0.0,
                "privacy.noise-multiplier": 1.0,
            },
            r"'distributed'.*nothing bounds their sums. Set training.clipping = true",
        ),
        (
            {"federation.secure-aggregation": "secagg+"},
            r"'secagg\+', but federation.trust is 'central'.*trust = \"distributed\"",
        ),
        ({"federation.clients": 4, "federation.colluding": 3}, r"colluding is 3.*give 0 to 2"),
        (
            {
                "federation.clients": 5,
                "federation.colluding": 2,
                "federation.tolerated-dropouts": 2,
            },
            r"tolerated-dropouts is 2.*no honest client; give 0 to 1",
        ),
        (
            {
                "federation.clients": 6,
                "federation.trust": "distributed",
                "federation.secure-aggregation": "secagg+",
                "federation.tolerated-dropouts": 3,
            },
            r"more than half of the 6 clients that do not collude must answer; give 0 to 2",
        ),
        (
            {
                "federation.clients": 10,
                "federation.trust": "distributed",
                "federation.secure-aggregation": "secagg+",
                "federation.colluding": 4,
                "federation.tolerated-dropouts": 4,
            },
            r"more than half of the 6 clients that do not collude must answer; give 0 to 2",
        ),
        (
            {
                "federation.clients": 3,
                "federation.tolerated-dropouts": 1,
                "training.local-steps": 2,
                "federation.trust": "local",
            },
            r"tolerated-dropouts is 1, but training.local-steps is 2",
        ),
        (
            {
                "federation.clients": 3,
                "federation.tolerated-dropouts": 1,
                "audit.bayesian-pairs": 2,
            },
            r"tolerated-dropouts is 1, but audit.bayesian-pairs",
        ),
        ({"federation.adversary": 7}, r"clients are numbered 0 to 1"),
        (
            {"privacy.rho-beta": 0.9, "privacy.noise-multiplier": 2.0},
            r"privacy.rho-beta and privacy.noise-multiplier are set",
        ),
        ({"privacy.rho-beta": 0.0}, r"are all 0, which means not set"),
        ({"trials.count": 5}, r"[Gg]ive an even number"),
        ({"challenge.replacement": 3}, r"'add-remove'. With this .* no record is replaced"),
        ({"challenge.record": 3, "privacy.neighbouring": "replace"}, r"or neither"),
        ({"challenge.record": 200}, r"numbered 0 to 199"),
        ({"data.records": 1}, r"2 clients need a record each"),
        ({"training.sampling-rate": 1.5}, r"training.sampling-rate is 1.5"),
        (
            {"training.optimizer": "adam", "training.momentum": 0.9},
            r"'adam'. .* is 0.9. Set training.momentum = 0",
        ),
        ({"training.local-learning-rate": 0.1}, r"local-steps is 1 .* No client takes steps"),
        ({"training.local-steps": 2}, r'[Ss]et federation.trust = "local"'),
        (
            {"training.local-steps": 2, "federation.trust": "local", "training.sampling-rate": 0.5}
            | {"privacy.neighbouring": "replace"},
            r"neighbouring is 'replace', but .*sampling-rate is 0.5.*how often one",
        ),
        (
            {
                "training.local-steps": 2,
                "federation.trust": "local",
                "privacy.sensitivity": "local",
            },
            r"measured at the model of the round",
        ),
        (
            {
                "training.local-steps": 2,
                "federation.trust": "local",
                "audit.mode": "oracle",
            },
            r"the noise alone does not determine the belief",
        ),
        (
            {
                "training.sampling-rate": 0.5,
                "privacy.neighbouring": "replace",
                "privacy.sensitivity": "local",
            },
            r"No single distance describes the sampled pair",
        ),
        (
            {"privacy.rho-beta": 0.9, "privacy.mutual-information": 0.1},
            r"privacy.rho-beta and privacy.mutual-information are set",
        ),
        (
            {
                "training.local-steps": 2,
                "federation.trust": "local",
                "audit.bayesian-pairs": 4,
            },
            r"bayesian-pairs is 4.* Set audit.bayesian-pairs = 0, or set training.local-steps = 1",
        ),
        ({"audit.bayesian-pairs": -1}, r"audit.bayesian-pairs is -1"),
        (
            {"training.clipping": False},
            r"privacy.rho-beta is 0.9, but training.clipping is false.*[Gg]ive privacy.noise",
        ),
        (
            {"training.clipping": False, "privacy.rho-beta": 0.0, "privacy.epsilon": 1.0},
            r"privacy.epsilon is 1, but training.clipping is false.*[Gg]ive privacy.noise",
        ),
        (
            {"training.clipping": False, "privacy.rho-beta": 0.0, "privacy.rho-alpha": 0.2},
            r"privacy.rho-alpha is 0.2, but training.clipping is false.*[Gg]ive privacy.noise",
        ),
        (
            {
                "training.clipping": False,
                "privacy.rho-beta": 0.0,
                "privacy.mutual-information": 0.1,
            },
            r"mutual-information is 0.1, but training.clipping is false.*[Gg]ive privacy.noise",
        ),
        (
            {
                "training.clipping": False,
                "privacy.rho-beta": 0.0,
                "privacy.noise-multiplier": 4.0,
                "privacy.stop-at": 1.5,
            },
            r"stop-at is 1\.5, but training.clipping is false.* epsilon is infinite",
        ),
        ({"training.local-epochs": 2}, r"local-epochs = 1, or set privacy.unit = \"client\"\.$"),
        ({"training.batch-size": 8}, r"training.batch-size is 8, but privacy.unit is 'record'"),
        ({"challenge.client": 1, "challenge.record": 3}, "A record that you choose decides"),
        (CLIENT | {"challenge.client": 2}, r"clients are numbered 0 to 1; name one of them"),
        (CLIENT | {"challenge.record": 1}, r"record = -1, or set privacy.unit = \"record\"\.$"),
        (CLIENT | {"training.sampling-rate": 0.5}, r"[Ss]et training.sampling-rate = 1.0, or"),
        (CLIENT | {"training.clipping": False}, r"[Ss]et training.clipping = true, or"),
        (CLIENT | {"audit.bayesian-pairs": 3}, r"[Ss]et audit.bayesian-pairs = 0, or"),
        (
            CLIENT | {"training.local-steps": 2, "federation.trust": "local"},
            r"training.local-steps is 2, but privacy.unit is 'client'",
        ),
        ({"run.precision": "bf16"}, r"compare sums in full precision .*oracle"),
        ({"run.max-memory": "4 gigs"}, r"run.max-memory is '4 gigs'; give a size such as '4GiB'"),
    ],
)
def test_bad_values_are_refused_in_one_line_that_names_the_key(
    values: dict[str, configuration.Scalar], complaint: str
) -> None:
    with pytest.raises(InputError, match=complaint) as caught:
        from_run_config(values)
    assert "\n" not in str(caught.value)


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
def test_a_memory_limit_is_read_in_bytes(text: str, size: int | None) -> None:
    assert from_run_config({"run.max-memory": text}).run.memory_limit == size


def test_files_that_cannot_be_read_are_named(tmp_path: Path) -> None:
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
        ("model.frozen=1", ("model.frozen", "1")),
    ],
)
def test_overrides_are_toml_scalars_or_plain_strings(
    text: str, expected: tuple[str, configuration.Scalar]
) -> None:
    assert parse_override(text) == expected


@given(st.text().filter(lambda text: "=" not in text))
def test_an_override_without_equals_is_refused(text: str) -> None:
    with pytest.raises(InputError, match="KEY=VALUE"):
        parse_override(text)


def test_a_target_that_is_given_takes_the_place_of_the_default() -> None:
    config = from_run_config({"privacy.epsilon": 2.0})
    assert (config.privacy.rho_beta, config.privacy.epsilon) == (0.0, 2.0)
    assert from_run_config(to_run_config(config)) == config
    assert from_run_config({}).privacy.rho_beta == 0.9


@pytest.mark.parametrize("device", ["mps", "xpu:1"])
def test_a_gpu_without_float64_is_refused_with_the_reason(device: str) -> None:
    with pytest.raises(InputError, match=f"run.device is {device}, but .* lack float64.*; set it"):
        from_run_config({"run.device": device})


def test_a_changed_copy_has_objects_of_its_own_values() -> None:
    config = Config()
    assert config.participation.setting.clients == config.federation.clients
    more = config.federation.model_copy(update={"clients": config.federation.clients + 1})
    changed = config.model_copy(update={"federation": more})
    assert changed.participation.setting.clients == config.federation.clients + 1
    assert changed.scheme.federation is more
    assert config.scheme.federation is config.federation
