"""What `fedsim --help` says without importing a command, and what all commands have in common."""

import inspect
import re
import subprocess
import sys

import pytest

import fedsim
from fedsim.commands import main

SLOW = ("torch", "flwr", "scipy", "matplotlib", "pydantic", "numpy")
COMMANDS = main.everything()


def _loaded_by(*arguments, **environment):
    """Return what a command prints in a process of its own, and the slow modules it imports."""
    ended = "print(*({*sys.modules} & {*SLOW}), file=sys.stderr)"
    code = (
        f"import atexit, sys; SLOW = {SLOW}; atexit.register(lambda: {ended})\n"
        f"sys.argv = ['fedsim', *{arguments}]\n"
        "from fedsim.commands.entry import main; main()"
    )
    ran = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, env=environment
    )
    return ran.stdout, set(ran.stderr.split())


@pytest.mark.parametrize("asked", [(), ("--help",), ("--version",)])
def test_help_imports_no_command(asked):
    said, slow = _loaded_by(*asked, PYTHONPATH=":".join(sys.path))
    assert said != ""
    assert slow == set()


def test_the_first_help_has_fifteen_lines_and_three_groups(fedsim):
    status, said, _ = fedsim("-h")
    lines = said.splitlines()
    assert (status, len(lines)) == (0, 15)
    assert [line for line in lines[1:] if re.match(r"\S", line)][:-1] == [
        *filter(None, main.GROUPS)
    ]
    top = {each.name for group in main.GROUPS.values() for each in group}
    assert {name for name in top if not re.search(rf"\b{name}\b", said)} == set()
    assert max(map(len, lines)) <= 90


def test_fedsim_alone_names_the_three_first_commands(fedsim):
    status, said, err = fedsim()
    assert (status, err) == (0, "")
    assert re.findall(r"^  fedsim (\w+)", said, re.M) == ["run", "init", "audit"]


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_is_its_function(name):
    """The options are its arguments, but for those that only Python can give, and of printing."""
    function = main.function(COMMANDS[name])
    assert f"fedsim {name}" in (inspect.getdoc(function) or "")
    if " " not in name:
        assert name in ("config", "report") or getattr(fedsim, name) is function
    shared = {"--json", "--verbose", "--quiet", "--fail-if", "--allow-code"}
    options = {each.name for each in main.arguments(name)} - shared
    taken = {
        parameter.strip("_").replace("_", "-")
        for parameter in inspect.signature(function).parameters
    }
    assert {each.removeprefix("--").lower() for each in options} <= taken


@pytest.mark.parametrize("name", COMMANDS)
def test_the_help_of_a_command_is_printed(name, fedsim):
    status, said, err = fedsim(*name.split(), "--help")
    assert (status, err) == (0, "")
    assert said.startswith(f"Usage: fedsim {name}")
    assert "Raises" not in said


def test_a_key_is_explained_by_its_last_name_where_that_is_the_only_one(fedsim):
    status, out, _ = fedsim("config", "rho-beta")
    assert status == 0
    assert out.strip().startswith("privacy.rho-beta\n")
