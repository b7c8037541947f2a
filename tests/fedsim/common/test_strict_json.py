"""What JSON cannot hold of a number: infinity is a word of reports or null, and NaN is refused."""

import json
import math

import numpy as np
import pytest

from fedsim.common.strict_json import report_json, strict_json

NUMBERS = {"ends": (np.float64(-math.inf), math.inf), 3: [np.int64(2), None, True, "Infinity"]}


@pytest.mark.parametrize(
    ("encode", "ends"), [(report_json, ["-Infinity", "Infinity"]), (strict_json, [None, None])]
)
def test_infinity_is_a_word_of_reports_and_null_elsewhere(encode, ends):
    encoded = encode(NUMBERS)
    assert encoded == {"ends": ends, "3": [2, None, True, "Infinity"]}
    assert json.loads(json.dumps(encoded, allow_nan=False)) == encoded


@pytest.mark.parametrize("encode", [report_json, strict_json])
def test_what_is_not_a_number_is_never_an_answer(encode):
    with pytest.raises(ArithmeticError, match="is NaN"):
        encode({"epsilon": [np.float32("nan")]})
