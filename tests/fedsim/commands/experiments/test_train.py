"""`fedsim train` keeps a model; what is for experiments says that a training is none."""

import html
import json

import numpy as np
import pytest

from fedsim import load_model
from fedsim.configuration.files import dump
from fedsim.reports import model_card, training_report


def test_a_model_is_trained_kept_and_told_from_an_experiment(fedsim, small, tmp_path):
    path, out = tmp_path / "training.toml", tmp_path / "model"
    local = {"federation.trust": "local", "federation.vantage": "server"}
    path.write_text(dump(small(local | {"privacy.noise-source": "system"})))
    status, said, _ = fedsim("train", path, "--out", out)
    assert status == 0, said
    assert "accuracy is" in said
    card = (out / "public" / "MODEL_CARD.md").read_text()
    assert "| the server | sees every client's sum with that client's own noise in it |" in card
    assert "No guarantee" not in card
    # The same command again has nothing to do, and says so with the same numbers.
    again = fedsim("train", path, "--out", out, "--json")
    assert json.loads(again[1]) == json.loads((out / "report.json").read_text())
    assert (again[0], (out / "public" / "MODEL_CARD.md").read_text()) == (0, card)
    status, _, said = fedsim("run", out)
    assert (status, "is a training" in said, said.count("\n")) == (2, True, 1)
    (out / "report.html").unlink()
    status, said, _ = fedsim("report", out, "--json")
    report = json.loads(said)
    assert (status, report["kind"], report["alarms"]) == (0, "training", 0)
    assert set(report["details"]["rounds"][-1]["noise_at_most"]) == {
        "sum",
        *(f"client-{client}" for client in range(3)),
    }
    page = (out / "report.html").read_text()
    assert "for the operator of the server" in page
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


def test_what_a_training_on_own_records_costs_is_known_before_anybody_reads_them(fedsim, tmp_path):
    (tmp_path / "schema.toml").write_text('classes = ["no", "yes"]\n[columns]\none = [0, 1]\n')
    path = tmp_path / "training.toml"
    path.write_text(
        '[data]\nname = "own"\npublic-schema = "schema.toml"\n'
        "[privacy]\nepsilon = 3.0\n[training]\nrounds = 2\n"
    )
    status, said, _ = fedsim("account", path, "--json")
    assert status == 0
    assert json.loads(said)["epsilon"] == pytest.approx(3.0, rel=1e-6)


def test_a_table_is_trained_on_by_a_public_schema_alone(fedsim, small, tmp_path):
    """Without it, the smallest and largest values and rare categories would be in the model."""
    rng = np.random.default_rng(0)
    rows = [f"{a:.3f},{b:.3f},{'yes' if a > b else 'no'}" for a, b in rng.random((80, 2))]
    (tmp_path / "bank.csv").write_text("\n".join(["age,income,default", *rows]))
    path, out = tmp_path / "training.toml", tmp_path / "model"
    path.write_text(dump(small({"federation.trust": "local", "federation.vantage": "server"})))
    asked = {"name": "csv", "root": tmp_path / "bank.csv", "label": "default", "records": 24}
    file = [part for key, value in asked.items() for part in (f"data.{key}={value}",)]
    status, _, said = fedsim("train", path, *file, "--out", out)
    assert (status, said.count("\n"), out.exists()) == (2, 1, False)
    assert "fedsim data TABLE" in said
    proposed = tmp_path / "schema.toml"
    assert fedsim("data", tmp_path / "bank.csv", "--label", "default", "--out", proposed)[0] == 0
    asked["public-schema"] = proposed
    played = ("trials.count=8", "--out", tmp_path / "played")
    file = [part for key, value in asked.items() for part in (f"data.{key}={value}",)]
    status, _, said = fedsim("run", path, *file, *played)
    assert status == 0, said
    secret = "privacy.noise-source=system"
    status, told, said = fedsim("train", path, *file, secret, "--out", out)
    assert (status, told.count("Warning: ")) == (0, 2), said
    card = json.loads((out / "public" / "model_card.json").read_text())
    assert card["uncovered"] == [model_card.MEASURED, model_card.MARKED]
    description = (out / "public" / "model.toml").read_text()
    assert not [row for row in rows if set(row.split(",")[:2]) & set(description.split())]
    page = html.unescape((out / "report.html").read_text())
    assert training_report.PUBLIC not in page
    # Public data need no such warning.
    assert fedsim("train", path, "--out", tmp_path / "digits", secret)[0] == 0
    card = json.loads((tmp_path / "digits" / "public" / "model_card.json").read_text())
    assert card["uncovered"] == []
    assert training_report.PUBLIC in html.unescape((tmp_path / "digits/report.html").read_text())
