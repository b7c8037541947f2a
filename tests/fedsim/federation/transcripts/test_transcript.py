"""A transcript keeps every round that was whole, drops a torn one, and refuses damage."""

import json
import os
import signal
import stat
import subprocess
import sys
import threading
import tracemalloc

import numpy as np
import pytest

from adversaries.errors import InputError
from fedsim.common import private_files
from fedsim.federation.transcripts import folder
from fedsim.federation.transcripts.reader import Reader, follow, read_transcript
from fedsim.federation.transcripts.records import NodeReply, ObservedRound, TranscriptFacts
from fedsim.federation.transcripts.writer import Writer

FACTS = TranscriptFacts("server", "a test", "quickstart", versions={"flwr": "1.41.0"})


def seen(round):
    model = {"weight": np.arange(6, dtype=np.float32).reshape(2, 3) + round, "steps": np.array(3)}
    return ObservedRound(
        round,
        model=model,
        replies={
            7: NodeReply(model, 12.0, {"loss": float("nan"), "norms": [1.0, 2.0], "ok": True})
        },
        aggregate={"weight": np.zeros((0, 4))},
        participants=(7, 9),
        mechanism={"strategy": "FedAvg", "noise_multiplier": 1.5, "noise": float("inf")},
    )


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "server.fedt"
    with Writer(path, FACTS) as writer:
        for round in (1, 2, 3):
            writer.append(seen(round))
    return path


def rounds(path):
    return [observed.round for observed in read_transcript(path).rounds]


def test_what_was_written_is_read(path):
    found = read_transcript(path)
    assert (found.facts, found.ended, found.torn) == (FACTS, False, 0)
    first, expected = found.rounds[0], seen(1)
    for name in ("model", "aggregate"):
        arrays, truth = getattr(first, name), getattr(expected, name)
        assert list(arrays) == list(truth)
        for key, array in arrays.items():
            assert array.dtype == truth[key].dtype
            np.testing.assert_array_equal(array, truth[key])
    reply = first.replies[7]
    assert np.isnan(reply.metrics.pop("loss"))
    assert reply.metrics == {"norms": [1.0, 2.0], "ok": True}
    assert (reply.num_examples, first.participants) == (12.0, (7, 9))
    assert first.mechanism == expected.mechanism


def test_any_name_of_an_array_is_kept(path):
    """A client chooses the names, which no archive would keep."""
    names = ["w\0a", "w\0b", "w\0", "w", "a" * 70_000, "\ud800", "", "a/b", "../x", "text", "a0"]
    model = {name: np.array(place) for place, name in enumerate(names)}
    last = ObservedRound(4, model, {7: NodeReply(model), 8: NodeReply({})}, aggregate=model)
    with Writer(path, FACTS) as writer:
        writer.append(last)
    assert read_transcript(path).rounds[3] == last


def test_an_empty_array_of_a_long_shape_is_refused_since_no_reader_takes_it(path):
    with Writer(path, FACTS) as writer:
        writer.append(ObservedRound(4, model={"w": np.zeros((0, folder.LONGEST_EMPTY))}))
        with pytest.raises(InputError, match="without a number"):
            writer.append(ObservedRound(5, model={"w": np.zeros((0, 10**9))}))
    assert rounds(path) == [1, 2, 3, 4]


def test_a_round_that_could_not_be_read_is_not_written(path):
    """Two lone surrogates are one character in JSON, and names may be longer than all of it."""
    pair = {"\ud800\udc00": np.array(1), "\U00010000": np.array(2)}
    for model in (pair, {"\0" * 6_000_000: np.array(1)}, {1: np.array(1)}):
        with Writer(path, FACTS) as writer, pytest.raises(InputError, match="does not keep"):
            writer.append(ObservedRound(4, model=model))
    assert rounds(path) == [1, 2, 3]


def test_only_its_user_may_read_it(path):
    assert stat.S_IMODE(path.stat().st_mode) == 0o700
    assert {stat.S_IMODE(each.stat().st_mode) for each in path.iterdir()} == {0o600}


