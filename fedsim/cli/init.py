"""`fedsim init`: a first configuration from the answers to five questions."""

import shlex
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import click
import typer

from adversaries.errors import InputError
from fedsim.cli.options import CLIENTS, ROUNDS, SetOption
from fedsim.cli.terminal import Terminal

if TYPE_CHECKING:  # pydantic
    from fedsim.config import Scalar
    from fedsim.studies.choose.first_configuration import InitAnswers

WHICH_DATA = (
    "Which data? digits (pictures) and breast-cancer (a table) come with fedsim. Or give the path "
    "of a CSV file, an .npz file, or a folder with one folder of pictures for each class"
)
WHICH_LABEL = (
    "Which column has the labels? The first line has {first}. If that is not a header, the "
    "columns are c0 to c{last}"
)
WHO_ADDS_NOISE = (
    "Who adds the noise? central: the server, which sees every client's message. local: each "
    "client, to its own message, so the server need not be trusted. distributed: each client, a "
    "share of the noise, so the server sees only the sum"
)
HOW_SURE = (
    "How sure may an adversary become that one person is in the data? From 0.5 (a guess) to 1 "
    "(certain)"
)

HOW_MANY_STEPS = (
    "How many local steps does a client take in a round? Noise covers each: a step costs as much "
    "privacy as a round, and saves the messages of one"
)

READING = {"data.public-schema", "data.exclude", "data.target", "data.classes", "data.name"}
"""Keys with which the user says how a table is read."""

File = Annotated[Path, typer.Argument(metavar="[FILE]", help="Path of the new file.")]
Data = Annotated[
    str | None,
    typer.Option(
        metavar="NAME|PATH",
        help="Data: digits, breast-cancer, or a CSV file, .npz file or folder of your own.",
    ),
]
Label = Annotated[
    str | None, typer.Option(metavar="COLUMN", help="Column of the labels in a CSV file.")
]
WhoAddsNoise = Annotated[
    str | None,
    typer.Option(
        metavar="central|local|distributed",
        help="Party that adds the noise: the server (central), each client to its own "
        "message (local), or each client a share of it (distributed).",
    ),
]
MaxBelief = Annotated[
    float | None,
    typer.Option(metavar="BELIEF", help="Largest belief of the adversary, 0.5 to 1."),
]
LocalSteps = Annotated[
    int | None,
    typer.Option(
        min=1,
        metavar="STEPS",
        help="Noisy local steps of a client in each round, with local trust.",
    ),
]
Rehearse = Annotated[
    int | None,
    typer.Option(
        min=2,
        metavar="RECORDS",
        help="Number of records to use, to learn about epsilon alone. Epsilon and delta stay those "
        "of all records.",
    ),
]


def init(
    file: File = Path("experiment.toml"),
    data: Data = None,
    label: Label = None,
    clients: Annotated[int | None, typer.Option(min=2, help=f"{CLIENTS}.")] = None,
    trust: WhoAddsNoise = None,
    max_belief: MaxBelief = None,
    rounds: Annotated[int | None, typer.Option(min=1, help=f"{ROUNDS}.")] = None,
    local_steps: LocalSteps = None,
    rehearse: Rehearse = None,
    set_: SetOption = None,
    yes: Annotated[bool, typer.Option("--yes", help="Ask nothing and use the defaults.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Overwrite FILE.")] = False,
) -> None:
    """Write a commented configuration from the answers to five questions, or from options.

    A fifth of the records (4,000 at most) is kept to measure accuracy; the training uses the
    others. Delta is a tenth of one over the number of records.

    For a CSV file without a column "label", it also asks for the column of the labels. It proposes
    a public schema of the file beside FILE. Lines of it that disclose something are marked.

    Example: fedsim init hospital.toml --data patients.csv --label diagnosis --yes

    Then: fedsim choose hospital.toml --max-belief 0.9, and fedsim run hospital.toml
    """
    from fedsim import config as configuration  # noqa: PLC0415  (pydantic)
    from fedsim.studies.choose import first_configuration  # noqa: PLC0415  (torch)

    if file.exists() and not force:
        raise InputError(f"'{file}' exists; name another file, or overwrite it with --force")
    options = {
        "data": data,
        "clients": clients,
        "trust": trust,
        "max_belief": max_belief,
        "rounds": rounds,
        "local_steps": local_steps,
    }
    answered: dict[str, Any] = {name: value for name, value in options.items() if value is not None}
    missing = [name for name, value in options.items() if value is None]
    if missing == ["local_steps"]:  # a question beside others, with a usual answer
        missing = []
    overrides = configuration.parse_overrides(set_)
    if label is not None:
        overrides["data.label"] = label
    answers = replace(first_configuration.InitAnswers(), **answered, rehearse=rehearse)
    if missing and not yes:
        answers, label_key = _ask(answers, missing, str(overrides.get("data.label", "label")))
        overrides |= label_key
    _write(file, answers, overrides, force)


