"""The `fedsim` command in this process, as a user types it."""

import io
import os
import shlex
import sys
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from unittest.mock import patch

import pytest

from fedsim.commands.main import main


@dataclass(frozen=True)
class Result:
    """How a command ended: its exit status and what it wrote to the two outputs."""

    exit_code: int
    stdout: str
    stderr: str

    @property
    def output(self):
        return self.stdout + self.stderr


def run(arguments, columns=200, answers=None):
    """Run a command on a console of some columns; answers: lines of its standard input."""
    words = shlex.split(arguments) if isinstance(arguments, str) else [*arguments]
    output, errors = io.StringIO(), io.StringIO()
    environment = {"COLUMNS": f"{columns}", "NO_COLOR": "1"}
    given = sys.stdin if answers is None else io.StringIO(answers)
    with (
        patch.dict(os.environ, environment),
        patch.object(sys, "stdin", given),
        redirect_stdout(output),
        redirect_stderr(errors),
        pytest.raises(SystemExit) as ended,
    ):
        main(words)
    return Result(int(ended.value.code or 0), output.getvalue(), errors.getvalue())


def exit_of(*arguments):
    """Return the exit status of a command, which writes to the outputs of this process."""
    with pytest.raises(SystemExit) as ended:
        main([*map(str, arguments)])
    return int(ended.value.code or 0)


def refusal(arguments):
    """Return the one line with which a command refuses its arguments."""
    result = run(arguments)
    assert (result.exit_code, result.stdout) == (2, ""), result.output
    assert result.stderr.count("\n") == 1
    return result.stderr.strip().removeprefix("fedsim: ")
