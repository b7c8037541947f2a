"""What `fedsim --help` lists, without importing it, and what every command has in common."""

import inspect
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from importlib import import_module

import click
import pytest
import typer
from fedsim.cli import options
from fedsim.cli.commands import PANELS, Command, everything

from fedsim.commands.main import app
from fedsim.config.documentation import every_key

Fedsim = Callable[..., tuple[int, str, str]]

SLOW = ("torch", "flwr", "scipy", "matplotlib", "pydantic", "numpy")

COMMANDS = dict(everything())
SHOWN = [name for name, command in COMMANDS.items() if not command.hidden]


def _function(command: Command) -> Callable[..., None]:
    module, _, name = command.code.partition(":")
    found: Callable[..., None] = getattr(import_module(f"fedsim.cli.{module}"), name)
    return found


def _loaded_by(*arguments: str, **environment: str) -> tuple[str, set[str]]:
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


@pytest.mark.parametrize("group", [(), ("audit",), ("deploy",)])
def test_help_imports_no_command(group: tuple[str, ...]) -> None:
    said, slow = _loaded_by(*group, "--help", PYTHONPATH=":".join(sys.path))
    assert "Usage: fedsim" in said
    assert slow == set()


def test_completion_imports_no_command_to_name_it() -> None:
    asked = {"_FEDSIM_COMPLETE": "complete_bash", "COMP_WORDS": "fedsim audit t", "COMP_CWORD": "2"}
    said, slow = _loaded_by(PYTHONPATH=":".join(sys.path), **asked)
    assert (said.split(), slow) == (["transcript"], set())


@pytest.mark.parametrize("name", COMMANDS)
def test_the_words_in_help_are_those_of_the_command(name: str) -> None:
    command = COMMANDS[name]
    said = inspect.cleandoc(_function(command).__doc__ or "").split("\n\n")[0]
    assert command.words == " ".join(said.split()) != ""


@pytest.mark.parametrize("name", SHOWN)
def test_the_help_of_a_command_has_an_example_of_it(name: str) -> None:
    assert f"fedsim {name}" in inspect.cleandoc(_function(COMMANDS[name]).__doc__ or "")


def test_help_shows_every_panel_and_command(fedsim: Fedsim) -> None:
    status, said, _ = fedsim("-h")
    assert status == 0
    assert [panel for panel in PANELS if f" {panel} " not in said] == []
    assert [each.name for panel in PANELS.values() for each in panel if each.name not in said] == []


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["acount"], "No such command 'acount'. Did you mean 'account'?"),
        (["audit", "digits"], "Give one of these after fedsim audit: app, loop, transcript, live."),
        (["run", "digit"], "no configuration file 'digit'; did you mean digits?"),
        (["audit", "gone.py:train"], "there is no file 'gone.py'"),
        (["init", "--data", "gone.csv"], "'gone.csv' does not exist"),
    ],
)
def test_a_wrong_word_is_one_line_that_names_the_right_one(
    fedsim: Fedsim, words: list[str], said: str
) -> None:
    status, out, err = fedsim(*words)
    assert (status, out, err.count("\n")) == (2, "", 1)
    assert said in err


def test_a_key_is_explained_by_its_last_name_where_that_is_the_only_one(fedsim: Fedsim) -> None:
    status, out, _ = fedsim("config", "rho-beta")
    assert status == 0
    assert out.startswith("privacy.rho-beta\n")


def parameters() -> Iterator[tuple[str, click.Parameter]]:
    """Yield every parameter of every command that help shows, with the command's name."""

    def within(group: click.Group, before: str) -> Iterator[tuple[str, click.Parameter]]:
        for name, command in group.commands.items():
            if isinstance(command, click.Group):
                yield from within(command, f"{before}{name} ")
            elif not command.hidden:
                yield from ((before + name, parameter) for parameter in command.params)

    whole = typer.main.get_command(app)
    assert isinstance(whole, click.Group)
    yield from within(whole, "")


WITHOUT_RESULTS = {
    "cluster certificates",
    *("init", "open", "data", "track"),
    *(f"deploy {name}" for name in ("init", "register", "renew", "stop")),
}
"""Commands that write files, send something or show a page, and print no results."""


def test_every_command_with_results_prints_them_as_json() -> None:
    with_json = {name for name, parameter in parameters() if "--json" in parameter.opts}
    assert set(SHOWN) - with_json == WITHOUT_RESULTS


UNCLEAR = re.compile(r"\b(as of|likewise|whoever|nobody|somebody|is none|told|how many)\b", re.I)
"""Wording that a noun phrase replaces in a help text."""


def test_help_is_made_of_short_plain_sentences() -> None:
    texts = {f"{name} {each.opts[0]}": getattr(each, "help", "") for name, each in parameters()}
    texts |= {name: command.words for name, command in COMMANDS.items()}
    texts |= {key.key: key.meaning for key in every_key().values()}
    for place, text in texts.items():
        sentences = re.split(r"(?<=[.?;]) ", text)
        assert max(len(sentence.split()) for sentence in sentences) <= 25, place
        assert not UNCLEAR.search(text), place


def test_one_option_has_the_same_words_in_every_command() -> None:
    """But for what a command adds to them; metavars tell a folder from a file."""
    words: dict[str, str] = {
        "--json": "Print one JSON document on standard output.",
        "--quiet": "Hide progress and summary, but not what needs attention.",
        "--set": "Override a configuration key. May be repeated.",
        "--confidence": "Confidence level of every interval and bound.",
        "--delta": options.DELTA,
        "--seed": options.SEED,
        "--trials": options.TRIALS,
        "--rounds": options.ROUNDS,
        "--clients": options.CLIENTS,
        "--data-root": options.DATA_ROOT,
        "config_file": options.CONFIG,
    }
    for name, parameter in parameters():
        option = parameter.opts[0]
        said = getattr(parameter, "help", None) or ""
        assert said.startswith(words.get(option, "")), f"{name} {option}"
        assert said, f"{name} {option}"
        if option == "--out":
            assert parameter.metavar in ("DIR", "FILE"), name
