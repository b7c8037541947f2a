"""The command line in this process, and an experiment for it."""

from collections.abc import Callable
from pathlib import Path

import pytest

from fedsim.configuration import Config, dump
from fedsim.reports import page as report
from tests.console import exit_of


@pytest.fixture
def fedsim(capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    """Run the command in this process; return exit status, standard output and standard error."""

    def execute(*arguments: object) -> tuple[int, str, str]:
        return exit_of(*arguments), *capsys.readouterr()

    return execute


@pytest.fixture
def experiment(small: Callable[..., Config], tmp_path: Path) -> Path:
    """A small experiment's file."""
    path = tmp_path / "small.toml"
    path.write_text(dump(small()))
    return path


@pytest.fixture
def without_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave out what takes longer than the federation: every run would draw its figures."""
    monkeypatch.setattr(report, "write_figures", lambda *_: [])
    monkeypatch.setattr(report, "render_html", lambda *_: "")
