"""A transcript keeps every round that was whole, drops a torn one, and refuses damage."""

import hashlib
import json
import os
import signal
import stat
import struct
import subprocess
import sys
import threading

import numpy as np
import pytest

from adversaries.errors import InputError
from fedsim.federation.transcripts import framing
from fedsim.federation.transcripts.reader import Reader, follow, read_transcript
from fedsim.federation.transcripts.records import Canary, NodeReply, ObservedRound, TranscriptFacts
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
        own={"flags": np.array([True, False])},
        unprotected={"half": np.ones(2, np.float16)},
        aggregate={"weight": np.zeros((0, 4))},
        participants=(7, 9),
        mechanism={"strategy": "FedAvg", "noise_multiplier": 1.5, "noise": float("inf")},
        canary=Canary(True, 5, 2.0, 0.1),
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
    for name in ("model", "own", "unprotected", "aggregate"):
        arrays, truth = getattr(first, name), getattr(expected, name)
        assert list(arrays) == list(truth)
        for key, array in arrays.items():
            assert array.dtype == truth[key].dtype
            np.testing.assert_array_equal(array, truth[key])
    reply = first.replies[7]
    assert np.isnan(reply.metrics.pop("loss"))
    assert reply.metrics == {"norms": [1.0, 2.0], "ok": True}
    assert (reply.num_examples, first.participants) == (12.0, (7, 9))
    assert (first.mechanism, first.canary) == (expected.mechanism, expected.canary)


def test_only_its_user_may_read_it(path):
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_big_endian_arrays_are_kept_by_value(tmp_path):
    with Writer(tmp_path / "t", FACTS) as writer:
        writer.append(ObservedRound(1, model={"a": np.array([1.5, 2.5], ">f8")}))
    assert read_transcript(tmp_path / "t").rounds[0].model["a"].tolist() == [1.5, 2.5]


@pytest.mark.parametrize("array", [np.array([object()]), np.array(["text"]), np.array([1j])])
def test_only_numbers_are_kept(path, array):
    with Writer(path, FACTS) as writer, pytest.raises(InputError, match="array 'x' holds"):
        writer.append(ObservedRound(4, model={"x": array}))
    assert rounds(path) == [1, 2, 3]


def test_wherever_the_writer_is_killed_the_whole_rounds_are_kept_and_continued(path):
    content = path.read_bytes()
    second = content.rindex(b'"round":3') - 8 - framing.GUARD - framing.PREFIX.size
    while content[second : second + 4] != framing.ROUND:
        second -= 1
    for length in range(second, len(content), 7):
        path.write_bytes(content[:length])
        found = read_transcript(path)
        assert [observed.round for observed in found.rounds] == [1, 2]
        assert found.torn == length - second
        with Writer(path, FACTS) as writer:
            writer.append(seen(3))
        assert path.read_bytes() == content


def test_a_file_killed_before_its_header_is_begun_again(path):
    content = path.read_bytes()
    for length in (0, 5, 22, 40):
        path.write_bytes(content[:length])
        with Writer(path, FACTS) as writer:
            writer.append(seen(1))
        assert rounds(path) == [1]


def test_every_damaged_byte_is_an_error_that_names_the_record(path):
    content = path.read_bytes()
    begin = len(framing.MAGIC) + 4
    for position in range(begin, len(content), 11):
        damaged = bytearray(content)
        damaged[position] ^= 0x10
        path.write_bytes(damaged)
        with pytest.raises(InputError, match=r"record \d of .* is damaged"):
            read_transcript(path)


def test_a_record_left_out_is_an_error(path):
    content = path.read_bytes()
    starts = [i for i in range(len(content)) if content.startswith(framing.ROUND, i)]
    path.write_bytes(content[: starts[1]] + content[starts[2] :])
    with pytest.raises(InputError, match=r"record 2 of .* is damaged"):
        read_transcript(path)


def test_a_version_from_the_future_is_refused(path):
    content = bytearray(path.read_bytes())
    content[len(framing.MAGIC)] = 9
    path.write_bytes(content)
    with pytest.raises(InputError, match="version 9"):
        read_transcript(path)
    with pytest.raises(InputError, match="version 9"):
        Writer(path, FACTS)


