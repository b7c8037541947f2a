"""What refusals.toml lists is refused in one line, with exit status 2, and nothing is left."""

import hashlib
import shlex
import tomllib
from pathlib import Path

import pytest

from .corpus import configuration, fedsim, options
from .golden import inputs

ROWS = tomllib.loads(Path(__file__).with_name("refusals.toml").read_text(encoding="utf-8"))


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    inputs.table()
    (tmp_path / "empty.csv").write_text("")
    (tmp_path / "broken.toml").write_text("[run\n")
    (tmp_path / "text.toml").write_text('[training]\nrounds = "many"\n')
    (tmp_path / "words.bin").write_bytes(b"\x00\x01 no result \xff")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "kept.txt").write_text("kept")
    return tmp_path


def _content(folder):
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in folder.rglob("*")
        if path.is_file()
    }


def _refused(words, says, folder):
    before = _content(folder)
    ended = fedsim(words, folder)
    assert ended.status == 2, ended
    assert ended.errors.startswith("fedsim: "), ended.errors
    assert ended.errors.count("\n") == 1, ended.errors
    assert says in ended.errors
    assert _content(folder) == before


@pytest.mark.parametrize("row", ROWS["configurations"], ids=lambda row: " ".join(row["set"]))
def test_a_configuration_is_refused(row, folder):
    _refused(("run", configuration("digits"), *options(row["set"])), row["says"], folder)


@pytest.mark.parametrize("row", ROWS["commands"], ids=lambda row: row["run"])
def test_a_command_is_refused(row, folder):
    words = row["run"].format_map(
        {name: configuration(name) for name in ("digits", "train-digits")}
    )
    _refused(tuple(shlex.split(words)), row["says"], folder)
