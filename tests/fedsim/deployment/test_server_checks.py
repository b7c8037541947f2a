"""Each thing that can be wrong with a server is found, and only that."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from fedsim.deployment import certificates, checks, kit, server_checks
from fedsim.deployment.findings import NOTE, OK, WRONG
from fedsim.runtimes import deployment

Found = Callable[[str], dict[str, str]]
Change = Callable[[Path, str, object], None]
FreePort = Callable[[], int]


def _certify(written: Path, names: list[str], days: int, start: datetime) -> None:
    authority = certificates.Pair(
        (written / "ca" / "ca.key").read_bytes(), (written / "ca" / "ca.crt").read_bytes()
    )
    pair = certificates.server_certificate(authority, names, days, start)
    (written / "server" / "server.key").write_bytes(pair.private)
    (written / "server" / "server.crt").write_bytes(pair.public)


def test_an_expired_certificate(written: Path, found: Found) -> None:
    _certify(written, ["127.0.0.1"], 1, datetime.now(UTC) - timedelta(days=2))
    assert "expired on" in found("server")["certificate"]


def test_a_certificate_that_expires_soon_is_spoken_of(written: Path) -> None:
    _certify(written, ["127.0.0.1"], 7, datetime.now(UTC))
    (line,) = (one for one in checks.check(written, "server") if one.what == "certificate")
    assert line.state == NOTE
    assert "expires in 6 days" in line.message


def test_a_certificate_for_another_address(tmp_path: Path, free_port: FreePort) -> None:
    kit.write(tmp_path / "kit", "federation.example", 8443, 2, superlink_port=free_port())
    _certify(tmp_path / "kit", ["elsewhere.example"], 9, datetime.now(UTC))
    findings = checks.check(tmp_path / "kit", "server")
    (line,) = (one for one in findings if one.what == "certificate")
    assert (line.state, "is not for federation.example" in line.message) == (WRONG, True)


def test_a_key_that_does_not_fit(written: Path, found: Found) -> None:
    key = written / "server" / "server.key"
    before = key.read_bytes()
    _certify(written, ["127.0.0.1"], 9, datetime.now(UTC))
    key.write_bytes(before)
    assert "does not fit server.crt" in found("server")["certificate"]
    (written / "owners" / "owner-0" / "node.key").write_bytes(certificates.node_key().private)
    assert "does not fit node.key.pub" in found("owner-0")["node key"]


def test_a_certificate_of_another_authority(written: Path, found: Found) -> None:
    (written / "server" / "ca.crt").write_bytes(certificates.authority(9).public)
    assert "did not issue" in found("server")["certificate"]


def test_fewer_keys_than_nodes(written: Path, found: Found) -> None:
    (written / "server" / "keys" / "owner-1.pub").unlink()
    assert "owner-1.pub is missing" in found("server")["node keys"]


def test_a_port_that_is_none_hides_nothing_before_it(
    written: Path, found: Found, change: Change
) -> None:
    change(written / "server", "PORT", "many")
    assert set(found("server")) == {"superlink", "settings"}
    assert "PORT is 'many'" in found("server")["settings"]


@pytest.fixture
def registered(written: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The server of a kit whose SuperLink, as far as is seen, answers and knows its nodes."""
    server = written / "server"
    keys = {machine: kit.key(path) for machine, path in kit.key_files(server).items()}
    nodes = {machine: kit.Registration(f"{machine}'s", key) for machine, key in keys.items()}
    kit.write_registered(server, nodes)
    monkeypatch.setattr(
        deployment, "statuses", lambda _: {"owner-0's": "online", "owner-1's": "registered"}
    )
    monkeypatch.setattr(server_checks, "_service", lambda _, name, port: (name, OK, f"{port}"))
    return server


def _registrations(written: Path) -> list[tuple[str, str]]:
    findings = checks.check(written, "server")
    return [(one.state, one.message) for one in findings if one.what == "registered"]


def test_registered_nodes_are_connected_or_not(written: Path, registered: Path) -> None:
    first, second = _registrations(written)
    assert first == (OK, "owner-0 is connected")
    assert second[0] == NOTE


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (certificates.node_key().public, "keys/owner-0.pub is not the registered key: fedsim"),
        (b"no key", "key type: b'no'): copy that machine's node.key.pub to it"),
    ],
)
def test_a_key_that_is_not_the_registered_one(
    written: Path, registered: Path, content: bytes, said: str
) -> None:
    (registered / "keys" / "owner-0.pub").write_bytes(content)
    (state, message), second = _registrations(written)
    assert (state, second[0]) == (WRONG, NOTE)
    assert said in message


def test_a_node_of_which_no_key_was_written_down(written: Path, registered: Path) -> None:
    (registered / "nodes.json").write_text('{"owner-0": "owner-0\'s", "owner-1": "gone"}')
    first, second = _registrations(written)
    assert first[0] == WRONG
    assert "may not be (an earlier fedsim wrote down no key) the registered key" in first[1]
    assert second == (
        WRONG,
        f"the key of owner-1 is not registered: fedsim deploy register {registered}",
    )
