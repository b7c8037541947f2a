"""Numbers of a report. JSON has no infinity, so that report.json writes it as "Infinity"."""

from typing import Annotated, Any, cast

from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic_core import CoreSchema, core_schema

from fedsim.common.strict_json import INFINITIES, real_json


class _Infinite:
    """Makes pydantic read and write infinity as a word, and refuse other words and NaN."""

    def __get_pydantic_core_schema__(self, _: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        word = core_schema.no_info_after_validator_function(
            float, core_schema.literal_schema(list(INFINITIES))
        )
        return core_schema.union_schema(
            [core_schema.float_schema(strict=True, allow_inf_nan=False), word],
            custom_error_type="real",
            custom_error_message='neither a number nor "Infinity"',
            serialization=core_schema.plain_serializer_function_ser_schema(real_json),
        )

    def __get_pydantic_json_schema__(
        self, _: CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        return {"anyOf": [{"type": "number"}, {"enum": list(INFINITIES)}]}


Real = Annotated[float, _Infinite()]
"""A number that may be infinite."""


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
