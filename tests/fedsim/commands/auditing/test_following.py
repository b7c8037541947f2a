"""`fedsim audit live` goes from run to run, leaves a dead one, and stops when asked."""

import json
import os
import signal
import threading
from functools import partial

import numpy as np
import pytest

from adversaries.errors import InputError
from fedsim.commands import following
from fedsim.commands.terminal import Terminal
from fedsim.federation.transcripts.reader import follow
from fedsim.federation.transcripts.records import NodeReply, ObservedRound, TranscriptFacts
from fedsim.federation.transcripts.writer import Writer
from tests.console import exit_of

ROUND = ObservedRound(
    1, {"w": np.zeros(4)}, {1: NodeReply({"w": np.ones(4)}, 1.0)}, aggregate={"w": np.ones(4)}
)


def recorded(path, *, ended):
    with Writer(path, TranscriptFacts("server", "a test", run=path.stem)) as writer:
        writer.append(ROUND)
        if ended:
            writer.end()
    return path


def followed(place, then, patience=60):
    """Follow as the command does; return what was seen. then: what happens after each run."""
    seen = []

    def audit(path, watch):
        rounds = len(list(follow(path, interval=0.01, stop=watch)))
        seen.append(f"{path.stem}: {rounds}")
        then[len(seen) - 1]()
        return 0

    assert following.follow(place, False, patience, audit, Terminal(stderr=True), 7) == 0
    return seen


def stop():
    os.kill(os.getpid(), signal.SIGTERM)


def soon(path):
    """Let a run be recorded when somebody waits for it."""
    threading.Timer(0.2, recorded, [path], {"ended": True}).start()


def test_the_next_run_is_waited_for_until_somebody_asks_to_stop(tmp_path):
    os.utime(recorded(tmp_path / "old.fedt", ended=True), (0, 0))
    recorded(tmp_path / "last.fedt", ended=True)
    handlers = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    then = [partial(soon, tmp_path / "next.fedt"), stop]
    assert followed(tmp_path, then) == ["last: 1", "next: 1"]
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == handlers


def test_a_run_that_died_is_left_and_taken_up_again_if_it_goes_on(tmp_path, capsys):
    path = recorded(tmp_path / "run.fedt", ended=False)
    then = [partial(recorded, path, ended=True), stop]
    assert followed(tmp_path, then, patience=0.05) == ["run: 1", "run: 2"]
    assert capsys.readouterr().err.count("\n") == 1  # it has ended by now


def test_a_run_that_died_is_left_when_the_next_one_begins(tmp_path, capsys):
    recorded(tmp_path / "dead.fedt", ended=False)
    soon(tmp_path / "next.fedt")
    assert followed(tmp_path, [lambda: None, stop]) == ["dead: 1", "next: 1"]
    assert capsys.readouterr().err.splitlines()[1:] == [f"dead.fedt: {following.SUPERSEDED}"]


def test_a_transcript_that_cannot_be_audited_ends_no_service(tmp_path):
    (tmp_path / "bad.fedt").write_bytes(b"what is this, and why is it here?")

    def audit(path, watch):
        stop()
        with pytest.raises(InputError) as refused:
            next(follow(path))
        raise refused.value

    arguments = (tmp_path, False, 60.0, audit, Terminal(stderr=True), 7)
    assert following.follow(*arguments) == 7
    with pytest.raises(InputError, match="not a fedsim transcript"):
        following.follow(tmp_path, True, *arguments[2:])


def test_the_command_reports_a_dead_run_as_far_as_it_came(tmp_path, capsys):
    recorded(tmp_path / "run.fedt", ended=False)
    assert exit_of("audit", "--follow", "--once", "--patience", "0.1", str(tmp_path)) == 0
    assert "run.fedt: no new data for 0.1 s" in capsys.readouterr().err
    assert (
        json.loads((tmp_path / "run-audit" / "report.json").read_text())["details"]["rounds"] == 1
    )
