"""Files of separated values: their separator, decimal mark and encoding, and their rows."""

import codecs
import contextlib
import csv
import io
import re
from collections.abc import Sequence
from pathlib import Path

from adversaries.errors import InputError
from fedsim.common import reading
from fedsim.learning.data.dataset import PLAIN, Columns, CsvFormat, Decimal, Encoding, Separator

SEPARATORS: tuple[Separator, ...] = (",", ";", "\t", "|")

HEAD = 1000
"""Rows after which the separator and the decimal mark are decided."""

WITH_COMMA = re.compile(r"[+-]?(?:[0-9]+|[0-9]{1,3}(?:\.[0-9]{3})+),[0-9]+")
"""A number with a decimal comma, with or without points between thousands."""

WITH_POINT = re.compile(r"[+-]?[0-9]+\.[0-9]+")

Rows = list[list[str]]


def read_bytes(path: Path) -> bytes:
    """Return the content of a file, unpacked if its name ends in .gz.

    Raises InputError if damaged.
    """

    def refusal(reason: str) -> InputError:
        return InputError(
            f"'{path}' is damaged or cannot be read ({reason}); put another copy in its place"
        )

    with reading.damage(refusal):
        if path.suffix == ".gz":
            return reading.unpacked(path)
        with reading.opened(path) as file:
            return file.read()


def read(path: Path, agreed: CsvFormat | None = None) -> tuple[Columns, CsvFormat]:
    """Return the columns of a file by the names in its first line, and the file's format.

    agreed: the format of all clients' files; None to find it.
    Raises InputError for other files, or if a column has no name, or two have the same.
    """
    content = read_bytes(path)
    encoding = _encoding(content)
    if agreed is not None and content.isascii() and agreed.encoding != "utf-16":
        encoding = agreed.encoding
    if agreed is not None and encoding != agreed.encoding:
        raise InputError(
            f"'{path}' seems to be {encoding} text, but the schema says {agreed.encoding}; save "
            f"it as {agreed.encoding}, or agree on file.encoding in the schema"
        )
    try:
        text = content.decode("utf-8-sig" if encoding == "utf-8" else encoding)
    except UnicodeDecodeError:
        raise InputError(f"'{path}' is not UTF-8 text; save it as UTF-8") from None
    if agreed is None:
        form = _format(text, encoding, path)
    else:
        form = agreed
        widths = {each: len((_head(text, each, 1) or [[]])[0]) for each in SEPARATORS}
        other = max(SEPARATORS, key=lambda each: widths[each])
        if widths[form.separator] < 2 <= widths[other]:
            raise InputError(
                f"'{path}' seems to be separated by {other!r}, but the schema says "
                f"{form.separator!r}; save it with {form.separator!r}, or agree on "
                "file.separator in the schema"
            )
    table = rows(text, path, form)
    if not table:
        raise InputError(f"'{path}' has no rows; give a file with rows")
    names, *records = table
    if len(set(names)) < len(names) or "" in names:
        raise InputError(
            f"the columns of '{path}' are {', '.join(names)}; give each a different name in the "
            "first line"
        )
    return columns_of(names, records), form


def columns_of(names: Sequence[str], rows: Sequence[Sequence[str]]) -> Columns:
    """Return the columns [N] of rows by name, also of no rows."""
    return dict(zip(names, zip(*rows, strict=True) if rows else [()] * len(names), strict=True))


def rows(text: str, path: Path, form: CsvFormat = PLAIN) -> Rows:
    """Return the rows of separated values, stripped and without blank rows.

    Raises InputError if a row is longer or shorter than the first, or a value is too long for a
    table.
    """
    reader = csv.reader(
        io.StringIO(text, newline=""), delimiter=form.separator, skipinitialspace=True, strict=True
    )
    table: Rows = []
    widest = 0
    try:
        for row in reader:
            values = [value.strip() for value in row]
            if form.decimal == ",":
                values = list(map(_with_point, values))
            if values in ([], [""]):
                continue
            if table and len(row) != len(table[0]):
                raise InputError(
                    f"line {reader.line_num} of '{path}' has {len(row)} values separated by "
                    f"{form.separator!r}, but the first has {len(table[0])}; correct that line"
                )
            table.append(values)
            widest = max(widest, *map(len, values))
    except (csv.Error, ValueError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(
            f"line {reader.line_num} of '{path}' is not values separated by {form.separator!r} "
            f"({error}); correct that line"
        ) from None
    # NumPy stores a column of text with the width of its widest value.
    if 4 * widest * len(table) > reading.most_unpacked(len(text)):
        raise InputError(
            f"'{path}' has a value of {widest} characters, too long for a table of {len(table)} "
            "rows; shorten it, or leave its column out of the file"
        )
    return table


def _encoding(content: bytes) -> Encoding:
    if content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return "utf-16"
    try:
        content.decode()
    except UnicodeDecodeError:
        return "windows-1252"
    return "utf-8"


def _format(text: str, encoding: Encoding, path: Path) -> CsvFormat:
    """Return the format of a text, by its first `HEAD` rows.

    The first row decides the separator. Raises InputError if it or the decimal mark is ambiguous.
    """
    heads = {each: _head(text, each) for each in SEPARATORS}
    fitting = [each for each, head in heads.items() if head and len(head[0]) > 1]
    if len(fitting) > 1:
        raise InputError(
            f"the first line of '{path}' seems to be separated by "
            f"{' or '.join(map(repr, fitting))}; quote the names that contain one of them"
        )
    separator = fitting[0] if fitting else ","
    # After a comma as separator, "1,234" in quotes is a thousand.
    decimal: Decimal = "." if separator == "," else _decimal(heads[separator], path)
    return CsvFormat(separator, decimal, encoding)


def _decimal(head: Rows, path: Path) -> Decimal:
    """Return the decimal mark of rows, the first of which is a header or a record."""
    columns = list(zip(*head, strict=False))
    commas, points = (
        [column for column in columns if any(map(mark.fullmatch, column[1:]))]
        for mark in (WITH_COMMA, WITH_POINT)
    )
    if not commas:
        return "."
    if points:
        raise InputError(
            f"'{path}' has decimal commas in column '{commas[0][0]}', and decimal points in column "
            f"'{points[0][0]}'; write all numbers in one way"
        )
    decimals = (value for column in commas for value in column[1:] if WITH_COMMA.fullmatch(value))
    if all(value[-4:-3] == "," for value in decimals):
        raise InputError(
            f"'{path}' has three digits after every comma, as in column '{commas[0][0]}'; write "
            "decimals with another number of digits, or thousands without commas"
        )
    return ","


def _with_point(value: str) -> str:
    """Return a number with a decimal comma as one with a point; other texts as they are.

    Raises ValueError for a number with a decimal point.
    """
    if WITH_POINT.fullmatch(value):
        raise ValueError("it has a number with a decimal point, and the others have commas")
    if not WITH_COMMA.fullmatch(value):
        return value
    return value.replace(".", "").replace(",", ".")


def _head(text: str, separator: str, count: int = HEAD) -> Rows:
    """Return the first rows that are not blank; a wrong row ends them, and is reported later."""
    found: Rows = []
    lines = io.StringIO(text, newline="")
    with contextlib.suppress(csv.Error):
        for row in csv.reader(lines, delimiter=separator, skipinitialspace=True):
            if any(values := [value.strip() for value in row]):
                found.append(values)
            if len(found) == count:
                break
    return found
