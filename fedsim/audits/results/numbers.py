"""Numbers of a report. JSON has no infinity: it writes "Infinity"."""

from typing import Any, cast

from pydantic import GetCoreSchemaHandler
from pydantic_core import CoreSchema

from fedsim.common import reals

Real = reals.Real


class _Reals:
    """Makes pydantic read and write the floats of a class, and of classes inside it, as `Real`.

    A report must state a field that has a default, unless the default is None.
    """

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        made = handler(source)
        _make_real(made, handler, handler.generate_schema(Real))
        return made


def _make_real(schema: Any, handler: GetCoreSchemaHandler, real: CoreSchema) -> None:
    if isinstance(schema, list):
        for each in schema:
            _make_real(each, handler, real)
    if not isinstance(schema, dict) or schema.get("custom_error_type") == "real":
        return
    if schema.get("type") == "definition-ref":
        _make_real(handler.resolve_ref_schema(cast(CoreSchema, schema)), handler, real)
        return
    if schema.get("type") == "default" and schema.get("default", ...) is not None:
        inner = schema["schema"]
        schema.clear()
        schema |= inner
    if schema.get("type") == "float":
        schema.clear()
        schema |= real
        return
    for each in schema.values():
        _make_real(each, handler, real)


REALS = _Reals()
"""Marks a class of `adversaries`, which does not use pydantic, as part of a report."""

Ends = tuple[Real, Real]
"""The ends of an interval."""
