"""A node gets another key, and has one that the server takes at every moment."""

from pathlib import Path

import httpx
import pytest

from adversaries.errors import InputError
from fedsim.deployment import kit, upkeep
from fedsim.deployment.certificates import fingerprint


@pytest.fixture
def place(tmp_path: Path) -> Path:
    kit.write_kit(tmp_path / "kit", "127.0.0.1", 8443, 2)
    return tmp_path / "kit" / "clients" / "client-0"


def test_the_next_key_is_taken_up_when_the_server_knows_it_and_not_before(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = (place / "node.key").read_bytes()
    machine, told = upkeep.rotate(place)
    new = (place / "next.key").read_bytes()
    public = (place / "next.key.pub").read_bytes()
    assert (machine, told) == ("client-0", fingerprint(public))
    assert (place / "next.key").stat().st_mode & 0o077 == 0

    def away(*_: object) -> bool:
        raise httpx.ConnectError("no route")

    for answer in (away, lambda *_: None, lambda *_: False):
        monkeypatch.setattr(upkeep, "server_knows", answer)
        assert not upkeep.take_up(place, "127.0.0.1:8443")
        assert (place / "node.key").read_bytes() == old
    monkeypatch.setattr(upkeep, "server_knows", lambda *_: True)
    assert upkeep.take_up(place, "127.0.0.1:8443")
    assert (place / "node.key").read_bytes() == new != old
    assert (place / "node.key.pub").read_bytes() == public
    assert not list(place.glob("next*"))
    assert not upkeep.take_up(place, "127.0.0.1:8443")  # nothing waits


def test_a_key_that_waits_is_not_replaced(place: Path) -> None:
    upkeep.rotate(place)
    with pytest.raises(InputError, match=r"send next\.key\.pub to the server, or delete next\.key"):
        upkeep.rotate(place)
    with pytest.raises(InputError, match="give that of a client or the auditor"):
        upkeep.rotate(place.parents[1] / "server")