def _write(file: Path, answers: "InitAnswers", overrides: dict[str, "Scalar"], force: bool) -> None:
    """Write the configuration, and print its numbers and the next commands."""
    from fedsim import config as configuration  # noqa: PLC0415  (pydantic)
    from fedsim.common import private_files, reading  # noqa: PLC0415
    from fedsim.learning.data import cautions, distribution, schema_proposal  # noqa: PLC0415
    from fedsim.studies.choose import first_configuration  # noqa: PLC0415  (torch)

    proposed = None
    found: list[str] = []
    label = str(overrides.get("data.label", "label"))
    if not READING.intersection(overrides) and (proposed := _schema(answers.data, label, file)):
        path, schema, found = proposed
        if path.exists():
            if not force:
                raise InputError(f"'{path}' exists; delete it, or name another configuration")
            # Its owner may have put public knowledge in place of what the table discloses.
            schema = reading.content(path, reading.MOST_TOML).decode()
            found = [f"{path} is kept; delete it, and it is proposed anew"]
        overrides = first_configuration.with_schema(overrides, schema)
    values = first_configuration.values(answers, overrides)
    note = ""
    if answers.rehearse is not None:
        of_all = first_configuration.values(replace(answers, rehearse=None), overrides)
        note = first_configuration.rehearsal(values, int(of_all["data.records"]))
    if proposed:
        if not path.exists():
            schema_proposal.write_schema(path, schema, False)
        values["data.public-schema"] = path.name
    elif values["data.name"] == "csv":
        data = configuration.from_run_config(values).data
        found = cautions.cautions(distribution.dataset(data, ""))
    with private_files.new_file(file, replace=True) as written:
        written.write(first_configuration.text(values, file, note).encode())
    named = shlex.quote(str(file))
    console, review = Terminal(stderr=True), ""
    if proposed:
        review = (
            f"{path} says how the table is read; before you train on private records, replace "
            "what its lines FROM RECORDS disclose. "
        )
    if found:
        lines = "\n".join(f"  {sentence}" for sentence in found)
        console.print(f"{answers.data}:\n{lines}", markup=False, soft_wrap=True, highlight=False)
    console.print(
        f"{file}: {values['data.records']} records at {answers.clients} clients and "
        f"{values['data.held-out']} held out, {values['training.rounds']} rounds, delta = "
        f"{values['privacy.delta']:g}. {note + ' ' if note else ''}{review}Next, find "
        "the noise and the best model with it, then make the whole report:\n"
        f"  fedsim choose {named} --max-belief {answers.max_belief:g}\n"
        f"  fedsim run {named}",
        soft_wrap=True,
        highlight=False,
    )


def _schema(data: str, label: str, file: Path) -> tuple[Path, str, list[str]] | None:
    """Return path and text of a schema for a CSV file with a header, and what the user should know.

    Raises InputError if the file is no table with such a label.
    """
    from fedsim.learning.data import schema_proposal  # noqa: PLC0415  (SciPy)
    from fedsim.studies.choose import first_configuration  # noqa: PLC0415  (torch)

    name, root = first_configuration.recognised(data)
    if name != "csv" or not first_configuration.has_header(data, label):
        return None
    labels, proposals, form = schema_proposal.propose(root, label)
    text = schema_proposal.written(label, labels, proposals, form)
    return file.with_suffix(".schema.toml"), text, schema_proposal.notes(labels, proposals, form)


def on_terminal() -> bool:
    """Return whether a user can answer questions on standard input."""
    return sys.stdin.isatty()


def _ask(
    answers: "InitAnswers", missing: list[str], label: str
) -> tuple["InitAnswers", dict[str, str]]:
    """Return the answers with the missing ones, and data.label if the user named the column.

    Raises InputError without a terminal, or if the data cannot be read, before the next question.
    """
    from fedsim.studies.choose import first_configuration  # noqa: PLC0415  (torch)

    options = ", ".join(f"--{name.replace('_', '-')}" for name in missing)
    if not on_terminal():
        if "data" not in missing:  # unreadable data matter more than missing answers
            first_configuration.columns(answers.data, label)
        raise InputError(
            "standard input is not a terminal, so fedsim init cannot ask; answer with "
            f"{options}, or use the defaults with --yes"
        )
    try:
        return _prompt(answers, missing, label)
    except click.Abort as error:
        if not isinstance(error.__context__, EOFError):
            raise KeyboardInterrupt from None
        raise InputError(
            "the input ended before the last answer, and nothing was written; answer every "
            f"question, give {options}, or use the defaults with --yes"
        ) from None


def _prompt(
    answers: "InitAnswers", missing: list[str], label: str
) -> tuple["InitAnswers", dict[str, str]]:
    from fedsim.studies.choose import first_configuration  # noqa: PLC0415  (torch)

    questions: dict[str, tuple[str, Any]] = {
        "clients": ("How many clients hold them?", click.IntRange(min=2)),
        "trust": (WHO_ADDS_NOISE, click.Choice(["central", "local", "distributed"])),
        "max_belief": (HOW_SURE, click.FloatRange(0.5, 1, min_open=True, max_open=True)),
        "rounds": ("How many rounds of training?", click.IntRange(min=1)),
        "local_steps": (HOW_MANY_STEPS, click.IntRange(min=1)),
    }
    replies: dict[str, Any] = {}
    if "data" in missing:
        replies["data"] = typer.prompt(WHICH_DATA, answers.data, err=True)
    label_key: dict[str, str] = {}
    if columns := first_configuration.columns(replies.get("data", answers.data), label):
        half = len(columns) // 2  # the fields of the first line, then c0, c1, ...
        words = WHICH_LABEL.format(first=", ".join(columns[:half]), last=half - 1)
        choice = click.Choice(columns)
        label_key["data.label"] = typer.prompt(words, type=choice, show_choices=False, err=True)
    for name, (words, kind) in questions.items():
        local = replies.get("trust", answers.trust) == "local"
        if name in missing and (local or name != "local_steps"):
            default = getattr(answers, name)
            replies[name] = typer.prompt(words, default, type=kind, show_choices=False, err=True)
    return replace(answers, **replies), label_key
