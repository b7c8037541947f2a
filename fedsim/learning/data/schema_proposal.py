"""A first schema of a table, with marks on lines that public knowledge must replace."""

import math
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from adversaries.errors import InputError
from fedsim.common import private_files
from fedsim.learning.data import files
from fedsim.learning.data.columns import LARGEST, MISSING
from fedsim.learning.data.dataset import PLAIN, Columns, CsvFormat, TargetRange
from fedsim.learning.data.schema import MARK

MOST_VALUES = 50
"""A text column with more distinct values is proposed as an identifier."""

MOST_LABELS = 1000
"""A column with more distinct labels cannot be the classes."""

RARE = 0.02
"""Share of a column's numbers at either end that are clipped to its range."""

NAME = re.compile(r"[+-]?0[0-9]|.*_")
"""What float() reads as a number, and is probably a name."""

FEWEST_NAMES = 10
"""A column of fewer rows may differ in every row by chance."""

GAPS = ', missing = "category"'
"""The rule of a column with gaps."""

FEWEST_RECORDS = 10
"""A value in fewer records is not listed: it could be one person's."""


Labels = tuple[str, ...] | TargetRange
"""What a model of a table predicts: one of some classes, or a number in a range."""


@dataclass(frozen=True)
class Proposal:
    """A proposed schema entry for a column, and what it would disclose about the records.

    Attributes:
        rule: "" for a column that is no feature.
        numbered: whether every row has another whole number, as identifiers have.
    """

    name: str
    rule: str = ""
    discloses: str = ""
    identifier: bool = False
    numbered: bool = False


def classes_of(values: Iterable[str]) -> tuple[str, ...]:
    """Return the different values of a column as classes, numbers in their order."""
    different = set(_present(values))
    numbers = _numbers(list(different)) or []
    if len(set(numbers)) < len(numbers):
        raise InputError(
            "the labels write one number in several ways, such as 1 and 1.0; write it in one"
        )
    return tuple(sorted(different, key=float if numbers else None))


def _labels_of(values: Sequence[str]) -> Labels:
    """Return the labels of a column. Numbers that few records share are no classes."""
    counts = Counter(_present(values))
    numbers = _numbers(list(counts))
    if numbers and min(counts.values()) < FEWEST_RECORDS and len(counts) > 2:
        return TargetRange(*_rounded(min(numbers), max(numbers)))
    return classes_of(counts)


def of_columns(
    columns: Columns,
    label: str,
    where: str,
    form: CsvFormat = PLAIN,
    exclude: Sequence[str] = (),
    labels: Labels | None = None,
) -> tuple[str, list[str]]:
    """Return the schema that a table proposes, and what its owner should know of its reading.

    Args:
        columns: as text, [N] by name.
        label: the column of the labels.
        where: of the table, for errors.
        form: of the table's file.
        exclude: columns that are no features.
        labels: None for those of the column.

    Raises:
        InputError: a column is missing, there are fewer than two classes, or no features.
    """
    if label not in columns:
        raise InputError(
            f"{where} has no column '{label}'; set --label, or data.label, to the column of the "
            f"labels: {', '.join(columns)}"
        )
    if missing := [name for name in exclude if name not in columns or name == label]:
        raise InputError(
            f"data.exclude names '{missing[0]}', which is not a feature of {where}; its columns "
            f"are {', '.join(columns)}"
        )
    labels = labels or _labels_of(columns[label])
    if isinstance(labels, tuple) and not 2 <= len(labels) <= MOST_LABELS:
        raise InputError(
            f"the column '{label}' of {where} has {len(labels)} different labels; a classifier "
            f"needs 2 to {MOST_LABELS:,}"
        )
    names = [name for name in columns if name not in (label, *exclude)]
    proposals = [_proposed(name, columns[name]) for name in names]
    if not any(each.rule for each in proposals):
        raise InputError(f"{where} has no column that can be a feature besides '{label}'")
    return _written(label, labels, proposals, form), _notes(labels, proposals, form)


def of_table(path: str, label: str) -> tuple[str, list[str]]:
    """Return `of_columns` of a CSV, Parquet or NumPy file. Raises InputError also for another."""
    if Path(path).suffix == ".txt":
        raise InputError(
            f"'{path}' has a text in each line, for which no schema can be proposed; write the "
            "schema yourself, with a [text] table, for example with length = 64 tokens "
            "(docs/how-to/fine-tuning.md)"
        )
    columns, form = files.read(path)
    return of_columns(columns, label, f"'{path}'", form)


