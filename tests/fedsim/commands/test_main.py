"""The version is that of this program, or of nothing; what goes wrong is one line."""

import errno
import os

import pytest


def test_the_version_of_a_program_that_shares_its_name_is_refused(fedsim, strangers, monkeypatch):
    monkeypatch.syspath_prepend(strangers)
    status, out, err = fedsim("--version")
    assert (status, out) == (2, "")
    assert "the installed distribution 'fedsim' is another project" in err
    assert len(err.splitlines()) == 1


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT])
def test_a_full_disk_is_one_line_and_status_2(code, fedsim, experiment, monkeypatch):
    def full(*_, **__):
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr("fedsim.federation.runs.run_directory.RunDirectory.log_event", full)
    status, out, err = fedsim("run", experiment, "--out", experiment.with_name("run"), "--quiet")
    assert (status, out) == (2, "")
    assert f"cannot write to '{experiment.with_name('run')}'" in err
    assert "make room there" in err
    assert len(err.splitlines()) == 1
