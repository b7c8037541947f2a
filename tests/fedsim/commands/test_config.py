"""`fedsim config`, and bundled configurations by their names."""

import json

from fedsim.configuration import KNOWN_KEYS, Config, documentation, to_run_config

LINES = {ord(each): " " for each in "│┌┐└┘─┬┴"}


def test_every_key_is_listed_with_its_default_and_a_meaning(fedsim):
    status, out, err = fedsim("config", "--json")
    assert (status, err) == (0, "")
    keys = json.loads(out)["keys"]
    assert [key["key"] for key in keys] == list(KNOWN_KEYS)
    assert {key["key"]: key["default"] for key in keys} == to_run_config(Config())
    assert [key["key"] for key in keys if len(key["meaning"]) < 5] == []


def test_the_list_has_one_line_for_each_key_and_the_usual_ones_first(fedsim):
    status, out, _ = fedsim("config")
    assert status == 0
    lines = out.splitlines()
    assert max(map(len, lines)) <= 100
    listed = [line.split(" = ")[0] for line in lines if " = " in line]
    assert sorted(listed) == sorted(KNOWN_KEYS)
    assert lines[0] == "Most often changed"
    assert (lines[11], listed[:10]) == ("", list(documentation.FIRST))
    (line,) = [line for line in lines if line.startswith("privacy.unit = ")]
    assert line.endswith('  Unit of protection. "record" or "client".')


def test_a_key_is_explained_with_what_it_goes_with(fedsim):
    status, out, _ = fedsim("config", "training.local-steps", "--json")
    found = json.loads(out)
    assert status == 0
    assert (found["type"], found["allowed"]) == ("whole number", "at least 1")
    (row, *_) = [row for row in found["goes_with"] if "local-steps is above 1" in row["where"]]
    assert row["needs"] == 'federation.trust is "local"'
    _, out, _ = fedsim("config", "privacy.unit")
    assert '"record" or "client"' in out


def test_an_explanation_has_type_values_and_default(fedsim):
    _, out, _ = fedsim("config", "training.optimizer")
    said = " ".join(out.translate(LINES).split())
    assert 'Type text Values sgd, adam, normalized Default "normalized" Change' in said
    _, out, _ = fedsim("config", "privacy.delta")
    said = " ".join(out.translate(LINES).split())
    assert "Type number Values above 0 and below 1 Default 0.0005" in said


def test_a_bundled_configuration_goes_by_its_name_where_there_is_no_such_file(
    fedsim, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    status, out, _ = fedsim("init", "--list", "--json")
    names = [each["name"] for each in json.loads(out)["examples"]]
    assert (status, "digits" in names) == (0, True)
    for given in ("digits", "digits.toml", "configs/digits.toml"):
        status, out, err = fedsim("data", given, "--json")
        assert (status, json.loads(out)["dataset"]["name"] == "digits") == (0, True)
        assert ("using the bundled" in err) == ("." in given)  # a name alone is meant
    (tmp_path / "digits.toml").write_text("[data]\nrecords = 4\nnonsense = 1\n")
    status, _, err = fedsim("data", "digits.toml")
    assert (status, "nonsense" in err) == (2, True)  # a user's own goes first
    status, _, err = fedsim("data", "elsewhere/digits.toml")
    assert (status, "fedsim init --list" in err) == (2, True)


def test_a_runs_directory_in_place_of_a_configuration_is_named_as_such(fedsim, tmp_path):
    (tmp_path / "config.toml").write_text("[data]\nrecords = 4\n")
    for command in ("attack", "data"):
        status, out, err = fedsim(command, tmp_path)
        assert (status, out, err.count("\n")) == (2, "", 1)
        assert f"is a run directory; continue it with fedsim run {tmp_path}" in err
        assert str(tmp_path / "config.toml") in err
