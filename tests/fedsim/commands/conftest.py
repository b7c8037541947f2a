"""The command line in this process, and an experiment for it."""

import pytest

from fedsim.configuration.files import dump
from fedsim.reports import page as report
from tests.console import exit_of


@pytest.fixture
def fedsim(capsys):
    """Run the command in this process; return exit status, standard output and standard error."""

    def execute(*arguments):
        return exit_of(*arguments), *capsys.readouterr()

    return execute


@pytest.fixture
def experiment(small, tmp_path):
    """A small experiment's file."""
    path = tmp_path / "small.toml"
    path.write_text(dump(small()))
    return path


@pytest.fixture
def without_pages(monkeypatch):
    """Leave out what takes longer than the federation: every run would draw its figures."""
    monkeypatch.setattr(report, "write_figures", lambda *_: [])
    monkeypatch.setattr(report, "render_html", lambda *_: "")