def _proposed(name: str, values: Sequence[str]) -> Proposal:
    present = [value.strip() for value in _present(values)]
    counts = Counter(present)
    if len(counts) < 2:
        return Proposal(name)
    gaps = GAPS * (len(present) < len(values))  # so no record is left out
    read = _numbers(present)
    # A column that differs in every row, and is text or has "id" in its name.
    words = name.lower().replace("_", " ").replace("-", " ").split()
    unique = len(counts) == len(values) > FEWEST_NAMES and ("id" in words or not read)
    if unique or (not read and len(counts) > MOST_VALUES):
        return Proposal(name, identifier=True)
    if read:
        least, largest = _usual(read)
        rule = f'{{ range = [{least:.12g}, {largest:.12g}], outside = "clip"{gaps} }}'
        where = f"about where {1 - 2 * RARE:.0%} of the values lie"
        numbered = len(set(read)) == len(values) > FEWEST_NAMES and all(map(float.is_integer, read))
        return Proposal(name, rule, where, numbered=numbered)
    common = sorted(value for value, count in counts.items() if count >= FEWEST_RECORDS)
    if len(common) < 2:
        return Proposal(name)
    rule = f'{{ values = {_listed(common)}, other = "other"{gaps} }}'
    return Proposal(name, rule, f"which values {FEWEST_RECORDS} records have")


def _written(label: str, labels: Labels, proposals: Sequence[Proposal], form: CsvFormat) -> str:
    """Return the schema's file, with a mark on every line that would disclose something."""
    if isinstance(labels, tuple):
        predicted = f"classes = {_listed(labels)}  # {MARK}: the labels"
    else:
        ends = f"[{labels.least:.12g}, {labels.largest:.12g}]"
        predicted = f"target = {ends}  # {MARK}: about the least and the largest label"
    ignored = [each.name for each in proposals if not (each.rule or each.identifier)]
    lines = [
        "# The description of the records of all clients. This file is public.",
        f"# A line marked {MARK} was read off one client's records and discloses them:",
        "# replace it by public knowledge, and delete the mark, before you share this file.",
        "",
        f"label = {_quoted(label)}",
        predicted,
        'unlabelled = "drop"  # records without such a label: drop or refuse',
        f"identifiers = {_listed(each.name for each in proposals if each.identifier)}",
        *([f"# not used: {', '.join(ignored)}"] if ignored else []),
        "",
        "[columns]",
        *(f"{_quoted(e.name)} = {e.rule}  # {MARK}: {e.discloses}" for e in proposals if e.rule),
    ]
    if form != PLAIN:
        entries = (f"{key} = {_quoted(value)}" for key, value in asdict(form).items())
        lines += ["", "[file]  # the same for the files of all clients", *entries]
    return "\n".join(lines) + "\n"


def _notes(labels: Labels, proposals: Sequence[Proposal], form: CsvFormat) -> list[str]:
    """Return sentences about what the owner of a table should know of its reading."""
    ignored = [each.name for each in proposals if not (each.rule or each.identifier)]
    about: dict[str, list[str]] = {
        "identifiers, which are no features: {}": [e.name for e in proposals if e.identifier],
        "not used, since no two of their values are in ten records each: {}": ignored,
        "every row has another whole number in {}: if it identifies people, list it in "
        "identifiers, or in data.exclude": [each.name for each in proposals if each.numbered],
        "gaps in {} are a feature, so that no row is left out": [
            each.name for each in proposals if GAPS in each.rule
        ],
    }
    sentences = [] if form == PLAIN else [f"the file was read as {form}"]
    sentences += [text.format(", ".join(names)) for text, names in about.items() if names]
    if not isinstance(labels, tuple):
        ends = f"{labels.least:g} to {labels.largest:g}"
        sentences.append(f"the label is predicted as a number from {ends}")
    return sentences


def write_schema(file: Path, text: str, force: bool) -> None:
    """Write a schema.

    Raises InputError if the file exists and `force` is False.
    """
    with private_files.new_file(file, mode=0o644, replace=force) as written:
        written.write(text.encode())


def _present(values: Iterable[str]) -> list[str]:
    return [value for value in values if value.strip().lower() not in MISSING]


def _numbers(values: Sequence[str]) -> list[float] | None:
    """Return the numbers in texts, or None; 007 and numbers beyond 10^15 are names."""
    try:
        numbers = [float(value) for value in values]
    except ValueError:
        return None
    plain = all(math.isfinite(number) and abs(number) <= LARGEST for number in numbers)
    return numbers if plain and not any(map(NAME.match, values)) else None


def _usual(numbers: Sequence[float]) -> tuple[float, float]:
    """Return about the range of all numbers but the share `RARE` at either end.

    A few values far outside would leave a short part of the range to all others. Their feature
    would be nearly constant, and its weight too small beside the noise.
    """
    ordered = sorted(numbers)
    rare = int(RARE * len(ordered))
    least, largest = ordered[rare], ordered[-1 - rare]
    if least == largest:
        least, largest = ordered[0], ordered[-1]
    return _rounded(least, largest, parts=5)


def _rounded(least: float, largest: float, parts: int = 1) -> tuple[float, float]:
    """Return a range around another, whose ends are multiples of a power of ten over `parts`."""
    width = largest - least or abs(largest) or 1.0
    step = 10.0 ** math.floor(math.log10(width)) / parts
    low, high = math.floor(least / step) * step, math.ceil(largest / step) * step
    return low, high if high > low else low + step


def _listed(texts: Iterable[str]) -> str:
    return f"[{', '.join(map(_quoted, texts))}]"


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return '"' + "".join(c if c.isprintable() else f"\\u{ord(c):04x}" for c in escaped) + '"'
