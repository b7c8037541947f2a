"""A user's own table of comma-separated values."""

from pathlib import Path

from adversaries.errors import InputError
from fedsim.learning.data.loaders import originals, table
from fedsim.learning.data.loaders.dataset import Dataset, Source


def own(source: Source) -> Dataset:
    """Return the dataset of a file of comma-separated values.

    The first line is a header if it contains the label's name; otherwise columns are named c0, c1
    and so on. Rows with missing values are left out and counted.

    Raises InputError if the file is no table with such columns.
    """
    path = source.file
    table_rows = rows(path)
    first = table_rows[0]
    header = source.label in first
    names = table_rows.pop(0) if header else [f"c{number}" for number in range(len(first))]
    if source.label not in names:
        raise InputError(
            f"'{path}' has no column '{source.label}': set data.label to one of its first line "
            f"({', '.join(first)}) or, if that line is not a header, to one of c0 to {names[-1]}"
        )
    check_names(names, path)
    for column in source.exclude:
        if column not in names or column == source.label:
            raise InputError(
                f"data.exclude names '{column}', which is not a feature of '{path}'; its columns "
                f"are {', '.join(names)}"
            )
    columns, dropped = table.columns_of(names, table_rows, path)
    for name, values in () if header else columns.items():
        numeric = [table.typed(some).dtype.kind != "U" for some in (values, values[1:])]
        if numeric == [False, True]:
            raise InputError(
                f"column {name} of '{path}' has numbers under '{values[0]}': if that is a header, "
                "set data.label to the labels' name in it"
            )
    return table.encode(
        source.name, path, columns, source.label, source.exclude, dropped, source.target
    )


def rows(path: Path) -> list[list[str]]:
    """Return the rows of a file, with its first line. Raises InputError for other files."""
    try:
        text = originals.read_unpacked(path).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(f"'{path}' is not UTF-8 text ({error}); save it as UTF-8") from None
    table_rows = table.rows(text, path)
    if not table_rows:
        raise InputError(f"'{path}' has no rows; give a file with rows")
    return table_rows


def check_names(names: list[str], path: Path) -> None:
    """Raise InputError unless every column has a name, and no two have the same."""
    if len(set(names)) < len(names) or "" in names:
        raise InputError(
            f"the columns of '{path}' are {', '.join(names)}; give each a different name"
        )
