"""The version is that of this program, or of nothing; what goes wrong is one line."""

import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest


def test_the_version_of_a_program_that_shares_its_name_is_refused(
    fedsim: Callable[..., tuple[int, str, str]],
    strangers: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.syspath_prepend(strangers)
    status, out, err = fedsim("--version")
    assert (status, out) == (2, "")
    assert "the installed distribution 'fedsim' is another project" in err
    assert len(err.splitlines()) == 1


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT])
def test_a_full_disk_is_one_line_and_status_2(
    code: int,
    fedsim: Callable[..., tuple[int, str, str]],
    experiment: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr("fedsim.federation.runs.run_directory.RunDirectory.log_event", full)
    status, out, err = fedsim("run", experiment, "--out", experiment.with_name("run"), "--quiet")
    assert (status, out) == (2, "")
    assert f"cannot write to '{experiment.with_name('run')}'" in err
    assert "make room there" in err
    assert len(err.splitlines()) == 1
