"""`fedsim train` keeps a model; what is for experiments says that a training is none."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from fedsim import load_model
from fedsim.config import Config, dump

Command = Callable[..., tuple[int, str, str]]


def test_a_model_is_trained_kept_and_told_from_an_experiment(
    fedsim: Command, small: Callable[..., Config], tmp_path: Path
) -> None:
    path, out = tmp_path / "training.toml", tmp_path / "model"
    local = {"federation.trust": "local", "federation.vantage": "server"}
    path.write_text(dump(small(local | {"privacy.noise-source": "system"})))
    status, _, said = fedsim("train", path, "--out", out)
    assert status == 0, said
    assert "Accuracy" in said
    card = (out / "public" / "MODEL_CARD.md").read_text()
    assert "| the server | sees every client's sum under that client's own noise |" in card
    assert "No guarantee" not in card
    # The same command again has nothing to do, and says so with the same numbers.
    again = fedsim("train", path, "--out", out)
    assert (again[0], (out / "public" / "MODEL_CARD.md").read_text()) == (0, card)
    for arguments in (("run", "--resume", out), ("run", out / "config.toml")):
        status, _, said = fedsim(*arguments)
        assert (status, "is of a training" in said, said.count("\n")) == (2, True, 1)
    (out / "report.html").unlink()
    status, said, _ = fedsim("report", out, "--json")
    report = json.loads(said)
    assert (status, report["kind"], report["alarms"]) == (0, "training", [])
    assert set(report["rounds"][-1]["noise_at_most"]) == {
        "sum",
        *(f"client-{client}" for client in range(3)),
    }
    page = (out / "report.html").read_text()
    assert "for whoever runs the server" in page
    assert page.count("<figure>") == 2
    # What is handed on is enough to predict by.
    assert sorted(path.name for path in (out / "public").iterdir()) == [
        "MODEL_CARD.md",
        "model.safetensors",
        "model.toml",
        "model_card.json",
    ]
    (out / "public").rename(tmp_path / "handed-on")
    assert load_model(tmp_path / "handed-on") is not None


def test_what_a_training_on_own_records_costs_is_known_before_anybody_reads_them(
    fedsim: Command, tmp_path: Path
) -> None:
    (tmp_path / "schema.toml").write_text('classes = ["no", "yes"]\n[columns]\none = [0, 1]\n')
    path = tmp_path / "training.toml"
    path.write_text(
        '[data]\nname = "own"\npublic-schema = "schema.toml"\n'
        "[privacy]\nepsilon = 3.0\n[training]\nrounds = 2\n"
    )
    status, said, _ = fedsim("account", path, "--json")
    assert status == 0
    assert json.loads(said)["epsilon"] == pytest.approx(3.0, rel=1e-6)
