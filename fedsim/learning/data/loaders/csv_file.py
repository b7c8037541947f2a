"""A table of the user's own, as comma-separated values."""

from pathlib import Path

from adversaries.errors import InputError
from fedsim.learning.data.loaders import originals, table
from fedsim.learning.data.loaders.dataset import Dataset
from fedsim.learning.data.loaders.source import Source


def own(source: Source) -> Dataset:
    """Return the dataset of a file of comma-separated values.

    The first line is a header if it has the label's name; otherwise columns are named c0, c1 and so
    on. Rows with missing values are left out and counted.

    source: its file, the label's column, and those that are no features.
    Raises InputError if the file is no table with such columns.
    """
    path = source.file
    found = rows(path)
    first = found[0]
    header = source.label in first
    names = found.pop(0) if header else [f"c{number}" for number in range(len(first))]
    if source.label not in names:
        raise InputError(
            f"'{path}' has no column '{source.label}': name the labels' with data.label, one of "
            f"its first line ({', '.join(first)}) or, if that is no header, of c0 to {names[-1]}"
        )
    known = f"its columns are {', '.join(names)}"
    check_names(names, path)
    for column in source.exclude:
        if column not in names or column == source.label:
            raise InputError(
                f"data.exclude names '{column}', which is no feature of '{path}'; {known}"
            )
    columns, dropped = table.columns_of(names, found, path)
    for name, values in () if header else columns.items():
        numeric = [table.typed(some).dtype.kind != "U" for some in (values, values[1:])]
        if numeric == [False, True]:
            raise InputError(
                f"column {name} of '{path}' has numbers under '{values[0]}': if that is a header, "
                "name the labels' column with data.label as it does"
            )
    return table.encode(
        source.name, path, columns, source.label, source.exclude, dropped, source.target
    )


def rows(path: Path) -> list[list[str]]:
    """Return the rows of a file, its first line among them.

    Raises InputError if it is not UTF-8, no table, or empty.
    """
    try:
        text = originals.read(path).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(f"'{path}' is not UTF-8 text ({error}); save it as that") from None
    found = table.rows(text, path)
    if not found:
        raise InputError(f"'{path}' has no rows; give a file with some")
    return found


def check_names(names: list[str], path: Path) -> None:
    """Make sure that every column has a name of its own.

    Raises InputError if one has none, or another's.
    """
    if len(set(names)) < len(names) or "" in names:
        raise InputError(
            f"its columns are {', '.join(names)} in '{path}'; give each a name of its own"
        )
