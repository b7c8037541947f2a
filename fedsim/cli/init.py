"""`fedsim init`: a first configuration, from three questions."""

import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import click
import typer

from adversaries.errors import InputError
from fedsim.cli.options import CLIENTS, SetOption
from fedsim.cli.terminal import Terminal

if TYPE_CHECKING:  # pydantic
    from fedsim.studies.first_configuration import Answers

WHICH_DATA = (
    "Which data? digits come with fedsim; or the path of a CSV, of an .npz, or of a folder with "
    "the pictures of each class in a folder"
)
WHO_ADDS_NOISE = (
    "Who adds the noise? central: the server, which sees every client's message; local: every "
    "client all of it, and the server is not trusted; distributed: every client a share, and the "
    "server sees the sum alone"
)
HOW_SURE = (
    "How sure may an adversary become at most that one person is in the data? 0.5 is a guess, 1 "
    "certainty"
)


def init(
    file: Annotated[Path, typer.Argument(metavar="[FILE]", help="A new file.")] = Path(
        "experiment.toml"
    ),
    data: Annotated[
        str | None,
        typer.Option(metavar="NAME|PATH", help="digits, or your own: CSV, .npz or a folder."),
    ] = None,
    clients: Annotated[int | None, typer.Option(min=2, help=f"{CLIENTS}.")] = None,
    trust: Annotated[
        str | None,
        typer.Option(
            metavar="central|local|distributed",
            help="Who adds noise: the server, every client its own, or clients a share.",
        ),
    ] = None,
    max_belief: Annotated[
        float | None,
        typer.Option(metavar="BELIEF", help="How sure the adversary may become: 0.5 to 1."),
    ] = None,
    set_: SetOption = None,
    yes: Annotated[bool, typer.Option("--yes", help="Ask nothing; take what is usual.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Replace FILE.")] = False,
) -> None:
    """Write a commented configuration, after three questions or from options that answer them.

    Example: fedsim init hospital.toml --data patients.csv --set data.label=diagnosis --yes

    Then: fedsim run hospital.toml
    """
    from fedsim import config as configuration  # noqa: PLC0415  (pydantic)
    from fedsim.common import private_files  # noqa: PLC0415
    from fedsim.studies import first_configuration  # noqa: PLC0415  (torch)

    if file.exists() and not force:
        raise InputError(f"'{file}' is there already; name another file, or replace it by --force")
    given = {"data": data, "clients": clients, "trust": trust, "max_belief": max_belief}
    known: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    missing = [name for name, value in given.items() if value is None]
    answers = replace(first_configuration.Answers(), **known)
    if missing and not yes:
        answers = _asked(answers, missing)
    said = first_configuration.values(answers, configuration.parse_overrides(set_))
    try:
        private_files.write(
            private_files.as_named(file), first_configuration.text(said, file).encode()
        )
    except OSError as error:
        raise InputError(f"cannot write '{file}': {error.strerror}; name another file") from None
    Terminal(stderr=True).print(
        f"{file}: {said['data.records']} records at {answers.clients} clients; next: fedsim run "
        f"{file}",
        soft_wrap=True,
        highlight=False,
    )


def on_terminal() -> bool:
    """Return whether there is somebody to answer a question."""
    return sys.stdin.isatty()


def _asked(answers: "Answers", missing: list[str]) -> "Answers":
    """Return the answers with those that are missing. Raises InputError where nobody can answer."""
    if not on_terminal():
        options = ", ".join(f"--{name.replace('_', '-')}" for name in missing)
        raise InputError(
            f"this is no terminal to ask on; answer with {options}, or take what is usual by --yes"
        )
    questions: dict[str, tuple[str, Any]] = {
        "data": (WHICH_DATA, str),
        "clients": ("How many clients hold them?", click.IntRange(min=2)),
        "trust": (WHO_ADDS_NOISE, click.Choice(["central", "local", "distributed"])),
        "max_belief": (HOW_SURE, float),
    }
    found = {
        name: typer.prompt(words, getattr(answers, name), type=kind, show_choices=False, err=True)
        for name, (words, kind) in questions.items()
        if name in missing
    }
    return replace(answers, **found)
