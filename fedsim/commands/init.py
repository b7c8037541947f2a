"""`fedsim.init`: a first configuration, with the meaning of each key above it."""

import shlex
from pathlib import Path
from typing import TYPE_CHECKING

from adversaries.errors import InputError
from fedsim.commands.answer import Answer, lines
from fedsim.commands.settings import Change, changed

if TYPE_CHECKING:  # pydantic
    from fedsim.configuration import Scalar

USUAL: "dict[str, Scalar]" = {
    "federation.clients": 3,
    "federation.trust": "central",
    "training.rounds": 30,
    "privacy.rho-beta": 0.9,
}
"""What every first configuration states, unless KEY=VALUE does."""

READING = {"data.public-schema", "data.exclude", "data.target", "data.classes", "data.name"}
"""Keys with which the user says how a table is read."""


def init(
    file: Path = Path("experiment.toml"),
    /,
    *changes: Change,
    data: str = "digits",
    label: str = "label",
    list_: bool = False,
) -> Answer:
    """Write a commented configuration for your data.

    A fifth of the records (4,000 at most) is kept to measure accuracy; the training uses the
    others. Delta is a tenth of one over the number of records.

    For a CSV file, it also writes a public schema beside FILE. Lines of it that disclose something
    about the records are marked.

    Example: fedsim init hospital.toml --data patients.csv --label diagnosis federation.clients=5

    Then: fedsim choose hospital.toml --max-belief 0.9, and fedsim run hospital.toml

    Args:
        file: path of the new file.
        changes: values of configuration keys, as KEY=VALUE, such as federation.clients=5.
        data: digits, breast-cancer, or a CSV file, .npz file or folder of your own.
        label: column of the labels in a CSV file.
        list_: list the bundled configurations, and write nothing.

    Returns:
        The answer, with the path of the file.

    Raises:
        InputError: the file exists, or the data cannot be read.
    """
    if list_:
        return _examples()
    if "=" in str(file):
        raise InputError(f"'{file}' is no name of a file; name it first: fedsim init FILE {file}")
    file = Path(file)
    if file.exists():
        raise InputError(f"'{file}' exists; name another file, or delete it")
    return _write(file, data, label, {**USUAL, **changed(changes)})


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


def _write(file: Path, data: str, label: str, settings: "dict[str, Scalar]") -> Answer:
    """Write the configuration; return its numbers and the next commands."""
    from fedsim.common import private_files  # noqa: PLC0415
    from fedsim.learning.data import schema_proposal  # noqa: PLC0415
    from fedsim.studies.choose import first_configuration as first  # noqa: PLC0415  (torch)

    name, root = first.recognised(data)
    place, schema, found = file.with_suffix(".schema.toml"), "", list[str]()
    column = str(settings.get("data.label", label))
    if name == "csv" and not READING.intersection(settings):
        if place.exists():
            raise InputError(f"'{place}' exists; delete it, or name another configuration")
        schema, found = schema_proposal.of_table(root, column)
        settings = first.with_schema(settings, schema)
    elif name == "csv":
        settings = {**settings, "data.label": column}
    values = first.values(data, settings)
    if schema:
        schema_proposal.write_schema(place, schema, False)
        values["data.public-schema"] = place.name
    with private_files.new_file(file) as written:
        written.write(first.text(values, file).encode())
    review = (
        f"{place} says how the table is read; before you train on private records, replace what "
        "its lines FROM RECORDS disclose. "
    )
    named, belief = shlex.quote(str(file)), values["privacy.rho-beta"]
    said = [
        *([f"{data}:", *(f"  {sentence}" for sentence in found)] if found else []),
        f"{file}: {values['data.records']} records at {values['federation.clients']} clients and "
        f"{values['data.held-out']} held out, {values['training.rounds']} rounds, delta = "
        f"{values['privacy.delta']:g}. {review * bool(schema)}Next, find the noise and the best "
        "model with it, then make the whole report:",
        f"  fedsim choose {named} --max-belief {belief:g}",
        f"  fedsim run {named}",
    ]
    return Answer(report={"file": str(file), "keys": values}, path=file, _terminal=lines(*said))
