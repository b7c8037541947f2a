"""`fedsim.init`: a first configuration from the answers to five questions."""

import shlex
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from adversaries.errors import InputError
from fedsim.commands.answer import Answer, lines
from fedsim.commands.prompts import ask, asked
from fedsim.commands.settings import Change, changed

if TYPE_CHECKING:  # pydantic
    from fedsim.configuration import Scalar
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


def init(
    file: Path = Path("experiment.toml"),
    /,
    *changes: Change,
    data: str | None = None,
    label: str | None = None,
    clients: int | None = None,
    trust: Literal["central", "local", "distributed"] | None = None,
    max_belief: float | None = None,
    rounds: int | None = None,
    local_steps: int | None = None,
    rehearse: int | None = None,
    yes: bool = False,
    list_: bool = False,
) -> Answer:
    """Write a commented configuration from the answers to five questions, or from options.

    A fifth of the records (4,000 at most) is kept to measure accuracy; the training uses the
    others. Delta is a tenth of one over the number of records.

    For a CSV file without a column "label", it also asks for the column of the labels. It proposes
    a public schema of the file beside FILE. Lines of it that disclose something are marked.

    Example: fedsim init hospital.toml --data patients.csv --label diagnosis --yes

    Then: fedsim choose hospital.toml --max-belief 0.9, and fedsim run hospital.toml

    Args:
        file: path of the new file.
        changes: other configuration keys, as KEY=VALUE.
        data: digits, breast-cancer, or a CSV file, .npz file or folder of your own.
        label: column of the labels in a CSV file.
        clients: number of clients (m), at least 2.
        trust: party that adds the noise: the server (central), each client to its own message
            (local), or each client a share of it (distributed).
        max_belief: largest belief of the adversary, 0.5 to 1.
        rounds: number of rounds (k).
        local_steps: noisy local steps of a client in each round, with local trust.
        rehearse: number of records to use, to learn about epsilon alone. Epsilon and delta stay
            those of all records.
        yes: ask nothing and use the defaults.
        list_: list the bundled configurations, and write nothing.

    Returns:
        The answer, with the path of the file.

    Raises:
        InputError: the file exists, or the data cannot be read.
    """
    if list_:
        return _examples()
    from fedsim.studies.choose import first_configuration  # noqa: PLC0415  (torch)

    if "=" in str(file):
        raise InputError(f"'{file}' is no name of a file; name it first: fedsim init FILE {file}")
    file = Path(file)
    if file.exists():
        raise InputError(f"'{file}' exists; name another file, or delete it")
    least = {"clients": (clients, 2), "rounds": (rounds, 1), "local_steps": (local_steps, 1)}
    for name, (value, smallest) in {**least, "rehearse": (rehearse, 2)}.items():
        if value is not None and value < smallest:
            option = name.replace("_", "-")
            raise InputError(f"--{option} is {value}; give at least {smallest}")
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
    overrides = changed(changes, {"data.label": label})
    answers = replace(first_configuration.InitAnswers(), **answered, rehearse=rehearse)
    if missing and not yes:
        answers, label_key = _ask(answers, missing, str(overrides.get("data.label", "label")))
        overrides |= label_key
    return _write(file, answers, overrides)


def _examples() -> Answer:
    from fedsim.common import configurations  # noqa: PLC0415
    from fedsim.reports.document.blocks import Prose, tabulated  # noqa: PLC0415

    listed = [{"name": name, "what": what} for name, what in configurations.listing().items()]
    return Answer(
        report={"examples": listed},
        table=listed,
        _blocks=lambda: [
            tabulated(["name", "what"], [list(each.values()) for each in listed]),
            Prose(
                f"Every command that takes a configuration accepts these names. Files: "
                f"{configurations.folder()}"
            ),
        ],
    )