@pytest.mark.parametrize("array", [np.array([object()]), np.array(["text"]), np.array([1j])])
def test_only_numbers_are_kept(path, array):
    with Writer(path, FACTS) as writer, pytest.raises(InputError, match="array 'x' holds"):
        writer.append(ObservedRound(4, model={"x": array}))
    assert rounds(path) == [1, 2, 3]


def test_what_a_killed_writer_left_is_no_round_and_the_next_writer_removes_it(path, monkeypatch):
    """Whenever it is killed, a round has its name only once it is whole and on the disk."""
    for step in ("write", "fsync", "rename"):
        with monkeypatch.context() as patch:
            patch.setattr(os, "unlink", lambda *_, **__: None)  # a kill leaves what there is
            failing = folder.np if step == "write" else os
            patch.setattr(failing, "savez" if step == "write" else step, _killed)
            with Writer(path, FACTS) as writer, pytest.raises(KeyboardInterrupt):
                writer.append(seen(4))
        found = read_transcript(path)
        assert [one.round for one in found.rounds] == [1, 2, 3]
        assert len(folder.torn(path)) == 1
        assert (found.torn > 0) == (step != "write")
        Writer(path, FACTS).close()
        assert folder.torn(path) == {}
    with Writer(path, FACTS) as writer:
        writer.append(seen(4))
    assert rounds(path) == [1, 2, 3, 4]


def _killed(*_, **__):
    raise KeyboardInterrupt


def test_a_folder_killed_before_its_facts_is_begun_again(path):
    for each in path.iterdir():
        if each.name != folder.LOCK:
            each.unlink()
    with pytest.raises(InputError, match="nothing was recorded"):
        read_transcript(path)
    with Writer(path, FACTS) as writer:
        writer.append(seen(1))
    assert rounds(path) == [1]


def test_no_damaged_byte_changes_a_round(path):
    expected = seen(2)
    content = folder.of_round(path, 2).read_bytes()
    for position in range(0, len(content), 7):
        damaged = bytearray(content)
        damaged[position] ^= 0x10
        folder.of_round(path, 2).write_bytes(damaged)
        try:
            found = read_transcript(path).rounds[1]
        except InputError as error:
            assert "'000002.npz' of the transcript" in str(error)
            continue
        np.testing.assert_array_equal(found.model["weight"], expected.model["weight"])
        assert found.mechanism == expected.mechanism


@pytest.mark.parametrize("left", [0, 2])
def test_rounds_that_are_missing_at_the_end_are_an_error(path, left):
    Writer(path, FACTS).end(resumable=True)
    for number in range(left + 1, 4):
        folder.of_round(path, number).unlink()
    for use in (read_transcript, lambda path: list(follow(path)), lambda path: Writer(path, FACTS)):
        with pytest.raises(InputError, match="it names 3 rounds"):
            use(path)


def test_a_round_of_another_recording_is_an_error(path, tmp_path):
    with Writer(tmp_path / "other.fedt", FACTS) as writer:
        for round in (7, 8, 9):
            writer.append(seen(round))
    folder.of_round(path, 2).write_bytes(folder.of_round(tmp_path / "other.fedt", 2).read_bytes())
    with pytest.raises(InputError, match="not this round of this recording"):
        read_transcript(path)


@pytest.mark.parametrize("hostile", ["mechanism", "participants", "replies"])
def test_a_round_of_wrong_entries_takes_little_memory(hostile, path):
    """The reader stops at the first."""
    many = {str(n): {} for n in range(100_000)}
    forged(path, **{hostile: many if hostile == "mechanism" else [{}] * 100_000})
    tracemalloc.start()
    with pytest.raises(InputError, match="is damaged"):
        read_transcript(path)
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert most < 60e6


def test_a_closed_transcript_takes_no_round_and_too_many_arrays_are_refused(path):
    with Writer(path, FACTS) as writer:
        many = dict.fromkeys(map(str, range(folder.MOST_ARRAYS + 1)), np.zeros(1))
        with pytest.raises(InputError, match="too large for a transcript"):
            writer.append(ObservedRound(4, model=many))
    with pytest.raises(InputError, match="is closed"):
        writer.append(seen(4))
    assert rounds(path) == [1, 2, 3]


