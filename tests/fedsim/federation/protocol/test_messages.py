"""Arrays of messages, against NumPy's own reader; what is no array is refused."""

import io

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, RecordDict
from flwr.supercore.inflatable.inflatable_object import get_all_nested_objects
from flwr.supercore.inflatable.inflatable_utils import (
    inflate_object_from_contents,
    validate_object_content,
)
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from fedsim.federation.protocol import messages


@given(
    arrays.arrays(
        st.sampled_from([np.float32, np.float64, np.uint32, np.int64, np.bool_]),
        arrays.array_shapes(min_dims=0, max_dims=3, min_side=0),
    ),
    st.booleans(),
)
def test_arrays_arrive_as_they_were_sent(array, in_columns):
    sent = np.asfortranarray(array) if in_columns else array
    held = messages.array_record(sum=sent)  # as in one process
    (each,) = held.values()
    as_bytes = ArrayRecord({"sum": Array(each.dtype, each.shape, each.stype, each.data)})
    for record in (held, as_bytes):
        found = messages.only(record)
        assert (found.dtype, found.shape) == (sent.dtype, sent.shape)
        np.testing.assert_array_equal(found, sent)
        assert not found.flags.writeable  # others may read the same memory


def _bytes(header, data):
    text = header.encode().ljust(118) + b"\n"
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text + data


@pytest.mark.parametrize(
    "data",
    [
        _bytes("{'descr': '<f4', 'fortran_order': False, 'shape': (-1,), }", b"\0" * 8),
        _bytes("{'descr': '<f4', 'fortran_order': False, 'shape': (2, -1), }", b"\0" * 8),
        _bytes("{'descr': '<f4', 'fortran_order': False, 'shape': (9223372036854775808,), }", b""),
        _bytes("{'descr': '<f4', 'fortran_order': False, 'shape': (True,), }", b"\0" * 4),
        _bytes("{'descr': '<f4', 'fortran_order': False, 'shape': (3,), }", b"\0" * 8),
        _bytes("{'descr': '|O', 'fortran_order': False, 'shape': (1,), }", b"\0" * 8),
        _bytes("{'descr': '<f4', 'shape': (1,), }", b"\0" * 4),
        b"\x93NUMPY\x01\x00",
        b"no array at all",
    ],
)
def test_what_is_no_array_is_refused(data):
    array = Array(dtype="float32", shape=(1,), stype="numpy.ndarray", data=data)
    with pytest.raises((ValueError, EOFError)):
        messages.only(ArrayRecord({"sum": array}))


def test_an_array_of_another_version_is_read_all_the_same():
    file = io.BytesIO()
    np.lib.format.write_array(file, np.arange(3.0), version=(2, 0))
    array = Array(dtype="float64", shape=(3,), stype="numpy.ndarray", data=file.getvalue())
    assert messages.only(ArrayRecord({"sum": array})).tolist() == [0.0, 1.0, 2.0]


def test_arrays_held_in_a_process_leave_it_as_flowers_own():
    """Flower names the kind of an object by its class, and its nodes know its own classes only."""
    sent = RecordDict({"model": messages.array_record(parameters=np.arange(6.0).reshape(2, 3))})
    objects = get_all_nested_objects(sent)
    contents = {name: each.deflate() for name, each in objects.items()}
    for content in contents.values():
        validate_object_content(content)
    received = inflate_object_from_contents(sent.object_id, contents)
    assert isinstance(received, RecordDict)
    array = received.array_records["model"]["parameters"]
    assert type(array) is Array
    assert np.array_equal(array.numpy(), np.arange(6.0).reshape(2, 3))
