"""`fedsim tune`: settings are tried on public records, and no private record is read."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from fedsim.game.federation import Federation

Command = Callable[..., tuple[int, str, str]]

TRAINING = """
[data]
name = "digits"
records = 600
held-out = 300

[model]
name = "linear"

[training]
rounds = 10
learning-rate = 0.02

[privacy]
epsilon = 8.0
delta = 1e-4
"""


@pytest.fixture
def training(tmp_path: Path) -> Path:
    (tmp_path / "training.toml").write_text(TRAINING)
    return tmp_path / "training.toml"


def test_a_poor_learning_rate_is_raised_and_no_private_record_is_read(
    fedsim: Command, training: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def read(*_: object) -> None:
        raise AssertionError("a private record was read")

    monkeypatch.setattr(Federation, "members", read)
    status, out, _ = fedsim("tune", training, "--models", "8", "--json")
    assert status == 0
    found = json.loads(out)
    assert (found["trained_on"], found["judged_on"]) == (200, 100)
    assert len(found["tried"]) == 9
    assert found["best"]["training.learning-rate"] == 0.08
    best = max(found["tried"], key=lambda each: each["gain"])
    assert best["changes"] == found["best"]
    assert best["gain"] > best["margin"] > 0


def test_the_configuration_is_kept_where_nothing_is_surely_better(
    fedsim: Command, training: Path
) -> None:
    training.write_text(TRAINING.replace("learning-rate = 0.02\n", "").replace("8.0", "0.01"))
    status, out, err = fedsim("tune", training, "--models", "3")
    assert status == 0
    assert "No private record was read" in out
    assert "Keep the configuration" in out
    assert err.count("gain") == 8


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ("data.held-out=30", "has 30 public records, but fedsim tune needs 40"),
        ("privacy.unit=client", "one step a round"),
        ("privacy.stop-at=1", "set privacy.stop-at = 0.0"),
    ],
)
def test_what_cannot_be_tuned_is_refused_in_one_line(
    fedsim: Command, training: Path, change: str, complaint: str
) -> None:
    status, out, err = fedsim("tune", training, "--set", change)
    assert (status, out) == (2, "")
    assert complaint in " ".join(err.split())
