"""The `fedsim` command. Exit status: 0 done, 1 failed, 2 bad input, 130 interrupted.

A command also ends with 3 if it cannot tell or a condition of --fail-if holds, and with 4 if a
measurement contradicts theory or a claim (`fedsim.commands.answer`).
"""

import difflib
import inspect
import itertools
import os
import re
import shlex
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

from cyclopts import App, CycloptsError, Parameter, convert

import fedsim
from adversaries import registry
from adversaries.errors import InputError, InterruptedRunError
from fedsim.commands import INTERRUPTED, gate
from fedsim.common import installation
from fedsim.common.foreign_text import shown
from fedsim.common.private_files import NO_ROOM
from fedsim.common.secrets_in_text import without_password

if TYPE_CHECKING:
    from fedsim.commands.answer import Answer

ABOUT = "Measure how identifiable one person is in the training data of a federation."


@dataclass(frozen=True)
class Command:
    """A command.

    Attributes:
        name: after `fedsim`.
        words: its sentence in help.
        module: of `fedsim.commands`; "" for that of its name.
        kinds: kinds of its reports, for --fail-if; without kinds, it takes no conditions.
        short: it prints what it did, and has no result to print as JSON.
    """

    name: str
    words: str
    module: str = ""
    kinds: tuple[str, ...] = ()
    short: bool = False


AUDITS = "app audit", "loop audit", "transcript audit", "live audit"
RUN, TRAINING = ("run",), ("training",)
PARTS = "deploy"
"""The command that has commands of its own."""

GROUPS: dict[str, tuple[Command, ...]] = {
    "Decide": (
        Command("account", "Compute what noise guarantees, or the noise for a limit."),
        Command("choose", "Find the least noise for a limit, and the best model with it."),
    ),
    "Train and measure": (
        Command("init", "Write a first configuration for your data."),
        Command("run", "Run a federation with the adversary inside it.", kinds=RUN),
        Command(
            "train", "Train a model with differential privacy, once, and keep it.", "run", TRAINING
        ),
        Command("attack", "Guess who was in the training data, or what a record says."),
        Command(PARTS, "Train across machines: keys, certificates, checks, runs."),
    ),
    "Check others": (
        Command(
            "audit", "Check a claim of an app, a loop, a recording or a live node.", "", AUDITS
        ),
        Command(
            "report",
            "Write the report of a run again, or compare several runs.",
            kinds=RUN + TRAINING,
        ),
        Command("verify", "Check that a result is unchanged, and make its report again."),
    ),
    "": (
        Command("config", "List all configuration keys, or explain one."),
        Command("data", "Show a configuration's records, or propose a table's schema."),
        Command("pac", "Release a function's result with PAC private noise."),
        Command("predict", "Predict the classes of records with a trained model."),
        Command("sensitivity", "Find the pair of neighbouring data sets to audit."),
    ),
}
"""The commands in the order of help; the last group is named in one line."""

DEPLOY = (
    Command("init", "Write keys, certificates, scripts and instructions.", PARTS, short=True),
    Command("check", "Check a deployment, and say how to mend it.", PARTS),
    Command("register", "Register every key in server/keys.", PARTS, short=True),
    Command("run", "Train on the deployed federation, with an adversary.", PARTS, RUN),
    Command("train", "Train a model on it, once, and keep it.", PARTS, TRAINING),
    Command("stop", "Stop the runs of the deployed federation.", PARTS, short=True),
    Command("status", "Show clients, the current run and the certificate.", PARTS),
    Command("report", "Report what this client released, for its owner.", PARTS),
    Command("renew", "Write a new certificate for the server.", PARTS, short=True),
    Command("certificates", "Write the certificates of a Dask cluster.", PARTS, short=True),
)

SERVICES = tuple(
    Command(name, "", PARTS, short=True) for name in ("proxy", "superlink", "supernode")
)
"""Services that the scripts of a deployment call; help does not list them."""

