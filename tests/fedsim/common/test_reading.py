"""What a small file may take of memory, and that whatever is wrong with it has one kind."""

import gzip
import io
import json
import zipfile

import numpy as np
import pytest

from adversaries.errors import InputError
from fedsim.common import reading


def _header(shape, dtype):
    file = io.BytesIO()
    header = {"descr": dtype, "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(file, header)
    return file.getvalue()


def _npz(path, name, content, method=zipfile.ZIP_DEFLATED):
    with zipfile.ZipFile(path, "w", method) as archive:
        archive.writestr(name, content)
    return path


def test_arrays_come_back_all_or_some_of_them(tmp_path):
    kept = {"a": np.eye(3), "b": np.array(["x", "yy"]), "empty": np.zeros((0, 4))}
    np.savez_compressed(tmp_path / "a.npz", **kept)
    found = reading.arrays(tmp_path / "a.npz")
    assert list(found) == list(kept)
    for name, array in kept.items():
        np.testing.assert_array_equal(found[name], array, strict=True)
    assert list(reading.arrays(tmp_path / "a.npz", only=("b", "c"))) == ["b"]


@pytest.mark.parametrize(
    ("shape", "dtype", "content"),
    [
        ((2**40,), "<f8", b""),
        ((2**62, 0), "<f8", b""),
        ((2**62,), "<U0", b""),
        ((2,), "<f8", b"\0" * 8),
        ((2,), "<f8", b"\0" * 24),
        ((-2,), "<f8", b"\0" * 16),
        ((1,), "|O", b"\0" * 8),
    ],
)
def test_an_array_is_as_large_as_it_says_before_room_is_made(shape, dtype, content, tmp_path):
    path = _npz(tmp_path / "a.npz", "a.npy", _header(shape, dtype) + content)
    with pytest.raises(reading.DAMAGE, match=r"not as large as its header says|Python objects"):
        reading.arrays(path)


def test_an_archive_does_not_unpack_to_many_times_its_size(tmp_path, monkeypatch):
    np.savez_compressed(tmp_path / "a.npz", a=np.zeros(2**20))
    assert reading.arrays(tmp_path / "a.npz")["a"].nbytes == 2**23
    monkeypatch.setattr(reading, "UNPACKED", 2**16)
    with pytest.raises(ValueError, match="unpacks to 8388736 bytes, more than 64 times its own"):
        reading.arrays(tmp_path / "a.npz")
    (tmp_path / "a.gz").write_bytes(gzip.compress(bytes(2**20)))
    with pytest.raises(ValueError, match="it has more than 6"):
        reading.unpacked(tmp_path / "a.gz")
    for method in (zipfile.ZIP_LZMA, zipfile.ZIP_BZIP2):
        _npz(tmp_path / "b.npz", "a.npy", _header((4,), "<f8") + bytes(32), method)
        with pytest.raises(ValueError, match="compressed by a method that NumPy does not use"):
            reading.arrays(tmp_path / "b.npz")


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (b".".join([b"a"] * 100_000) + b" = 1", "has more than 200 dots"),
        (b"a = " + b"[" * 100_000, "nested too deeply"),
        (b"a = " + b"{a = " * 10_000, "nested too deeply"),
        (b"# comment\n" * 100_000, "has more than 262144 bytes"),
        (b"a = " + b"9" * 100_000, "is not valid TOML"),
        (b"a = '\xff'", "cannot read"),
    ],
)
def test_toml_that_would_take_gigabytes_is_one_line(content, complaint, tmp_path):
    (tmp_path / "a.toml").write_bytes(content)
    with pytest.raises(InputError, match=complaint) as raised:
        reading.toml(tmp_path / "a.toml")
    assert len(str(raised.value)) < 500


def test_json_is_strict_and_bounded(tmp_path, monkeypatch):
    path = tmp_path / "a.json"
    for text in ("[1]", '{"a": NaN}', '{"a": ', "[" * 100_000, '{"a": ' + "9" * 10_000 + "}"):
        path.write_text(text)
        with pytest.raises(reading.DAMAGE):
            reading.json_object(path)
    path.write_text(json.dumps({"a": [1] * 100}))
    assert len(reading.json_object(path)["a"]) == 100
    monkeypatch.setattr(reading, "MOST_JSON", 100)
    with pytest.raises(ValueError, match="more than 100 bytes"):
        reading.json_object(path)


def test_whatever_is_raised_becomes_one_line():
    def refusal(reason):
        return InputError(f"it is damaged ({reason})")

    for error, reason in (
        (NotImplementedError(), "NotImplementedError"),
        (RecursionError("deep"), "nested too deeply"),
        (OverflowError("int too large\nto convert"), "int too large to convert"),
        (MemoryError(), "does not fit into memory"),
        (KeyError("worlds"), "it has no 'worlds'"),
        (FileNotFoundError(2, "No such file"), "No such file"),
    ):
        said = pytest.raises(InputError, match=rf"it is damaged \(.*{reason}\)")
        with said, reading.damage(refusal):
            raise error
    with pytest.raises(InputError, match=r"^said better$"), reading.damage(refusal):
        raise InputError("said better")


def test_a_changed_byte_anywhere_in_an_archive_is_noticed(tmp_path):
    path = tmp_path / "arrays.npz"
    np.savez_compressed(path, one=np.arange(6.0), other=np.random.default_rng(0).random(3))
    whole = path.read_bytes()
    expected = reading.arrays(path)
    believed = []
    for position in range(len(whole)):
        path.write_bytes(whole[:position] + bytes([whole[position] ^ 0xFF]) + whole[position + 1 :])
        try:
            found = reading.arrays(path)
        except reading.DAMAGE:
            continue
        # Without the last entry of the list, its array would be missing.
        if found.keys() != expected.keys() or any(
            not np.array_equal(found[name], expected[name]) for name in expected
        ):
            believed.append(position)
    assert believed == []
