"""Each thing that can be wrong with a server is found, and only that."""

import socket
from datetime import UTC, datetime, timedelta

import pytest

from fedsim.deployment import certificates, kit, run, supervision
from fedsim.deployment import run as deployment
from fedsim.deployment.checks import machines
from fedsim.deployment.checks import server as server_checks
from fedsim.deployment.checks.connection import NOTE, OK, WRONG
from fedsim.federation.runtimes import ports


def _certify(written, names, days, start):
    authority = certificates.KeyPair(
        (written / "ca" / "ca.key").read_bytes(), (written / "ca" / "ca.crt").read_bytes()
    )
    pair = certificates.server_certificate(authority, names, days, start)
    (written / "server" / "server.key").write_bytes(pair.private)
    (written / "server" / "server.crt").write_bytes(pair.public)


def test_an_expired_certificate(written, found):
    _certify(written, ["127.0.0.1"], 1, datetime.now(UTC) - timedelta(days=2))
    assert "expired on" in found("server")["certificate"]


def test_a_certificate_that_expires_soon_is_spoken_of(written):
    _certify(written, ["127.0.0.1"], 7, datetime.now(UTC))
    (line,) = (
        one for one in machines.check_machines(written, "server") if one.what == "certificate"
    )
    assert line.state == NOTE
    assert "expires in 6 days" in line.message


def test_a_certificate_for_another_address(tmp_path, free_port):
    kit.write_kit(tmp_path / "kit", "federation.example", 8443, 2, superlink_port=free_port())
    _certify(tmp_path / "kit", ["elsewhere.example"], 9, datetime.now(UTC))
    findings = machines.check_machines(tmp_path / "kit", "server")
    (line,) = (one for one in findings if one.what == "certificate")
    assert (line.state, "is not for federation.example" in line.message) == (WRONG, True)


def test_a_key_that_does_not_fit(written, found):
    key = written / "server" / "server.key"
    before = key.read_bytes()
    _certify(written, ["127.0.0.1"], 9, datetime.now(UTC))
    key.write_bytes(before)
    assert "does not match server.crt" in found("server")["certificate"]
    (written / "clients" / "client-0" / "node.key").write_bytes(certificates.node_key().private)
    assert "does not match node.key.pub" in found("client-0")["node key"]


def test_a_certificate_of_another_authority(written, found):
    (written / "server" / "ca.crt").write_bytes(certificates.authority(9).public)
    assert "does not match ca.crt" in found("server")["certificate"]


def test_fewer_keys_than_nodes(written, found):
    (written / "server" / "keys" / "client-1.pub").unlink()
    assert "client-1.pub is missing" in found("server")["node keys"]


def test_a_port_that_is_none_hides_nothing_before_it(written, found, change):
    change(written / "server", "PORT", "many")
    assert set(found("server")) == {"superlink", "settings"}
    assert "PORT is 'many'" in found("server")["settings"]


@pytest.fixture
def registered(written, monkeypatch):
    """The server of a kit whose SuperLink, as far as is seen, answers and knows its nodes."""
    server = written / "server"
    keys = {machine: run.fingerprint_of(path) for machine, path in run.key_files(server).items()}
    nodes = {machine: run.Registration(f"{machine}'s", key) for machine, key in keys.items()}
    run.write_registered(server, nodes)
    monkeypatch.setattr(
        deployment, "statuses", lambda _: {"client-0's": "online", "client-1's": "registered"}
    )
    monkeypatch.setattr(supervision, "number", lambda *_: 1)
    monkeypatch.setattr(ports, "listening", lambda *_: True)
    monkeypatch.setattr(supervision, "missing", lambda *_: [])
    monkeypatch.setattr(server_checks, "_speaks_tls", lambda *_: True)
    return server


def _registrations(written):
    findings = machines.check_machines(written, "server")
    return [(one.state, one.message) for one in findings if one.what == "registered"]


def test_registered_nodes_are_connected_or_not(written, registered):
    first, second = _registrations(written)
    assert first == (OK, "client-0 is connected")
    assert second[0] == NOTE


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (certificates.node_key().public, "keys/client-0.pub is not the registered key; run fedsim"),
        (b"no key", "key type: b'no'); copy that machine's node.key.pub to it"),
    ],
)
def test_a_key_that_is_not_the_registered_one(written, registered, content, said):
    (registered / "keys" / "client-0.pub").write_bytes(content)
    (state, message), second = _registrations(written)
    assert (state, second[0]) == (WRONG, NOTE)
    assert said in message


def test_a_superlink_that_others_reach_is_found_by_where_it_listens(written, found, registered):
    port = kit.port(registered, "SUPERLINK_PORT")
    with socket.create_server(("127.0.0.1", port)):
        assert "superlink's addresses" not in found("server")
    with socket.create_server(("0.0.0.0", port)):
        assert "include 0.0.0.0, where anyone" in found("server")["superlink's addresses"]


def test_a_strangers_key_is_named(written, found):
    stranger = written / "server" / "keys" / "mallory.pub"
    stranger.write_bytes(certificates.node_key().public)
    assert (
        "keys/mallory.pub belongs to no machine of this federation" in found("server")["node keys"]
    )


def test_a_node_that_somebody_else_registered_is_named(written, registered, monkeypatch):
    everyone = {"client-0's": "online", "client-1's": "online", "7": "offline", "8": "unregistered"}
    monkeypatch.setattr(deployment, "statuses", lambda _: everyone)
    wrong = [message for state, message in _registrations(written) if state == WRONG]
    assert [message.partition(",")[0] for message in wrong] == ["the SuperLink lets in node 7"]


def test_others_may_read_the_authoritys_key(written):
    key = written / "ca" / "ca.key"
    key.chmod(0o644)
    wrong = [
        one for one in machines.check_machines(written) if (one.machine, one.state) == ("ca", WRONG)
    ]
    assert [one.message for one in wrong] == [f"others may read {key} (644); chmod 600 {key}"]


def test_the_authoritys_key_is_on_the_server(written, found):
    (written / "ca" / "ca.key").rename(written / "server" / "ca.key")
    assert "remove" in found("server")["authority"]


def test_an_authority_that_ends(written):
    own = certificates.authority(3)
    (written / "ca" / "ca.key").write_bytes(own.private)
    (written / "ca" / "ca.crt").write_bytes(own.public)
    (line,) = (one for one in machines.check_machines(written) if one.machine == "ca")
    assert (line.state, "expires in 2 days" in line.message) == (NOTE, True)
    (written / "ca" / "ca.key").write_bytes(certificates.authority(3).private)
    (line,) = (one for one in machines.check_machines(written) if one.machine == "ca")
    assert (line.state, "does not match ca.crt" in line.message) == (WRONG, True)
