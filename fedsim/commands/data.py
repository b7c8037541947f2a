"""`fedsim.data`: the records of an experiment at every client, or the schema of a table."""

from pathlib import Path

from adversaries.errors import InputError
from fedsim.commands.answer import Answer, lines
from fedsim.commands.settings import Change, Given, changed, configured
from fedsim.configuration.federation import TABLES


def data(
    source: Given | None = None,
    /,
    *changes: Change,
    label: str | None = None,
    out: Path | None = None,
) -> Answer:
    """Show an experiment's data, with the number of records of each label at every client.

    Without SOURCE, lists the data sets. For a table (.csv, .parquet or .npz), proposes its public
    schema, column by column, on its owner's machine. It marks lines that would disclose something
    about the records. Replace them by public knowledge before you share the schema.

    Examples: fedsim data digits

    With skewed labels: fedsim data digits federation.partition=dirichlet

    With all people of one country at one client:

    fedsim data adult federation.partition=key federation.partition-key=native-country

    The schema of a table: fedsim data patients.csv --label readmitted

    Args:
        source: experiment file (TOML), bundled name, or table. Default: list the data sets.
        changes: changes of configuration keys, as KEY=VALUE. In Python also mappings.
        label: column of a table's labels. Default: label.
        out: path of a table's new schema. Default: schema.toml.

    Returns:
        The answer; its details are the distribution of the records, or the schema.

    Raises:
        InputError: the data cannot be loaded, or not split among the clients.
    """
    if isinstance(source, str | Path) and "=" in str(source) and not Path(source).exists():
        changes, source = (str(source), *changes), None
    if source is None:
        if changes:
            raise InputError(
                "changes need a configuration, for example: fedsim data digits federation.clients=5"
            )
        return _listing()
    if isinstance(source, Path | str) and _is_table(Path(source)):
        if changes:
            raise InputError(f"a table takes no configuration keys; leave {changes[0]} out")
        place = Path("schema.toml") if out is None else Path(out)
        return _schema(Path(source), "label" if label is None else label, place)
    if label is not None or out is not None:
        raise InputError("--label and --out are for a table, such as patients.csv")
    from fedsim.reports import distribution_report as pages  # noqa: PLC0415

    report = pages.assemble(configured(source, changed(changes), None))
    return Answer(report=report, details=report, _blocks=lambda: pages.blocks(report))


def _is_table(path: Path) -> bool:
    """Return whether records are named: a file of a table, or a folder that is no run."""
    return path.suffix in (*TABLES, ".txt") or (
        path.is_dir() and not (path / "config.toml").exists()
    )


def _listing() -> Answer:
    from fedsim.learning.data import dataset_cards  # noqa: PLC0415
    from fedsim.reports.document.blocks import Prose, tabulated  # noqa: PLC0415

    sets = dataset_cards.listing()
    rows = [list(entry.values()) for entry in sets]
    return Answer(
        report={"datasets": sets},
        table=sets,
        _blocks=lambda: [
            tabulated(["data.name", *list(sets[0])[1:]], rows),
            Prose("Data of an experiment: fedsim data CONFIG data.name=NAME data.root=PATH"),
        ],
    )


def _schema(file: Path, label: str, out: Path) -> Answer:
    """Propose a table's schema, and write it."""
    from fedsim.learning.data import schema as schemas  # noqa: PLC0415
    from fedsim.learning.data import schema_proposal  # noqa: PLC0415

    if out.exists():
        raise InputError(f"'{out}' exists; name another file with --out, or delete it")
    text, notes = schema_proposal.of_table(str(file), label)
    agreed = schemas.parse(text)
    schema_proposal.write_schema(out, text, False)
    marked = text.count(f"  # {schemas.MARK}")
    said = [
        *([f"{file}:", *(f"  {sentence}" for sentence in notes)] if notes else []),
        f"{out}: {len(agreed.columns)} columns, {len(agreed.features)} features.",
        f"Lines marked {schemas.MARK}: {marked}. Replace them by public knowledge before you share "
        "the file.",
        f'Next, run fedsim deploy check, or set data.public-schema = "{out}"',
    ]
    return Answer(
        report={"file": str(out), "columns": len(agreed.columns), "marked": marked},
        path=out,
        details=agreed,
        _terminal=lines(*said),
    )
