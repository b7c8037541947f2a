"""Each thing that can be wrong with a deployment is found, and only that."""

import os
import shutil
import socket
import stat
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from fedsim.deployment import certificates, checks, kit
from fedsim.deployment.checks import NOTE, WRONG
from fedsim.runtimes import deployment


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _set(path: Path, name: str, value: object) -> None:
    lines = path.read_text().splitlines()
    kept = [f"{name}={value}" if line.startswith(f"{name}=") else line for line in lines]
    path.write_text("\n".join(kept) + "\n")


@pytest.fixture
def written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A kit on ports where nothing listens, in an environment with fedsim's commands."""
    commands = Path(sys.executable).parent
    monkeypatch.setenv("PATH", f"{commands}{os.pathsep}{os.environ['PATH']}")
    directory = tmp_path / "kit"
    kit.write(directory, "127.0.0.1", _free_port(), 2, superlink_port=_free_port())
    for owner in range(2):
        _set(directory / "owners" / f"owner-{owner}" / "settings.env", "NODE_PORT", _free_port())
    return directory


@pytest.fixture
def found(written: Path) -> Callable[[str], dict[str, str]]:
    """Return a function that gives what is wrong with a machine, by what was looked at."""

    def wrong(machine: str) -> dict[str, str]:
        findings = checks.check(written, machine)
        return {one.what: one.message for one in findings if one.state == WRONG}

    return wrong


Found = Callable[[str], dict[str, str]]


def test_a_new_kit_lacks_nothing_but_its_start(written: Path, found: Found) -> None:
    server = found("server")
    assert set(server) == {"superlink", "proxy"}
    assert "is unreachable" in server["superlink"]
    assert "start.sh" in server["superlink"]
    owner = found("owner-0")
    assert set(owner) == {"server"}
    assert "is unreachable" in owner["server"]
    assert {one.machine for one in checks.check(written)} == {"server", "owner-0", "owner-1"}


def test_other_versions(written: Path, found: Found, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks.fedsim, "__version__", "9.9")
    assert "9.9 here, but the kit is for" in found("server")["fedsim"]


def test_others_may_read_a_key(written: Path, found: Found) -> None:
    key = written / "server" / "server.key"
    key.chmod(0o644)
    assert f"chmod 600 {key}" in found("server")["permissions"]
    key.chmod(stat.S_IRUSR)
    assert "permissions" not in found("server")


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


def test_a_certificate_for_another_address(tmp_path: Path) -> None:
    kit.write(tmp_path / "kit", "federation.example", 8443, 2, superlink_port=_free_port())
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


def test_no_data(written: Path, found: Found) -> None:
    (written / "owners" / "owner-1" / "data").rmdir()
    assert "there is no folder '../data'" in found("owner-1")["data"]


def test_the_data_may_be_a_single_file(written: Path, found: Found) -> None:
    (written / "owners" / "owner-1" / "data").rmdir()
    (written / "owners" / "owner-1" / "data").write_text("age,label")
    assert "data" not in found("owner-1")


@pytest.mark.parametrize(
    ("line", "what", "complaint"),
    [
        ("partition-id = 7", "node.toml", "partition-id is 7: owner-0 of 2 has 0"),
        ('consent = "everything"', "consent", "'everything', which is none of challenge"),
    ],
)
def test_a_node_with_a_wrong_config(
    written: Path, found: Found, line: str, what: str, complaint: str
) -> None:
    path = written / "owners" / "owner-0" / "node.toml"
    key = line.partition(" ")[0]
    lines = path.read_text().splitlines()
    path.write_text("\n".join(line if old.startswith(f"{key} ") else old for old in lines))
    assert complaint in found("owner-0")[what]


def test_a_node_that_nobody_asks_for_consent(written: Path, found: Found) -> None:
    path = written / "owners" / "owner-0" / "node.toml"
    path.write_text(path.read_text().replace('\nconsent = ""', ""))
    assert "is not asked for" in found("owner-0")["consent"]


def test_a_port_that_another_program_has(written: Path, found: Found) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        other.settimeout(0.1)
        port = other.getsockname()[1]
        _set(written / "owners" / "owner-0" / "settings.env", "NODE_PORT", port)
        assert f"port {port} is taken" in found("owner-0")["supernode"]