NEW = f"""{ABOUT}

  fedsim run digits           a first run, with bundled data: 10 seconds
  fedsim init                 a configuration for your data
  fedsim audit my_app         a privacy claim of somebody else's training

All commands: fedsim --help"""


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class Output:
    """How a command prints its answer.

    Attributes:
        json: print one JSON document on standard output.
        verbose: print the numbers of every observer, and times.
        quiet: hide progress and result, but not what needs attention.
    """

    json: bool = False
    verbose: Annotated[bool, Parameter(name=("--verbose", "-v"))] = False
    quiet: bool = False


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class Gated:
    """Which numbers of a report end a command with exit status 3.

    Attributes:
        fail_if: exit with status 3 if this condition holds or cannot be decided, such as
            "rows.participant.advantage.low > .1". May be repeated.
    """

    fail_if: list[str] | None = None


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class Own:
    """Code of the user's own.

    Attributes:
        allow_code: code of your own that a configuration may name, as MODULE:NAME. May be repeated.
    """

    allow_code: list[str] | None = None


def everything() -> dict[str, Command]:
    """Return every command by its whole name after `fedsim`; `deploy` by its parts alone."""
    top = {each.name: each for group in GROUPS.values() for each in group if each.name != PARTS}
    return top | {f"deploy {each.name}": each for each in DEPLOY}


def function(command: Command) -> "Callable[..., Answer | None]":
    """Return the public function of a command. Raises InputError if another project shadows it."""
    module = command.module or command.name
    try:
        code = import_module(f"fedsim.commands.{module}")
        found: Callable[..., Answer | None] = getattr(code, command.name)
    except (ImportError, AttributeError):
        # Another project's modules may shadow ours and lack the imported names.
        if complaint := installation.complaint():
            raise InputError(complaint) from None
        raise
    return found


def _called(command: Command) -> Callable[..., int]:
    """Return a command's function with the options of its answer; it returns the exit status."""
    answering = function(command)
    signature = inspect.signature(answering)
    shared: dict[str, type] = {"own_": Own}
    shared |= {} if command.short else {"output_": Output}
    shared |= {"gated_": Gated} if command.kinds else {}
    added = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=kind(), annotation=kind)
        for name, kind in shared.items()
    ]

    def call(
        *arguments: Any,
        own_: Own = Own(),
        output_: Output = Output(),
        gated_: Gated = Gated(),
        **named: Any,
    ) -> int:
        registry.allow(own_.allow_code or ())
        conditions = gate.parsed(gated_.fail_if, *command.kinds)
        if "progress" in signature.parameters:
            named["progress"] = False if output_.quiet else None
        start = time.time()
        answer = answering(*arguments, **named)
        if answer is None:  # of a service, which ends with its machine
            return 0
        saved = answer if answer.place is None else answer.save(answer.place)
        return _printed(saved, output_, conditions, time.time() - start)

    call.__doc__ = answering.__doc__
    call.__signature__ = signature.replace(  # type: ignore[attr-defined]
        parameters=[*signature.parameters.values(), *added], return_annotation=int
    )
    return call


def _printed(
    answer: "Answer", output: Output, conditions: gate.Gate, seconds: float | None = None
) -> int:
    """Print an answer, and return its exit status: that of its verdict, or of the gate."""
    from fedsim.commands import terminal  # noqa: PLC0415  (rich)

    status = max(int(answer.status), conditions.status(answer.report))
    notes = terminal.Terminal(stderr=True, quiet=output.quiet, highlight=False)
    for warning in answer.warnings:
        notes.print(f"Warning: {warning}")
    if output.quiet and not output.json and answer.status:
        print(f"fedsim: {shown((*answer.warnings, STATUSES[answer.status])[0])}", file=sys.stderr)
    if output.json:
        with terminal.outlived_by_no_reader():
            terminal.print_json(answer.report)
        return status
    result = terminal.results(quiet=output.quiet)
    said = answer.terminal(_short(_typed), seconds, verbose=output.verbose)
    result.print(said, crop=False)  # a path is never cut
    if answer.page is not None:
        result.print(f"Report: {answer.page}", soft_wrap=True)
    return status


STATUSES = {
    1: "nothing was found, or something needs attention",
    3: "it cannot be told",
    4: "a measurement contradicts theory, or a claim is not supported",
}
"""What an exit status says where nothing else is printed."""


