"""Numbers of a report, of which pydantic writes an infinite one as "Infinity"."""

from typing import Annotated, Any

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
