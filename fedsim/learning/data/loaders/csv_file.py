"""A user's own table of comma-separated values."""

from dataclasses import replace
from pathlib import Path

from adversaries.errors import InputError
from fedsim.learning.data.loaders import csv_format, originals, table
from fedsim.learning.data.loaders.dataset import CsvFormat, Dataset, Source


def own(source: Source) -> Dataset:
    """Return the dataset of a file of separated values.

    The first line is a header if it contains the label's name; otherwise columns are named c0, c1
    and so on. Rows with missing values are left out and counted.

    Raises InputError if the file is no table with such columns.
    """
    path = source.file
    names, table_rows, form = _named(source)
    for column in source.exclude:
        if column not in names or column == source.label:
            raise InputError(
                f"data.exclude names '{column}', which is not a feature of '{path}'; its columns "
                f"are {', '.join(names)}"
            )
    columns, dropped = table.columns_of(names, table_rows, path)
    dataset = table.encode(
        source.name, path, columns, source.label, source.exclude, dropped, source.target
    )
    return replace(dataset, form=form, gaps=table.gaps(names, table_rows))


def _named(source: Source) -> tuple[list[str], list[list[str]], CsvFormat]:
    """Return the names of the columns, the rows without a header, and the file's format."""
    path = source.file
    table_rows, form = read(path)
    first = table_rows[0]
    header = source.label in first
    names = table_rows.pop(0) if header else [f"c{number}" for number in range(len(first))]
    if source.label not in names:
        raise InputError(
            f"'{path}' has no column '{source.label}': set data.label to one of its first line "
            f"({', '.join(first)}) or, if that line is not a header, to one of c0 to {names[-1]}"
        )
    check_names(names, path)
    for name, values in () if header else zip(names, zip(*table_rows, strict=True), strict=True):
        present = [value for value in values if value.lower() not in table.MISSING]
        numeric = [table.typed(some).dtype.kind != "U" for some in (present, present[1:])]
        if numeric == [False, True] and present[0] == values[0]:
            raise InputError(
                f"column {name} of '{path}' has numbers under '{values[0]}': if that is a header, "
                "set data.label to the labels' name in it"
            )
    return names, table_rows, form


def rows(path: Path) -> list[list[str]]:
    """Return the rows of a file, with its first line. Raises InputError for other files."""
    return read(path)[0]


def read(path: Path, agreed: CsvFormat | None = None) -> tuple[list[list[str]], CsvFormat]:
    """Return the rows of a file, with its first line, and the file's format.

    agreed: the format of all clients' files; None to find it.
    Raises InputError for other files.
    """
    text, encoding = csv_format.decoded(originals.read_unpacked(path), path, agreed)
    if agreed is not None:
        csv_format.check(text, path, agreed)
    form = agreed or csv_format.found(text, encoding, path)
    table_rows = table.rows(text, path, form)
    if not table_rows:
        raise InputError(f"'{path}' has no rows; give a file with rows")
    return table_rows, form


def check_names(names: list[str], path: Path) -> None:
    """Raise InputError unless every column has a name, and no two have the same."""
    if len(set(names)) < len(names) or "" in names:
        raise InputError(
            f"the columns of '{path}' are {', '.join(names)}; give each a different name"
        )
