"""What a reply holds is found out from its bytes, before they are believed to be an array."""

import io

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, Error, Message, MetricRecord, RecordDict

from fedsim.federation.protocol import forms, messages, replies
from fedsim.federation.protocol.flower_private import become_task
from fedsim.federation.protocol.forms import Form
from fedsim.federation.server import acceptance

FLOATS = np.arange(8, dtype=np.float32).reshape(2, 4)


@pytest.fixture(autouse=True)
def _a_task_of_flowers():
    become_task(1, 1)  # messages carry its name


def _bytes(array):
    file = io.BytesIO()
    np.save(file, array, allow_pickle=False)
    return file.getvalue()


def _claiming(shape, data):
    """Return a header that claims a shape of float32, and these bytes behind it."""
    file = io.BytesIO()
    header = {"descr": "<f4", "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(file, header)
    return file.getvalue() + data


def _headed(header):
    """Return a header of this text, which NumPy reads as Python, and eight floats behind it."""
    return b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header.encode() + FLOATS.data


SHAPED = "{'descr': '<f4', 'fortran_order': False, 'shape': %s}"


def _check(data):
    Form.of(np.float32, 2, 4).check(data, "sum")


def test_an_array_as_it_was_asked_for_passes():
    _check(_headed(SHAPED % "(2, 4)"))
    _check(_bytes(FLOATS))
    _check(_bytes(np.asfortranarray(FLOATS)))


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (_bytes(FLOATS[:1]), r"is float32 \[1, 4\], not float32 \[2, 4\]"),
        (_bytes(FLOATS.astype(np.float64)), r"is float64 \[2, 4\]"),
        (_bytes(FLOATS.astype(">f4")), "not float32"),
        (_headed("{'descr': '|O', 'fortran_order': False, 'shape': (2,)}"), "is of type object"),
        (_bytes(np.array(["1", "2"])), "is of type <U1"),
        (_claiming((10**9, 10**9), b""), r"is float32 \[1000000000, 1000000000\]"),
        (_claiming((2, 4), b"\0" * 31), "has 31 bytes"),
        (_claiming((2, 4), b"\0" * 10**6), "has 1000000 bytes"),
        (_claiming((2, 4), b"")[:20], "is not an array"),
        (b"\x93NUMPY\x09\x00", "is not an array"),
        (b"", "is not an array"),
        # Each of these ends Python's parser, or NumPy's, in another kind of exception.
        (_headed("-" * 9000 + "1"), "is not an array"),
        (_headed("(" * 9000), "is not an array"),
        (_headed(SHAPED % ("1" + "+1" * 4000)), "is not an array"),
        (_headed("{'descr': ((),), 'fortran_order': False, 'shape': (2, 4)}"), "is not an array"),
        (_headed(SHAPED % "(2, 4, True)"), "is not an array"),
    ],
)
def test_anything_else_is_refused_by_what_is_wrong_with_it(data, reason):
    with pytest.raises(ValueError, match=reason):
        _check(data)


def _reply(**records):
    content = RecordDict({name: messages.array_record(**found) for name, found in records.items()})
    content[messages.METRICS] = MetricRecord({"partition": 0})
    return Message(content, 1000, "train")


def test_what_a_flower_array_says_of_itself_does_not_hide_what_it_holds():
    # One row would be broadcast to both.
    lying = Array("float32", (2, 4), "numpy.ndarray", _bytes(FLOATS[:1]))
    content = RecordDict({"reply": ArrayRecord({"sum": lying})})
    with pytest.raises(ValueError, match=r"'reply' is float32 \[1, 4\]"):
        forms.check(content, {"reply": {"sum": Form.of(np.float32, 2, 4)}})


WHOLE = Form.of(np.float64, 2, 4)
MEASURED = {"noise": np.zeros((2, 4)), "participation": np.ones(2, dtype=bool)}
ASKED = {"measurement": {"noise": WHOLE, "participation": Form.of(np.bool_, 2)}}


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"noise": np.zeros((2, 1))}, r"float64 \[2, 1\], not float64 \[2, 4\]"),
        ({"noise": np.full((2, 4), np.inf)}, "not finite"),
        ({"participation": np.ones(2)}, "float64"),
        ({"participation": np.ones(1, dtype=bool)}, r"bool \[1\]"),
    ],
)
def test_a_measurement_that_would_be_broadcast_is_refused(changes, reason):
    forms.check(_reply(measurement=MEASURED).content, ASKED)
    with pytest.raises(ValueError, match=reason):
        forms.check(_reply(measurement=MEASURED | changes).content, ASKED)