def test_a_round_left_out_is_an_error(path):
    Writer(path, FACTS).end(resumable=True)
    folder.of_round(path, 2).unlink()
    with pytest.raises(InputError, match=r"has no 000002\.npz"):
        read_transcript(path)
    with pytest.raises(InputError, match=r"has no 000002\.npz"):
        Writer(path, FACTS)


def test_a_version_from_the_future_is_refused(path, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(folder, "VERSION", 9)
        folder.write_facts(path, FACTS)
    with pytest.raises(InputError, match="version 9"):
        read_transcript(path)
    with pytest.raises(InputError, match="version 9"):
        Writer(path, FACTS)


def test_another_file_and_another_folder_are_refused_and_kept(tmp_path):
    file, other = tmp_path / "other.txt", tmp_path / "other"
    file.write_text("short")
    other.mkdir()
    (other / "mine.txt").write_text("mine")
    for use in (read_transcript, lambda path: Writer(path, FACTS), lambda path: next(follow(path))):
        with pytest.raises(InputError, match="not a fedsim transcript"):
            use(file)
    for use in (read_transcript, lambda path: Writer(path, FACTS)):
        with pytest.raises(InputError, match="not a fedsim transcript"):
            use(other)
    assert (file.read_text(), (other / "mine.txt").read_text()) == ("short", "mine")
    with pytest.raises(InputError, match="cannot read"):
        read_transcript(tmp_path / "missing")


def test_nothing_is_written_through_a_link(tmp_path, path):
    link = tmp_path / "link.fedt"
    link.symlink_to(path)
    with pytest.raises(InputError, match="symbolic link"):
        Writer(link, FACTS)


def forged(path, contents=(), /, **changes):
    """Write a fourth round as a hostile writer would."""
    recording = folder.read_facts(path)[1]
    whole = {"recording": recording, "number": 4, "round": 4, "replies": [], "released": False}
    whole |= {"participants": None, "mechanism": {}, "arrays": []}
    text = np.frombuffer(json.dumps(whole | changes).encode(), np.uint8)
    np.savez(folder.of_round(path, 4), **{folder.TEXT: text, **dict(contents)})


@pytest.mark.parametrize(
    ("arrays", "changes"),
    [
        ({"stray": np.zeros(2)}, {}),
        ({"stray": np.zeros(2)}, {"arrays": [["model", "w"]]}),
        ({"a0": np.zeros(2)}, {"arrays": [["reply 7", "w"]]}),
        ({"a0": np.zeros(2)}, {"arrays": [["model", "w"], ["model", "v"]]}),
        ({"a0": np.zeros(2), "a1": np.zeros(2)}, {"arrays": [["model", "w"]] * 2}),
        ({"a0": np.zeros(2)}, {"arrays": [["model", 1]]}),
        ({"a0": np.zeros(2)}, {"arrays": [["model", "w", "v"]]}),
        ({"a0": np.zeros(2)}, {"arrays": ["wv"]}),
        ({"a0": np.zeros(2)}, {"arrays": {"model": "w"}}),
        ({"a0": np.array(["text"])}, {"arrays": [["model", "w"]]}),
        ({"a0": np.zeros(2, "f8,f8")}, {"arrays": [["model", "w"]]}),
        ({"a0": np.array([object()])}, {"arrays": [["model", "w"]]}),
        ({}, {"round": "1"}),
        ({}, {"round": True}),
        ({}, {"number": 3}),
        ({}, {"recording": "another"}),
        ({}, {"more": 1}),
        ({}, {"mechanism": {"noise": {"float": "1"}}}),
        ({}, {"replies": [[1]]}),
        ({}, {"replies": [[1, None, {}], [1, None, {}]]}),
        ({}, {"replies": [[1, None, {"norms": ["x"]}]]}),
        ({}, {"participants": [1.5]}),
        ({folder.TEXT: np.frombuffer(b"[" * 200_000, np.uint8)}, {}),
        ({folder.TEXT: np.frombuffer(b"[]", np.uint8)}, {}),
    ],
)
def test_a_hostile_round_is_an_error_that_names_its_file(path, arrays, changes):
    forged(path, arrays, **changes)
    with pytest.raises(InputError, match=r"'000004\.npz' of the transcript .* is damaged"):
        read_transcript(path)


@pytest.mark.parametrize("content", [b"", b"nothing of the kind", b"PK\x05\x06" + bytes(18)])
def test_a_round_that_is_no_archive_is_an_error(path, content):
    folder.of_round(path, 4).write_bytes(content)
    with pytest.raises(InputError, match="is damaged"):
        read_transcript(path)


def test_a_round_that_is_a_pipe_is_not_waited_for(path):
    os.mkfifo(folder.of_round(path, 4))
    with pytest.raises(InputError, match="not a regular file"):
        read_transcript(path)


def test_an_ended_transcript_says_so_and_is_not_continued(path):
    Writer(path, FACTS).end("the disk was full")
    found = read_transcript(path)
    assert (found.ended, found.incomplete, len(found.rounds)) == (True, "the disk was full", 3)
    with pytest.raises(InputError, match="has ended"):
        Writer(path, FACTS)


def test_other_facts_and_a_second_writer_are_refused(path):
    with pytest.raises(InputError, match="to another recording"):
        Writer(path, TranscriptFacts("server", "another"))
    with Writer(path, FACTS), pytest.raises(InputError, match="by another process"):
        Writer(path, FACTS)
    with pytest.raises(InputError, match="vantage is 'moon'"):
        TranscriptFacts("moon", "a test")


def test_a_growing_transcript_is_followed(tmp_path):
    path, arrived = tmp_path / "t", threading.Semaphore(0)
    path.mkdir()
    got = []

    def watch():
        for observed in follow(path, interval=0.005):
            got.append(observed.round)
            arrived.release()

    watcher = threading.Thread(target=watch)
    watcher.start()
    with Writer(path, FACTS) as writer:
        for round in (1, 2, 3):
            writer.append(seen(round))
            assert arrived.acquire(timeout=30)
            assert got[-1] == round
        writer.end()
    watcher.join(30)
    assert got == [1, 2, 3]


def test_a_follower_survives_a_writer_that_was_killed_and_taken_up_again(path):
    reader = Reader(path)
    (path / f".000004.npz.ab{private_files.PARTIAL}").write_bytes(b"PK")
    assert [one.round for one in reader.rounds()] == [1, 2, 3]
    assert reader.torn == 2
    with Writer(path, FACTS) as again:
        again.append(ObservedRound(5, model={"w": np.ones(1000)}))
    assert [one.round for one in reader.rounds()] == [5]
    assert reader.torn == 0


def test_a_run_that_ended_by_itself_may_be_taken_up_again_and_a_recording_may_not(path):
    Writer(path, FACTS).end("the run ended with KeyboardInterrupt", resumable=True)
    assert (read_transcript(path).ended, read_transcript(path).incomplete[-17:]) == (
        True,
        "KeyboardInterrupt",
    )
    with Writer(path, FACTS) as again:
        again.append(seen(4))
    assert (rounds(path), read_transcript(path).ended) == ([1, 2, 3, 4], False)
    Writer(path, FACTS).end("the disk is full")
    with pytest.raises(InputError, match="has ended"):
        Writer(path, FACTS)


def test_a_writer_that_is_killed_loses_no_finished_round(tmp_path):
    program = (
        "import sys, numpy as np; from pathlib import Path\n"
        "from fedsim.federation.transcripts.records import *\n"
        "from fedsim.federation.transcripts.writer import Writer\n"
        "writer = Writer(Path(sys.argv[1]), TranscriptFacts('server', 'a test'))\n"
        "for round in range(10**6):\n"
        "    writer.append(ObservedRound(round, model={'w': np.zeros(50_000)}))\n"
        "    print(round, flush=True)\n"
    )
    path = tmp_path / "t"
    with subprocess.Popen(
        [sys.executable, "-c", program, str(path)], stdout=subprocess.PIPE, text=True
    ) as writer:
        assert writer.stdout is not None
        for line in writer.stdout:
            if int(line) >= 5:
                break
        os.kill(writer.pid, signal.SIGKILL)
        last = max([5, *(int(line) for line in writer.stdout)])
    found = rounds(path)
    assert found == list(range(len(found)))
    assert len(found) > last
    with Writer(path, TranscriptFacts("server", "a test")) as again:
        again.append(ObservedRound(len(found)))
    assert len(rounds(path)) == len(found) + 1
