"""How a file writes a table: its separator, its decimal mark and its encoding."""

import codecs
import csv
import io
import re
from pathlib import Path

from adversaries.errors import InputError
from fedsim.learning.data.loaders.dataset import CsvFormat, Decimal, Encoding, Separator

SEPARATORS: tuple[Separator, ...] = ",", ";", "\t", "|"
UTF_8: Encoding = "utf-8"
WINDOWS: Encoding = "windows-1252"
UTF_16: Encoding = "utf-16"

HEAD = 1000
"""Rows after which the separator and the decimal mark are decided."""

WITH_COMMA = re.compile(r"[+-]?(?:[0-9]+|[0-9]{1,3}(?:\.[0-9]{3})+),[0-9]+")
"""A number with a decimal comma, with or without points between thousands."""

WITH_POINT = re.compile(r"[+-]?[0-9]+\.[0-9]+")


def decoded(content: bytes, path: Path, agreed: CsvFormat | None) -> tuple[str, Encoding]:
    """Return the text of a file, and its encoding.

    agreed: the format of all clients' files; None to find the encoding.
    Raises InputError for another encoding than the agreed one, or for an unknown one.
    """
    encoding: Encoding = WINDOWS
    if content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        encoding = UTF_16
    elif content.isascii() and agreed is not None and agreed.encoding == WINDOWS:
        pass  # the same text in both
    elif _is_utf_8(content):
        encoding = UTF_8
    try:
        text = content.decode("utf-8-sig" if encoding == UTF_8 else encoding)
    except UnicodeDecodeError:
        raise InputError(f"'{path}' is not UTF-8 text; save it as UTF-8") from None
    if agreed is not None and encoding != agreed.encoding:
        raise InputError(
            f"'{path}' seems to be {encoding} text, but the schema says {agreed.encoding}; save "
            f"it as {agreed.encoding}, or agree on file.encoding in the schema"
        )
    return text, encoding


def found(text: str, encoding: Encoding, path: Path) -> CsvFormat:
    """Return the format of a text, by its first `HEAD` rows.

    The first row decides the separator. If it fits several, the next rows must rule out all but
    one. Raises InputError if the separator or the decimal mark is ambiguous.
    """
    heads = {each: _head(text, each) for each in SEPARATORS}
    fitting = [each for each, rows in heads.items() if rows and len(rows[0]) > 1]
    if len(fitting) > 1:
        even = [each for each in fitting if len(set(map(len, heads[each]))) == 1]
        if len(even) != 1:
            raise InputError(
                f"'{path}' seems to be separated by {' or '.join(map(repr, even or fitting))}; "
                "save it with one separator, and quote values that contain it"
            )
        fitting = even
    separator = fitting[0] if fitting else ","
    # After a comma as separator, "1,234" in quotes is a thousand.
    decimal: Decimal = "." if separator == "," else _decimal(heads[separator], path)
    return CsvFormat(separator, decimal, encoding)


def _decimal(rows: list[list[str]], path: Path) -> Decimal:
    """Return the decimal mark of rows, the first of which is a header or a record."""
    columns = list(zip(*rows, strict=False))
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


def check(text: str, path: Path, agreed: CsvFormat) -> None:
    """Raise InputError if the first row of a text shows another separator than the agreed one."""
    widths = {each: len((_head(text, each, 1) or [[]])[0]) for each in SEPARATORS}
    other = max(widths, key=lambda each: widths[each])
    if widths[agreed.separator] < 2 <= widths[other]:
        raise InputError(
            f"'{path}' seems to be separated by {other!r}, but the schema says "
            f"{agreed.separator!r}; save it with {agreed.separator!r}, or agree on "
            "file.separator in the schema"
        )


def with_point(value: str) -> str:
    """Return a number with a decimal comma as one with a point; other texts as they are.

    Raises ValueError for a number with a decimal point.
    """
    if WITH_POINT.fullmatch(value):
        raise ValueError("it has a number with a decimal point, and the others have commas")
    if not WITH_COMMA.fullmatch(value):
        return value
    return value.replace(".", "").replace(",", ".")


def _head(text: str, separator: str, count: int = HEAD) -> list[list[str]]:
    """Return the first rows that are not blank."""
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=separator, skipinitialspace=True)
    rows: list[list[str]] = []
    try:
        for row in reader:
            values = [value.strip() for value in row]
            if any(values):
                rows.append(values)
            if len(rows) == count:
                break
    except csv.Error:  # reported with its line when all rows are read
        pass
    return rows


def _is_utf_8(content: bytes) -> bool:
    try:
        content.decode()
    except UnicodeDecodeError:
        return False
    return True