def _short(words: Sequence[str]) -> str:
    """Return a command as typed, without its options, so that the first line stays one."""
    plain = itertools.takewhile(lambda word: not word.startswith("-"), words)
    text = shlex.join(["fedsim", *plain])
    return text if len(text) <= LONGEST_COMMAND else f"{text[: LONGEST_COMMAND - 1]}…"


LONGEST_COMMAND = 36
"""Most characters of a command above its result."""

_typed: list[str] = []
"""The arguments of this process's command, for the first line of its result."""


def application(*names: str) -> App:
    """Return the command line with the named commands, or with all of them."""
    app = App("fedsim", ABOUT, **SETTINGS)
    deploy = App(
        "deploy", "Train across machines: keys, certificates, checks and runs.", **SETTINGS
    )
    hidden = {f"deploy {each.name}": each for each in SERVICES}
    for name, command in (everything() | hidden).items():
        if name in names or not (names or name in hidden):
            within = deploy if name.startswith("deploy ") else app
            within.command(_called(command), name=command.name)
    if not names or names[0].startswith("deploy"):
        app.command(deploy)
    return app


@dataclass(frozen=True)
class Argument:
    """An argument or an option of a command, as help shows it.

    Attributes:
        name: such as "CONFIG" or "--out".
        value: kind of its value, in capitals; "" for an argument and a flag.
        words: its help.
        default: of an option; "" without one.
        required: whether the command needs it.
    """

    name: str
    value: str
    words: str
    default: str
    required: bool


KINDS = {"int": "INT", "float": "FLOAT", "Path": "PATH", "bool": ""}


def arguments(name: str) -> list[Argument]:
    """Return the arguments and options of a command, in the order of its help."""
    app = application(name)
    for word in name.split():
        app = app[word]
    found = []
    for each in app.assemble_argument_collection(parse_docstring=True):
        if not (each.show and each.parse) or each.names == ("*",):
            continue
        kind = next((KINDS[word] for word in KINDS if word in str(each.hint)), "TEXT")
        default = each.field_info.default
        shown = "" if default in (None, False, "", (), inspect.Parameter.empty) else f"{default}"
        option = each.names[0].startswith("-")
        words = " ".join((each.parameter.help or "").split())
        found.append(Argument(each.names[0], kind if option else "", words, shown, each.required))
    return found


def _converted(kind: Any, tokens: Sequence[Any]) -> Any:
    """Return the value of an argument; a whole number must be one. Raises ValueError."""
    if kind is int and not all(re.fullmatch(r"[+-]?\d+", each.value) for each in tokens):
        raise ValueError
    return convert(kind, tokens)


SETTINGS: dict[str, Any] = {
    "default_parameter": Parameter(
        negative=(), converter=_converted, show_default=lambda value: value or None
    ),
    "help_format": "markdown",
    "version_flags": [],
    "result_action": "return_value",
    "print_error": False,
    "exit_on_error": False,
    "suppress_keyboard_interrupt": False,
}


def main(arguments: list[str] | None = None) -> None:
    """Run the command line and exit; every error is one line on standard error.

    With FEDSIM_TRACEBACK in the environment, an unexpected error prints its traceback.
    """
    try:
        status = _run(list(sys.argv[1:] if arguments is None else arguments))
    except InputError as error:
        _exit(2, str(error))
    except InterruptedRunError as error:
        _exit(INTERRUPTED, str(error))
    except CycloptsError as error:
        _exit(2, _worded(error))
    except OSError as error:
        if "FEDSIM_TRACEBACK" in os.environ or error.errno not in NO_ROOM:
            _unexpected(error)
        _exit(
            2,
            "a disk that this command writes to is full; make room, and run the same command again",
        )
    except Exception as error:
        _unexpected(error)
    sys.exit(status)


