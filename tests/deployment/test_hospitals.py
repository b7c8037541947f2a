"""An administrator takes three hospitals from their files to a card: see hospitals.py."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.flower, pytest.mark.slow, pytest.mark.long]

SCRIPT = Path(__file__).with_name("hospitals.py")
ADULT = SCRIPT.resolve().parents[3] / "shared" / "data" / "adult"


def _epsilon(card, towards):
    (line,) = (line for line in card.splitlines() if line.startswith(f"| the {towards} |"))
    return float(line.split("|")[3])


def _spent(ledger):
    """Return what the last run that a client's `deploy check` lists came to."""
    return [float(found) for found in re.findall(r"epsilon (\S+) (?:of|after)", ledger)][-1]


@pytest.mark.skipif(not ADULT.is_dir(), reason="needs ../shared/data/adult")
def test_three_hospitals_reach_a_card_and_one_that_leaves_pays_for_what_it_answered(tmp_path):
    command = [sys.executable, str(SCRIPT), str(tmp_path / "hospitals"), "--adult", str(ADULT)]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout + result.stderr
    said = json.loads((tmp_path / "hospitals" / "session.json").read_text())["said"]
    # Each hospital's own table fits the schema of one, whatever its gaps, typing errors and wards.
    for client in range(3):
        check = said[f"check client-{client}"]
        assert "wrong" not in check
        assert "outside of the range 0 to 110: '999' (5 records" in " ".join(check.split())
    # The model has learnt: it ranks better than a constant answer, and knows both classes.
    card = said["card"]
    (area,) = map(float, re.findall(r"AUC is (\S+) on", card))
    assert area > 0.6
    assert "not shown to have learnt" not in card
    recalls = [float(found) for found in re.findall(r"\| (?:no|yes) \| [\d,]+ \| (\S+)% \(", card)]
    assert len(recalls) == 2
    assert min(recalls) > 5
    # Everybody's ledger has what the card says.
    for client in range(3):
        assert _spent(said[f"ledger client-{client}"]) == pytest.approx(_epsilon(card, "server"))
    # The second training: the server waited for the late one, and named the starved one.
    assert "client-1: no answer for" in said["status busy"]
    assert "client 0 failed: Error: Node Unavailable" in said["dropped"]
    assert not re.search(r"client [12] failed", said["dropped"])
    # Who stays pays what both cards say together, and who left less, and not more than they say.
    after = {client: _spent(said[f"ledger client-{client} after"]) for client in range(3)}
    assert after[1] == after[2]
    assert 2 < after[0] < after[1] <= 4
    assert "client-0 is away" in said["status left"]