def test_a_reply_has_what_was_asked_for_and_nothing_else():
    content = _reply(reply={"sum": FLOATS}, measurement={"noise": np.zeros((2, 4))}).content
    reply, measured = {"reply": {"sum": Form.of(np.float32, 2, 4)}}, {"noise": WHOLE}
    forms.check(content, reply | {"measurement": measured})
    with pytest.raises(ValueError, match="'measurement', which was not requested"):
        forms.check(content, reply)
    with pytest.raises(ValueError, match=r"'measurement' must have exactly .*: noise, present"):
        forms.check(content, reply | {"measurement": measured | {"present": WHOLE}})
    with pytest.raises(ValueError, match="'disclosed' must have exactly these arrays: noise"):
        forms.check(content, reply | {"measurement": measured, "disclosed": measured})


KNOWN = dict.fromkeys(("ratios", "hit"), Form(None, ((2,), (2, 3)), infinite=True))


@pytest.mark.parametrize(
    ("found", "reason"),
    [
        ({"ratios": np.full((2, 3), np.nan)}, "'ratios' contains NaN"),
        ({"ratios": np.zeros((2, 2))}, r"float64 \[2, 2\], not float64 \[2\] or \[2, 3\]"),
        ({"ratios": np.zeros((3, 3))}, r"\[3, 3\]"),
        ({"hit": np.zeros(2)}, "no 'ratios': the node lost its Flower state"),
        (
            {"ratios": np.zeros((2, 3)), "file": np.zeros(2)},
            "finding 'file', which was not",
        ),
        (
            {"ratios": np.zeros((2, 3)), "n" * 70_000: np.zeros(2)},
            "finding 'n{60}…', which was not",
        ),
    ],
)
def test_findings_are_of_all_trials_and_rounds(found, reason):
    good = _reply(memory={"ratios": np.array([[0, np.inf, 1]] * 2), "hit": np.ones(2, dtype=bool)})
    acceptance.check_findings(good.content, KNOWN, "ratios")
    with pytest.raises(ValueError, match=reason):
        acceptance.check_findings(_reply(memory=found).content, KNOWN, "ratios")


def test_why_a_node_failed_is_told_without_the_traceback_before_it():
    asked = Message(RecordDict(), dst_node_id=7, message_type="train")
    traceback = "\n".join(f'File "app/{depth}.py", line 1, in train' for depth in range(100))
    reason = f"<class 'RayTaskError'>:<'{traceback}\n\nException: the model diverged'>"
    failed = replies.sort_out(
        [Message(Error(code=2, reason=reason), reply_to=asked)], nodes={0: 7}, asked=[0]
    ).failed
    assert failed == {0: "Exception: the model diverged"}


@pytest.mark.parametrize(
    ("reason", "said"),
    [
        (
            "<class 'fedsim.consent.RefusedError'>:<''a', 'b' would cost 2.'>",
            "'a', 'b' would cost 2.",
        ),
        ("RefusedError: this client refuses", "this client refuses"),
        ("<class 'ZeroDivisionError'>:<'division by zero'>", "ZeroDivisionError: division by zero"),
        ("Error: Node Unavailable", "Error: Node Unavailable"),
        ("gone", "gone"),
    ],
)
def test_an_error_is_told_in_its_own_words(reason, said):
    asked = Message(RecordDict(), dst_node_id=7, message_type="train")
    assert replies.failure(Message(Error(code=2, reason=reason), reply_to=asked)) == said


def test_what_a_hostile_node_says_is_cut_and_commands_no_terminal():
    asked = Message(RecordDict(), dst_node_id=7, message_type="train")
    reason = f"\x1b[31m\r{'A' * 5_000_000}"
    error = Message(Error(code=2, reason=reason), reply_to=asked)
    failed = replies.sort_out([error], nodes={0: 7}, asked=[0]).failed[0]
    (stranger,) = replies.sort_out([error], nodes={}, asked=[0]).unsolicited
    assert failed == f"\ufffd[31m\ufffd{'A' * 494}…"
    assert stranger == f"client ? failed: {failed}"