def _run(arguments: list[str]) -> int:
    """Carry out a command, and return its exit status."""
    if arguments and arguments[0].startswith("--allow-code="):
        arguments[:1] = arguments[0].split("=", 1)
    while arguments[:1] == ["--allow-code"] and len(arguments) > 2:
        registry.allow(arguments[1:2])
        del arguments[:2]
    first = arguments[0] if arguments else ""
    if not arguments:
        print(NEW)
        return 0
    if first in ("-h", "--help", "help"):
        print(overview())
        return 0
    if first in ("-V", "--version"):
        if complaint := installation.complaint():
            raise InputError(complaint)
        print(fedsim.__version__)
        return 0
    if first == "--install-completion":
        place = application().install_completion(shell=_shell(arguments[1:]), add_to_startup=True)
        print(f"Completion is in {place}; it works in a new shell.")
        return 0
    if first == "deploy" and (not arguments[1:] or arguments[1] in ("-h", "--help")):
        print(listed("Train across machines.", {"fedsim deploy": DEPLOY}))
        return 0
    name = named(arguments)
    _typed[:] = arguments
    status = application(name)(arguments)
    return status if isinstance(status, int) else 0


def named(arguments: Sequence[str]) -> str:
    """Return the command that arguments name. Raises InputError for an unknown one."""
    first, *others = arguments
    names = everything()
    if first == "deploy" and others[:1] in [[each.name] for each in SERVICES]:
        return f"deploy {others[0]}"
    if first == "deploy":
        verbs = [each.name for each in DEPLOY]
        if not others or others[0] in ("-h", "--help", *verbs):
            return f"deploy {others[0]}" if others and others[0] in verbs else "deploy"
        near = difflib.get_close_matches(others[0], verbs, n=1)
        meant = f"did you mean {near[0]}?" if near else f"give one of {', '.join(verbs)}"
        raise InputError(f"fedsim deploy has no command '{others[0]}'; {meant}")
    if first in names:
        return first
    near = difflib.get_close_matches(first, [*names, "deploy"], n=1)
    meant = f"did you mean {near[0]}?" if near else "fedsim --help lists all"
    raise InputError(f"there is no command '{first}'; {meant}")


def _shell(named: Sequence[str]) -> Any:
    """Return the shell to complete in: the named one, or that of the environment."""
    shell = named[0] if named else Path(os.environ.get("SHELL", "")).name
    if shell not in ("bash", "zsh", "fish"):
        raise InputError(
            f"completion is for bash, zsh and fish, not for {shell or 'an unknown shell'}; name "
            "one: fedsim --install-completion bash"
        )
    return shell


def overview() -> str:
    """Return the help of `fedsim`."""
    others = ", ".join(each.name for each in GROUPS[""])
    shown = listed(ABOUT, {title: group for title, group in GROUPS.items() if title})
    return f"{shown}\nAlso: {others}. Options of one: fedsim COMMAND --help"


def listed(about: str, groups: Mapping[str, Sequence[Command]]) -> str:
    """Return commands with their sentences, below their titles."""
    width = max(len(each.name) for group in groups.values() for each in group)
    lines = [about]
    for title, group in groups.items():
        lines += [title, *(f"  {each.name:<{width}} {each.words}" for each in group)]
    return "\n".join(lines)


def _worded(error: CycloptsError) -> str:
    """Return what is wrong with the arguments, and the command that explains them."""
    named = " ".join(_typed[: 2 if _typed[:1] == ["deploy"] else 1])
    words = str(error).replace("\n", " ").strip().removesuffix(".")
    for kind, said in (("int", "whole number"), ("float", "number")):
        words = re.sub(
            rf'unable to convert ("[^"]*") into \S*{kind}\S*', rf"\1 is no {said}", words
        )
    return f"{words[:1].lower()}{words[1:]}; see fedsim {named} --help"


def _unexpected(error: Exception) -> NoReturn:
    """Exit with one line about an error, or raise it if FEDSIM_TRACEBACK is set."""
    if "FEDSIM_TRACEBACK" in os.environ:
        raise error
    expected = isinstance(error, RuntimeError | FloatingPointError)
    _exit(1, str(error) if expected else f"{type(error).__name__}: {error}")


LONGEST_MESSAGE = 2000
"""Most characters of a message. A damaged file may hold a name or a value of any length."""


def _exit(status: int, message: str) -> NoReturn:
    one_line = " ".join(without_password(message)[:LONGEST_MESSAGE].split())
    print(f"fedsim: {shown(one_line)}", file=sys.stderr)
    sys.exit(status)
