"""`fedsim data` as a user types it: what is there, data distribution, one line for bad input."""

import json
import re

import pytest

import fedsim as api
from fedsim.learning.data import DATASETS


@pytest.fixture
def fedsim(fedsim):
    """`fedsim data`."""
    return lambda *arguments: fedsim("data", *arguments)


def test_without_a_configuration_the_datasets_are_listed(fedsim):
    status, out, err = fedsim()
    assert (status, err) == (0, "")
    assert all(name in out for name in DATASETS)
    status, out, err = fedsim("--json")
    listed = json.loads(out)["datasets"]
    assert (status, err) == (0, "")
    assert [entry["name"] for entry in listed] == list(DATASETS)
    assert set(listed[0]) == {"name", "what", "files", "licence"}


def test_json_says_what_the_data_are_and_who_holds_them(fedsim, experiment):
    status, out, err = fedsim(experiment, "--json", "federation.partition=dirichlet")
    assert (status, err) == (0, "")
    report = json.loads(out)
    assert report["dataset"]["name"] == "digits"
    assert report["dataset"]["records"] == 1797
    parts = {name: part["records"] for name, part in report["parts"].items()}
    assert parts == {"members": 24, "held_out": 20, "pool": 30}
    clients = report["clients"]
    assert [client["client"] for client in clients] == [0, 1, 2]
    assert sum(client["records"] for client in clients) == 24
    assert sum(client["share"] for client in clients) == pytest.approx(1)
    totals = [sum(counts) for counts in zip(*(client["labels"] for client in clients), strict=True)]
    assert totals == report["parts"]["members"]["labels"]
    sizes = [client["records"] for client in clients]
    assert report["sizes"]["min"] == min(sizes)
    assert report["sizes"]["max"] == max(sizes)
    assert report["partition"]["dirichlet_alpha"] == 0.5
    assert report["partition"]["key"] is None


def test_the_terminal_shows_a_row_for_each_client(fedsim, experiment, tmp_path):
    before = set(tmp_path.iterdir())
    status, out, err = fedsim(experiment)
    assert (status, err) == (0, "")
    assert re.findall(r"^ *([012]) +8 +33\.3%", out, re.M) == ["0", "1", "2"]
    assert "3 clients hold 8 records each" in out
    assert set(tmp_path.iterdir()) == before


def test_many_clients_are_cut_on_the_terminal_and_said_to_be(fedsim, experiment):
    assert "Clients not shown: 4" in fedsim(experiment, "federation.clients=24")[1]


def test_a_key_is_shown_with_the_values_of_every_client(fedsim, experiment):
    key = ("federation.partition=key", "federation.partition-key=label")
    report = json.loads(fedsim(experiment, "--json", *key)[1])
    assert report["partition"]["key"] == "label"
    held = [client["key_values"] for client in report["clients"]]
    assert sum(held) == report["partition"]["key_values"]
    for client in report["clients"]:
        for value, records in client["largest_key_values"].items():
            assert client["labels"][int(value)] == records
    assert f"{held[0]} values; " in " ".join(fedsim(experiment, *key)[1].split())


OWN = """
[data]
name = "own"
public-schema = "schema.toml"
records = 60
[federation]
clients = 2
"""


def test_clients_own_records_are_counted_where_one_machine_may_read_all(fedsim, tmp_path):
    schema = 'classes = ["no", "yes"]\n[columns]\nage = [0, 110]\n'
    (tmp_path / "schema.toml").write_text(schema)
    (tmp_path / "own.toml").write_text(OWN)
    (tmp_path / "client-0.csv").write_text("age,label\n" + "30,no\n40,yes\n" * 10)
    (tmp_path / "client-1.csv").write_text("age,label\n" + "50,no\n" * 10)
    root = f"data.root={tmp_path}/client-{{client}}.csv"
    status, out, err = fedsim(tmp_path / "own.toml", "--json", root)
    assert (status, err) == (0, "")
    assert [client["labels"] for client in json.loads(out)["clients"]] == [[10, 10], [10, 0]]
    found = api.data(tmp_path / "own.toml", root)
    assert found.report == json.loads(out)
    status, out, err = fedsim(tmp_path / "own.toml")
    assert (status, out) == (2, "")
    assert "each client has its records on its own machine" in err