def test_commands_that_are_not_there(written: Path, found: Found) -> None:
    _set(written / "server" / "settings.env", "BIN", "/nowhere")
    assert "is not on the PATH: set BIN" in found("server")["commands"]


@pytest.mark.parametrize(
    ("old", "new", "what", "said"),
    [
        ('"auditor"', '"owner"', "node.toml", "role is 'owner'"),
        ("../transcripts", "../nowhere", "transcripts", "there is no folder '../nowhere'"),
        ('transcript-path = "../transcripts"', "", "transcripts", "set transcript-path"),
    ],
)
def test_an_auditors_config(tmp_path: Path, old: str, new: str, what: str, said: str) -> None:
    kit.write(tmp_path / "kit", "127.0.0.1", _free_port(), 2, auditor=True)
    node = tmp_path / "kit" / "auditor" / "node.toml"
    before = {one.what: one for one in checks.check(tmp_path / "kit", "auditor")}
    assert before["transcripts"].state == checks.OK
    node.write_text(node.read_text().replace(old, new))
    wrong = [one for one in checks.check(tmp_path / "kit", "auditor") if one.state == WRONG]
    after = {one.what: one.message for one in wrong if one.what not in ("server", "commands")}
    assert set(after) == {what}
    assert said in after[what]


def test_others_may_read_an_auditors_transcripts(tmp_path: Path) -> None:
    kit.write(tmp_path / "kit", "127.0.0.1", _free_port(), 2, auditor=True)
    folder = tmp_path / "kit" / "auditor" / "transcripts"
    folder.chmod(0o755)
    wrong = {one.what: one.message for one in checks.check(tmp_path / "kit", "auditor")}
    assert wrong["transcripts"].endswith(f"chmod 700 {folder}")


def _seen(written: Path, machine: str) -> dict[str, str]:
    """What was looked at on a machine, with how it is."""
    return {one.what: one.state for one in checks.check(written) if one.machine == machine}


def test_a_machine_that_has_moved_away_hides_nothing_of_the_others(
    written: Path, found: Found
) -> None:
    before = {machine: _seen(written, machine) for machine in ("server", "owner-0")}
    place = written / "owners" / "owner-1"
    place.rename(written / "elsewhere")
    assert {machine: _seen(written, machine) for machine in before} == before
    assert set(found("owner-1")) == {"folder"}
    assert f"'{place}' is missing: copy it anew" in found("owner-1")["folder"]


@pytest.mark.parametrize("machine", ["server", "owner-1"])
def test_without_settings_all_else_is_looked_at(written: Path, found: Found, machine: str) -> None:
    place = kit.folder(written, machine)
    (place / "settings.env").unlink()
    place.chmod(0o755)
    wrong = [one for one in checks.check(written, machine) if one.state == WRONG]
    assert sorted(one.what for one in wrong) == ["permissions", "settings"]
    assert f"cannot read '{place / 'settings.env'}'" in found(machine)["settings"]
    assert "copy this machine's folder anew" in found(machine)["settings"]
    looked_at = _seen(written, machine)
    assert looked_at["certificate" if machine == "server" else "node key"] == checks.OK
    assert set(_seen(written, "owner-0")) > {"node key", "supernode"}


def test_a_port_that_is_none_hides_nothing_before_it(written: Path, found: Found) -> None:
    _set(written / "server" / "settings.env", "PORT", "many")
    assert set(found("server")) == {"superlink", "settings"}
    assert "PORT is 'many'" in found("server")["settings"]


@pytest.mark.skipif(shutil.which("ssh-keygen") is None, reason="ssh-keygen is not installed")
def test_a_key_with_a_passphrase_is_found(written: Path, found: Found) -> None:
    path = written / "owners" / "owner-0" / "node.key"
    command = ["ssh-keygen", "-q", "-p", "-P", "", "-N", "a passphrase", "-f", str(path)]
    subprocess.run(command, check=True, capture_output=True)
    assert "cannot be read" in found("owner-0")["node key"]


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
    monkeypatch.setattr(checks, "_service", lambda _, name, port: (name, checks.OK, f"{port}"))
    return server


def _registrations(written: Path) -> list[tuple[str, str]]:
    findings = checks.check(written, "server")
    return [(one.state, one.message) for one in findings if one.what == "registered"]


def test_registered_nodes_are_connected_or_not(written: Path, registered: Path) -> None:
    first, second = _registrations(written)
    assert first == (checks.OK, "owner-0 is connected")
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
