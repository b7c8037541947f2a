"""`fedsim audit --follow` takes the run that goes on, leaves a dead one, and stops when asked."""

import json
import os
import signal
import threading

import numpy as np
import pytest

from adversaries.errors import InterruptedRunError
from fedsim.commands import following
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


def rounds(folder):
    report = json.loads((folder / "report.json").read_text())
    return report["details"]["rounds"]


def test_the_run_that_goes_on_is_followed_and_else_the_next_one(tmp_path):
    stopping = threading.Event()
    os.utime(recorded(tmp_path / "open.fedt", ended=False), (0, 0))
    recorded(tmp_path / "ended.fedt", ended=True)
    assert following.growing(tmp_path, stopping).stem == "open"
    recorded(tmp_path / "open.fedt", ended=True)
    threading.Timer(0.2, recorded, [tmp_path / "next.fedt"], {"ended": False}).start()
    assert following.growing(tmp_path, stopping).stem == "next"


def test_a_signal_ends_the_waiting_and_a_second_one_acts_as_before(tmp_path):
    handlers = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    with following.interrupted() as stopping:
        os.kill(os.getpid(), signal.SIGTERM)
        with pytest.raises(InterruptedRunError, match="no run began"):
            following.growing(tmp_path, stopping)
        assert signal.getsignal(signal.SIGTERM) == handlers[1]
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == handlers


def test_a_dead_run_is_reported_as_far_as_it_came_and_goes_on_with_the_same_command(
    tmp_path, capsys
):
    path = recorded(tmp_path / "run.fedt", ended=False)
    followed = ("audit", "--follow", "--patience", "0.1")
    assert exit_of(*followed, str(tmp_path)) == 0
    assert "run.fedt: no new data for 0.1 s" in capsys.readouterr().err
    assert rounds(tmp_path / "run-audit") == 1
    recorded(path, ended=True)
    assert exit_of(*followed, str(path)) == 0
    assert "no new data" not in capsys.readouterr().err
    assert rounds(tmp_path / "run-audit") == 2