def test_another_file_is_refused(tmp_path):
    other = tmp_path / "other.txt"
    other.write_text("nothing of the kind, but long enough to look at")
    for use in (read_transcript, lambda path: Writer(path, FACTS), lambda path: next(follow(path))):
        with pytest.raises(InputError, match="not a fedsim transcript"):
            use(other)
    other.write_text("short")
    with pytest.raises(InputError, match="not a fedsim transcript"):
        Writer(other, FACTS)
    assert other.read_text() == "short"
    with pytest.raises(InputError, match="cannot read"):
        read_transcript(tmp_path / "missing")


def forged(path, payload, length=None):
    """Append a record with fitting checksums, as a hostile writer would."""
    Writer(path, FACTS).close()
    chain = path.read_bytes()[-framing.DIGEST :]
    prefix = framing.PREFIX.pack(framing.ROUND, len(payload) if length is None else length)
    digest = hashlib.sha256(chain + prefix + payload).digest()
    with path.open("ab") as file:
        file.write(prefix + framing.guard(chain, prefix) + payload + digest)


def text(**changes):
    whole = {"round": 4, "model": {"w": 0}, "replies": [], "own": {}, "unprotected": None}
    whole |= {"aggregate": None, "participants": None, "mechanism": {}, "canary": None}
    document = json.dumps(whole | {"arrays": []} | changes).encode()
    return struct.pack("<Q", len(document)) + document


def test_a_huge_length_is_never_believed(path):
    content = path.read_bytes()
    forged(path, b"", length=2**35)  # might be on its way: it counts as torn
    assert rounds(path) == [1, 2, 3]
    path.write_bytes(content)
    forged(path, b"", length=2**63)
    with pytest.raises(InputError, match="record 4 of"):
        read_transcript(path)


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        struct.pack("<Q", 2**60) + b"{}",
        struct.pack("<Q", 2) + b"[]",
        struct.pack("<Q", 200_000) + b"[" * 200_000,
        text(),
        text(arrays=[{"dtype": "<f8", "shape": [2**40, 2**40]}]),
        text(arrays=[{"dtype": "<f8", "shape": [-1]}]),
        text(arrays=[{"dtype": "|O8", "shape": [1]}]) + b"12345678",
        text(arrays=[{"dtype": "f8,f8", "shape": [0]}]),
        text(arrays=[{"dtype": "<f8", "shape": [0]}], model={"w": -1}),
        text(model={}, round="1"),
        text(model={}, canary={"coin": True, "seed": -1, "norm": 1.0, "idle_norm": 0.1}),
        text(model={}, mechanism={"noise": {"float": "1"}}),
        text(model={}) + b"more",
    ],
)
def test_a_hostile_record_is_an_error_that_names_it(path, payload):
    forged(path, payload)
    with pytest.raises(InputError, match=r"record 4 of .* is malformed"):
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
    path.touch()
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


def test_a_follower_that_is_stopped_yields_what_is_whole(path):
    path.write_bytes(path.read_bytes()[:-1])
    assert [observed.round for observed in follow(path, stop=lambda: True)] == [1, 2]


def test_a_follower_survives_a_writer_that_was_killed_and_taken_up_again(path):
    whole = path.stat().st_size
    with Writer(path, FACTS) as writer:
        writer.append(seen(4))
    torn = path.read_bytes()[: whole + 200]
    path.write_bytes(torn)
    with Reader(path) as reader:
        assert [one.round for one in reader.rounds()] == [1, 2, 3]
        assert reader.torn == 200
        # Another record of another length takes the place of the torn one.
        with Writer(path, FACTS) as again:
            again.append(ObservedRound(5, model={"w": np.ones(1000)}))
        assert [one.round for one in reader.rounds()] == [5]


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


def test_a_record_that_is_interrupted_leaves_nothing_behind(path, monkeypatch):
    def interrupted(descriptor):
        raise KeyboardInterrupt

    with Writer(path, FACTS) as writer:
        with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
            patch.setattr(os, "fsync", interrupted)
            writer.append(seen(4))
        writer.end("interrupted", resumable=True)
    found = read_transcript(path)
    assert ([one.round for one in found.rounds], found.incomplete) == ([1, 2, 3], "interrupted")


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
