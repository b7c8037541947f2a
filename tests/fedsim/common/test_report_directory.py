"""A report about persons is private, and whole or not there."""

import errno
import json
import stat

import pytest

from adversaries.errors import InputError
from fedsim.common import report_directory


def mode(path):
    return stat.S_IMODE(path.stat().st_mode)


def test_only_its_client_may_read_a_report(tmp_path):
    directory = report_directory.create(tmp_path / "deep" / "report")
    (directory / "report.json").write_text("of before")
    (directory / "report.json").chmod(0o644)
    page = report_directory.write_report(directory, {"epsilon": 1.5}, "<html>")
    assert mode(directory) == 0o700
    assert (mode(page), page.read_text()) == (0o600, "<html>")
    assert mode(directory / "report.json") == 0o600
    assert json.loads((directory / "report.json").read_text()) == {"epsilon": 1.5}
    assert sorted(path.name for path in directory.iterdir()) == ["report.html", "report.json"]


def test_a_report_that_fails_leaves_the_one_before(tmp_path, monkeypatch):
    directory = report_directory.create(tmp_path)
    report_directory.write_report(directory, {"run": 1}, "first")

    def full(descriptor):
        raise OSError(errno.ENOSPC, "no space left")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(OSError, match="no space left"):
        report_directory.write_report(directory, {"run": 2}, "second")
    assert json.loads((directory / "report.json").read_text()) == {"run": 1}
    assert (directory / "report.html").read_text() == "first"


def test_a_check_leaves_nothing_behind_and_takes_nothing_away(tmp_path):
    report_directory.check_writable(tmp_path / "deep" / "report")
    assert list(tmp_path.iterdir()) == []
    kept = tmp_path / "kept"
    kept.mkdir()
    report_directory.check_writable(kept)
    assert list(tmp_path.rglob("*")) == [kept]
    (tmp_path / "file").touch()
    for place in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(InputError, match="name another directory with --out"):
            report_directory.check_writable(place)


@pytest.mark.parametrize("name", ["report.json", "config.toml", "ledger.jsonl"])
def test_a_run_or_a_report_is_not_replaced(tmp_path, name):
    (tmp_path / "notes.txt").write_text("mine")
    report_directory.check_new(tmp_path)
    report_directory.check_new(tmp_path / "deep" / "report")
    (tmp_path / name).write_text("of before")
    with pytest.raises(InputError, match=f"since it has {name}; name a new directory with --out"):
        report_directory.check_new(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([name, "notes.txt"])
    assert (tmp_path / name).read_text() == "of before"


def test_a_report_of_the_same_kind_alone_is_replaced(tmp_path):
    path = tmp_path / "report.json"
    path.write_text('{"kind": "choice"}')
    report_directory.check_new(tmp_path, replacing="choice")
    for other in ('{"kind": "membership inference"}', '{"name": "digits"}'):
        path.write_text(other)
        with pytest.raises(InputError, match=r"since it has report.json; name a new directory"):
            report_directory.check_new(tmp_path, replacing="choice")
    for damaged in ("[]", '{"kind": "swe'):
        path.write_text(damaged)
        with pytest.raises(InputError, match="delete it and repeat the command"):
            report_directory.check_new(tmp_path, replacing="choice")
        assert path.read_text() == damaged


def test_a_directory_that_cannot_be_made_is_one_line(tmp_path):
    (tmp_path / "file").touch()
    for place in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(InputError, match="name another directory with --out"):
            report_directory.create(place)
