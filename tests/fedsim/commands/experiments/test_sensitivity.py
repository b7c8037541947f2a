"""`fedsim sensitivity`: a report, one JSON document, one line for bad input."""

import json

import pytest

from tests.console import exit_of

CONFIG = """\
[data]
records = 24
held-out = 20
pool = 30

[model]
name = "linear"

[training]
rounds = 3
clipping-norm = 6.0

[run]
name = "tiny"
device = "cpu"
threads = 1
"""


@pytest.fixture
def config(tmp_path):
    path = tmp_path / "tiny.toml"
    path.write_text(CONFIG)
    return path


def command(*arguments):
    return exit_of("sensitivity", *arguments)


def test_a_configuration_is_all_it_needs(config, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert command(config) == 0
    printed = capsys.readouterr()
    assert printed.err == ""
    said = " ".join(printed.out.split())
    assert "The challenge is the record most dissimilar by euclidean" in said
    [directory] = (tmp_path / "fedsim-runs").iterdir()
    assert directory.name.startswith("tiny-sensitivity-")
    report = json.loads((directory / "report.json").read_text())
    assert report["trials"] == 20
    assert [row["choice"] for row in report["pairs"]].count("max") == 3


@pytest.mark.slow
def test_options_choose_measure_relation_pairs_and_trials(config, tmp_path, capsys):
    options = ["challenge.dissimilarity=cosine", "--top", 2, "--trials", 3, "--json"]
    options += ["privacy.neighbouring=replace", "--out", tmp_path / "out"]
    assert command(config, *options) == 0
    printed = capsys.readouterr().out
    report = json.loads(printed)
    assert report == json.loads((tmp_path / "out" / "report.json").read_text())
    assert (report["dissimilarity"], report["neighbouring"]) == ("cosine", "replace")
    assert (report["trials"], report["pairs_in_all"]) == (3, 24 * 30)
    assert [row["choice"] for row in report["pairs"]].count("min") == 2


def test_what_a_run_left_is_not_replaced(config, tmp_path, capsys):
    (tmp_path / "run").mkdir()
    report = tmp_path / "run" / "report.json"
    report.write_text("{}")
    assert command(config, "--out", report.parent) == 2
    error = capsys.readouterr().err
    assert "holds a run or a report" in error and error.count("\n") == 1
    assert report.read_text() == "{}" and list(report.parent.iterdir()) == [report]
