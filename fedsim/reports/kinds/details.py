"""The rows and details of any audit as tables: a name, its value, and the schema's words on it."""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from fedsim.audits.judgement import report as document
from fedsim.audits.judgement.report import AuditReport
from fedsim.reports.document import blocks as doc
from fedsim.reports.document.wording import DASH, number, plain

ESTIMATE, BOUND = {"low", "high"}, {"epsilon", "method", "assumes", "reason"}
EMPTY: tuple[object, ...] = (None, "", [], {})
"""Values of what was not measured, or does not apply: a table leaves them out."""

MISSING = re.compile(r"[;,.]?( and)? *\bNone\b[^.;]*")  # what the schema says of these values
MOST = 12
"""Most entries of a list that a cell shows; figures show the longer ones."""


def part(report: AuditReport) -> doc.Part:
    """Return the folded part with a table for each object of an audit's rows and details."""
    schema, written = document.schema(type(report.details)), report.report
    described = schema["properties"]
    rows = written["rows"], described["rows"], schema["$defs"], "observer"
    own = written["details"], described["details"], schema["$defs"], ""
    blocks: list[doc.Block] = []
    for path, found in (*_tables(*rows), *_tables(*own)):
        blocks += [doc.Heading(_title(path) or "The audit"), found]
    return doc.Part("Every number, and what it means", blocks, folded=True)


def _tables(
    values: Mapping[str, Any], schema: Mapping[str, Any], known: Mapping[str, Any], path: str
) -> Iterator[tuple[str, doc.Table]]:
    """Yield the table of an object, and those of the objects in it, each with its path."""
    described = _resolved(schema, known, values).get("properties", {})
    further = schema.get("additionalProperties")
    entries = further if isinstance(further, Mapping) else {}
    lines, inner = list[tuple[str, str, str]](), list[tuple[str, doc.Table]]()
    for name, value in values.items():
        place = f"{path}.{name}".removeprefix(".")
        each = described.get(name) or entries
        declared = isinstance(value, Mapping) and "properties" in _resolved(each, known, value)
        if isinstance(value, Mapping) and value and not (declared and _is_number(value)):
            inner += _tables(value, each, known, place)
        elif isinstance(value, list) and value and isinstance(value[0], Mapping):
            if not _is_number(value[0]):
                inner.append((place, _listed(value)))
        elif value not in EMPTY and not (isinstance(value, list) and len(value) > MOST):
            meaning = MISSING.sub("", each.get("description", ""))
            lines.append((_title(name).lower(), _worded(value), meaning))
    if lines:
        yield path, doc.tabulated(("name", "value", "meaning"), lines)
    yield from inner


def _resolved(
    schema: Mapping[str, Any], known: Mapping[str, Any], values: Mapping[str, Any]
) -> Mapping[str, Any]:
    """Return the schema of an object: of several possible ones, that which has all its keys."""
    if "$ref" in schema:
        return _resolved(known[schema["$ref"].rpartition("/")[2]], known, values)
    for each in schema.get("anyOf", ()):
        found = _resolved(each, known, values)
        if {*values} == {*found.get("properties", ())}:
            return found
    return schema


def _listed(rows: Sequence[Mapping[str, Any]]) -> doc.Table:
    names = [name for name, value in rows[0].items() if not _is_long(value)]
    cells = [[_worded(row.get(name)) for name in names] for row in rows]
    return doc.tabulated([_title(name).lower() for name in names], cells)


def _is_long(value: Any) -> bool:
    return isinstance(value, list | Mapping) and not _is_number(value)


def _is_number(value: Any) -> bool:
    """Return whether an object is one number: an estimate with its interval, or a bound."""
    return isinstance(value, Mapping) and ({*value} >= ESTIMATE or {*value} >= BOUND)


YES_NO = {True: "yes", False: "no"}


def _worded(value: Any) -> str:
    if value in EMPTY:
        return DASH
    match value:
        case list():
            return ", ".join(map(_worded, value))
        case bool():
            return YES_NO[value]
        case float() | "Infinity":
            # A belief that is not certain does not round to certainty.
            return ">0.999" if 0.9995 <= float(value) < 1 else number(float(value))
        case Mapping() if _is_number(value):
            return _estimate(value)
    return plain(value)


def _estimate(value: Mapping[str, Any]) -> str:
    if "method" in value:
        why = f"; {value['reason']}" if value["reason"] else f"; assumes {value['assumes']}"
        return f"at least {_worded(value['epsilon'])} ({value['method']}{why})"
    ends = f"{_worded(value['low'])} to {_worded(value['high'])}"
    return f"{_worded(value['point'])} ({ends})" if "point" in value else ends


def _title(path: str) -> str:
    words = path.replace("_", " ").replace(".", ": ")
    return f"{words[:1].upper()}{words[1:]}"
