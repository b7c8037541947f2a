"""The version is that of this program, or of nothing; what goes wrong is one line."""

import errno
import os
import shutil
import subprocess
import sys

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


@pytest.mark.outer
@pytest.mark.parametrize(
    ("shell", "place"),
    [
        ("bash", ".local/share/bash-completion/completions/fedsim"),
        ("zsh", ".zsh/completions/_cyclopts_fedsim"),
        ("fish", ".config/fish/completions/fedsim.fish"),
    ],
)
def test_commands_and_options_are_completed_in_each_shell(shell, place, tmp_path):
    command = [sys.executable, "-m", "fedsim", "--install-completion", shell]
    done = subprocess.run(command, env=os.environ | {"HOME": str(tmp_path)}, check=False)
    assert done.returncode == 0
    script = (tmp_path / place).read_text()
    assert all(word in script for word in ("choose", "deploy", "--max-belief"))
    if shell != "bash" or not shutil.which("bash"):
        return
    asked = (
        f"source {tmp_path / place}; COMP_WORDS=(fedsim choose --max-b); COMP_CWORD=2; "
        "_fedsim fedsim --max-b choose; echo ${COMPREPLY[@]}"
    )
    said = subprocess.run(["bash", "-c", asked], capture_output=True, text=True, check=True)
    assert said.stdout.split() == ["--max-belief"]
