"""`fedsim registry`: an entry that the registry accepts, with no fact invented."""

from pathlib import Path

import pytest
import yaml

from fedsim.cli.main import main
from fedsim.report.registry_entry import as_yaml

SMALL = {
    "run.job": "training",
    "model.name": "linear",
    "data.records": 24,
    "data.held-out": 20,
    "training.rounds": 2,
    "privacy.epsilon": 8.0,
    "privacy.noise-source": "system",
    "federation.trust": "local",
    "privacy.delta": 1e-5,
}

OWNER = ("--fact", "curator=A; B", "--fact", "region=EU", "--fact", "author=Me")

SCHEMA = Path(__file__).parents[3] / "../shared/data/registry/deployments-schema.yaml"


def run(*words: str) -> int:
    with pytest.raises(SystemExit) as ended:
        main([*words])
    return int(ended.value.code or 0)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("trained")
    (place / "train.toml").write_text(
        '[run]\nname = "A model: of digits"\npurpose = "An example"\n'
    )
    changes = [f"--set={key}={value}" for key, value in SMALL.items() if key != "run.job"]
    words = ["train", str(place / "train.toml"), "--out", str(place / "model"), "--quiet"]
    assert run(*words, *changes) == 0
    return place / "model"


def test_a_training_becomes_an_entry_with_what_its_owner_knows(
    trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    schema = ("--schema", str(SCHEMA)) if SCHEMA.is_file() else ()
    assert run("registry", str(trained), *OWNER, "--out", str(tmp_path / "e.yaml"), *schema) == 0
    made = yaml.safe_load((tmp_path / "e.yaml").read_text(encoding="utf-8"))
    basic, loss = made["deployment"]["basic"], made["deployment"]["privacy_loss"]
    assert (made["tier"], made["status"], made["url_slug"]) == (3, "Draft", "a_model_of_digits")
    assert basic["data_curators"] == ["A", "B"]
    assert (basic["name"], basic["intended_use"]) == ("A model: of digits", "An example")
    assert loss["privacy_parameters"]["delta"] == 1e-5
    assert loss["privacy_parameters"]["epsilon"] == pytest.approx(8)  # towards the released model
    assert "not rehearsed" in basic["description"]
    capsys.readouterr()
    assert run("registry", str(trained), *OWNER) == 0
    assert yaml.safe_load(capsys.readouterr().out) == made


@pytest.mark.parametrize(
    ("words", "why"),
    [
        ((), "needs facts that only you know; give --fact curator="),
        ((*OWNER, "--fact", "colour=red"), "--fact colour: the registry has no place for it"),
        ((*OWNER, "--fact", "sector=Toys"), "give one of Technology"),
        ((*OWNER, "--fact", "publication-date=May"), "give it as YYYY-MM-DD"),
        ((*OWNER, "--fact", "region"), "has no value"),
        ((*OWNER, "--fact", "slug= "), "give --fact slug="),
        ((*OWNER, "--schema", "none.yaml"), "cannot read the schema"),
    ],
)
def test_what_the_registry_has_no_place_for_is_one_line(
    trained: Path, words: tuple[str, ...], why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("registry", str(trained), *words) == 2
    said = capsys.readouterr().err
    assert why in said
    assert said.count("\n") == 1


def test_text_of_any_kind_is_read_back_from_yaml() -> None:
    values = {"a": 'x: "y" # z\n- \U0001f600', "b": [1, "no"], "c": {"d": 1e-9, "e": 0.5, "f": 3}}
    assert yaml.safe_load(as_yaml(values)) == values