def _write(file: Path, answers: "InitAnswers", overrides: "dict[str, Scalar]") -> Answer:
    """Write the configuration; return its numbers and the next commands."""
    from fedsim import configuration  # noqa: PLC0415  (pydantic)
    from fedsim.common import private_files  # noqa: PLC0415
    from fedsim.learning.data import cautions, distribution, schema_proposal  # noqa: PLC0415
    from fedsim.studies.choose import first_configuration  # noqa: PLC0415  (torch)

    proposed = None
    found: list[str] = []
    label = str(overrides.get("data.label", "label"))
    if not READING.intersection(overrides) and (proposed := _schema(answers.data, label, file)):
        path, schema, found = proposed
        if path.exists():
            raise InputError(f"'{path}' exists; delete it, or name another configuration")
        overrides = first_configuration.with_schema(overrides, schema)
    values = first_configuration.values(answers, overrides)
    note = ""
    if answers.rehearse is not None:
        of_all = first_configuration.values(replace(answers, rehearse=None), overrides)
        note = first_configuration.rehearsal(values, int(of_all["data.records"]))
    if proposed:
        schema_proposal.write_schema(path, schema, False)
        values["data.public-schema"] = path.name
    elif values["data.name"] == "csv":
        data = configuration.from_run_config(values).data
        found = cautions.cautions(distribution.dataset(data, ""))
    with private_files.new_file(file) as written:
        written.write(first_configuration.text(values, file, note).encode())
    named, review = shlex.quote(str(file)), ""
    if proposed:
        review = (
            f"{path} says how the table is read; before you train on private records, replace "
            "what its lines FROM RECORDS disclose. "
        )
    said = [
        *([f"{answers.data}:", *(f"  {sentence}" for sentence in found)] if found else []),
        f"{file}: {values['data.records']} records at {answers.clients} clients and "
        f"{values['data.held-out']} held out, {values['training.rounds']} rounds, delta = "
        f"{values['privacy.delta']:g}. {note + ' ' if note else ''}{review}Next, find "
        "the noise and the best model with it, then make the whole report:",
        f"  fedsim choose {named} --max-belief {answers.max_belief:g}",
        f"  fedsim run {named}",
    ]
    return Answer(
        report={"file": str(file), "keys": values},
        path=file,
        _terminal=lines(*said),
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
) -> "tuple[InitAnswers, dict[str, str]]":
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
    ended = (
        "the input ended before the last answer, and nothing was written; answer every "
        f"question, give {options}, or use the defaults with --yes"
    )
    replies: dict[str, Any] = {}
    if "data" in missing:
        replies["data"] = ask(WHICH_DATA, answers.data, otherwise=ended)
    label_key: dict[str, str] = {}
    if columns := first_configuration.columns(replies.get("data", answers.data), label):
        half = len(columns) // 2  # the fields of the first line, then c0, c1, ...
        words = WHICH_LABEL.format(first=", ".join(columns[:half]), last=half - 1)
        label_key["data.label"] = asked(
            words, "", _one_of(columns), "one of these columns", otherwise=ended
        )
    for name, (words, read, expected) in QUESTIONS.items():
        local = replies.get("trust", answers.trust) == "local"
        if name in missing and (local or name != "local_steps"):
            default = str(getattr(answers, name))
            replies[name] = asked(words, default, read, expected, otherwise=ended)
    return replace(answers, **replies), label_key


def _one_of(names: list[str]) -> Callable[[str], str]:
    def read(text: str) -> str:
        if text not in names:
            raise ValueError
        return text

    return read


def _at_least(smallest: int) -> Callable[[str], int]:
    def read(text: str) -> int:
        if int(text) < smallest:
            raise ValueError
        return int(text)

    return read


def _belief(text: str) -> float:
    if not 0.5 < float(text) < 1:
        raise ValueError
    return float(text)


QUESTIONS: dict[str, tuple[str, Callable[[str], Any], str]] = {
    "clients": ("How many clients hold them?", _at_least(2), "a whole number, at least 2"),
    "trust": (
        WHO_ADDS_NOISE,
        _one_of(["central", "local", "distributed"]),
        "central, local or distributed",
    ),
    "max_belief": (HOW_SURE, _belief, "a number between 0.5 and 1"),
    "rounds": ("How many rounds of training?", _at_least(1), "a whole number, at least 1"),
    "local_steps": (HOW_MANY_STEPS, _at_least(1), "a whole number, at least 1"),
}
"""The question behind each answer, how it is read, and what is expected."""
