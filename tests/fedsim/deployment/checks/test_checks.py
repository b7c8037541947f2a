"""Each thing that can be wrong with a machine's folder is found, and only that."""

import os
import shutil
import socket
import stat
import subprocess
import time
from datetime import UTC, datetime, timedelta

import pytest

from fedsim.deployment import certificates, kit, run, supervision
from fedsim.deployment import run as deployment
from fedsim.deployment.checks import machines
from fedsim.deployment.checks import node as node_checks
from fedsim.deployment.checks import server as server_checks
from fedsim.deployment.checks.connection import NOTE, OK, WRONG
from fedsim.federation.client import client_ledger
from fedsim.federation.client.client_ledger import AnsweredMessage
from fedsim.federation.protocol.consent import Terms
from fedsim.federation.runtimes import ports
from fedsim.privacy.mechanism import Neighbouring, Steps


def _lines(written, machine, what):
    found = machines.check_machines(written, None if machine == "ca" else machine)
    return [(one.state, one.message) for one in found if (one.machine, one.what) == (machine, what)]


def test_a_new_kit_lacks_nothing_but_its_start(written, found):
    server = found("server")
    assert set(server) == {"superlink", "proxy"}
    assert "does not answer on port" in server["superlink"]
    assert "start.sh" in server["superlink"]
    assert set(found("client-0")) == {"connection"}
    everything = machines.check_machines(written)
    assert {one.machine for one in everything} == {"server", "client-0", "client-1", "ca"}
    own = {one.what for one in everything if one.machine == "client-1"}
    assert own >= {"program", "permissions", "node key", "node.toml", "data", "budget", "supernode"}


def test_another_program(written, found, change, strangers, monkeypatch, tmp_path):
    monkeypatch.setattr(machines.fedsim, "__version__", "9.9")
    (state, message), *_ = _lines(written, "server", "program")
    assert (state, message.startswith("fedsim 9.9 is installed, but the kit")) == (NOTE, True)
    monkeypatch.syspath_prepend(strangers)
    assert "pip uninstall fedsim, then install" in _lines(written, "server", "program")[0][1]
    monkeypatch.undo()
    change(written / "server", "BIN", "/nowhere")
    assert "is not on the PATH; set BIN" in found("server")["program"]


def test_others_may_read_a_key(written, found):
    key = written / "server" / "server.key"
    key.chmod(0o644)
    assert f"chmod 600 {key}" in found("server")["permissions"]
    key.chmod(stat.S_IRUSR)
    assert "permissions" not in found("server")
    own = written / "ca" / "ca.key"
    own.chmod(0o644)
    for machine in (None, "server", "client-0"):  # wherever it is looked at
        wrong = [one for one in machines.check_machines(written, machine) if one.machine == "ca"]
        said = f"others may read {own} (644); chmod 600 {own}"
        assert (wrong[0].state, wrong[0].message) == (WRONG, said)


def test_a_machine_that_has_moved_away_hides_nothing_of_the_others(written, found):
    place = written / "clients" / "client-1"
    place.rename(written / "elsewhere")
    assert set(found("client-0")) == {"connection"}
    assert f"'{place}' is missing; copy it again" in found("client-1")["folder"]


@pytest.mark.parametrize("machine", ["server", "client-1"])
def test_without_settings_all_else_is_looked_at(written, found, machine):
    place = kit.folder(written, machine)
    (place / "settings.env").unlink()
    place.chmod(0o755)
    assert set(found(machine)) == {"permissions", "settings"}
    assert f"cannot read '{place / 'settings.env'}'" in found(machine)["settings"]
    ((state, _),) = _lines(written, machine, "certificate" if machine == "server" else "node key")
    assert state == OK


def _certify(written, names, days, start):
    authority = certificates.KeyPair(
        (written / "ca" / "ca.key").read_bytes(), (written / "ca" / "ca.crt").read_bytes()
    )
    pair = certificates.server_certificate(authority, names, days, start)
    (written / "server" / "server.key").write_bytes(pair.private)
    (written / "server" / "server.crt").write_bytes(pair.public)


def test_a_certificate_that_nodes_refuse_or_will_refuse(written, found):
    now, key = datetime.now(UTC), written / "server" / "server.key"
    _certify(written, ["127.0.0.1"], 1, now - timedelta(days=2))
    assert "expired on" in found("server")["certificate"]
    _certify(written, ["127.0.0.1"], 7, now)
    ((state, message),) = _lines(written, "server", "certificate")
    assert (state, "expires in 6 days" in message) == (NOTE, True)
    before = key.read_bytes()
    _certify(written, ["elsewhere.example"], 9, now)
    assert "would be refused by the nodes for 127.0.0.1" in found("server")["certificate"]
    key.write_bytes(before)
    assert "cannot be used (KEY_VALUES_MISMATCH)" in found("server")["certificate"]
    (written / "server" / "ca.crt").write_bytes(certificates.authority(9).public)
    _certify(written, ["127.0.0.1"], 9, now)
    assert "would be refused by the nodes" in found("server")["certificate"]


def test_an_authority_that_ends(written):
    own = certificates.authority(3)
    (written / "ca" / "ca.key").write_bytes(own.private)
    (written / "ca" / "ca.crt").write_bytes(own.public)
    ((state, message),) = _lines(written, "ca", "authority")
    assert (state, "expires in 2 days" in message) == (NOTE, True)
    (written / "ca" / "ca.key").write_bytes(certificates.authority(3).private)
    ((state, message),) = _lines(written, "ca", "authority")
    assert (state, "does not match ca.crt" in message) == (WRONG, True)


def test_the_keys_of_a_server(written, found):
    keys = written / "server" / "keys"
    (keys / "client-1.pub").unlink()
    assert "client-1.pub is missing" in found("server")["node keys"]
    (keys / "mallory.pub").write_bytes(certificates.node_key().public)
    said = [message for _, message in _lines(written, "server", "node keys")]
    assert any("keys/mallory.pub belongs to no machine" in message for message in said)
    (written / "ca" / "ca.key").rename(written / "server" / "ca.key")
    said = [message for _, message in _lines(written, "server", "node keys")]
    assert any("the authority's key must not be here; remove" in message for message in said)


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
    statuses = {"client-0's": "online", "client-1's": "registered"}
    monkeypatch.setattr(deployment, "statuses", lambda _: statuses)
    monkeypatch.setattr(supervision, "number", lambda *_: 1)
    monkeypatch.setattr(ports, "listening", lambda *_: True)
    monkeypatch.setattr(supervision, "missing", lambda *_: [])
    monkeypatch.setattr(server_checks, "_speaks_tls", lambda *_: True)
    return server


def test_registered_nodes_are_connected_or_not(written, registered, monkeypatch):
    first, second = _lines(written, "server", "registered")
    assert (first, second[0]) == ((OK, "client-0 is connected"), NOTE)
    everyone = {"client-0's": "online", "client-1's": "online", "7": "offline", "8": "unregistered"}
    monkeypatch.setattr(deployment, "statuses", lambda _: everyone)
    wrong = [said for state, said in _lines(written, "server", "registered") if state == WRONG]
    assert [said.partition(",")[0] for said in wrong] == ["the SuperLink lets in node 7"]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (certificates.node_key().public, "keys/client-0.pub is not the registered key; run fedsim"),
        (b"no key", "key type: b'no'); copy that machine's node.key.pub to it"),
    ],
)
def test_a_key_that_is_not_the_registered_one(written, registered, content, said):
    (registered / "keys" / "client-0.pub").write_bytes(content)
    (state, message), *_ = _lines(written, "server", "registered")
    assert (state, said in message) == (WRONG, True)


def test_a_superlink_that_others_reach_is_found_by_where_it_listens(found, registered):
    port = kit.port(registered, "SUPERLINK_PORT")
    with socket.create_server(("127.0.0.1", port)):
        assert "superlink" not in found("server")
    with socket.create_server(("0.0.0.0", port)):
        assert "also listens on 0.0.0.0, where anyone" in found("server")["superlink"]


def test_a_clients_data(written, found):
    place = written / "clients" / "client-1"
    (place / "data").rmdir()
    assert "there is no folder or file '../data'" in found("client-1")["data"]
    (place / "data").write_text("age,label")
    assert "data" not in found("client-1")


def test_records_are_read_against_the_clients_own_schema(written, found):
    place = written / "clients" / "client-0"
    (place / "data").rmdir()
    (place / "data.csv").write_text("age,label\n12,a\n99,b\n")
    (place / "schema.toml").write_text('classes = ["a", "b"]\n[columns]\nage = [0, 90]\n')
    config = (place / "node.toml").read_text().replace('"../data"', '"../data.csv"')
    (place / "node.toml").write_text(config.replace("# schema-path", "schema-path"))
    said = "column 'age': outside of the range 0 to 90: '99' (record 2)"
    assert said in found("client-0")["data"]

    def lines():
        found = _lines(written, "client-0", "data")
        return [(state, message.partition("data.csv")[2]) for state, message in found]

    (place / "data.csv").write_text("age,label\n12,a\n9,b\n")
    assert lines() == [(OK, ": schema-path keeps 2 of 2 records")]
    (place / "data.csv").write_text("name,age,label\nx,,a\ny,,b\nz,old,b\n")
    text = 'classes = ["a", "b"]\n[columns]\nage = { range = [0, 90], missing = "drop" }\n'
    (place / "schema.toml").write_text(text)
    why = "correct the records, or the schema that all share"
    assert lines() == [
        (WRONG, f", column 'age': not a number: 'old' (record 3); {why}"),
        (NOTE, ", column 'age': no value (2 records: 1, 2); left out, as schema-path says"),
        (NOTE, " has columns that schema-path does not use: name"),
    ]
    (place / "schema.toml").unlink()
    assert "cannot read the schema" in found("client-0")["data"]


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("partition-id = 7", "partition-id is 7, but this client needs 0"),
        ('consent = "everything"', "'everything'; choose from central"),
        ('peers-path = ""', "copy each client's node.key.pub"),
    ],
)
def test_a_node_with_a_wrong_config(written, found, line, complaint):
    path = written / "clients" / "client-0" / "node.toml"
    key = line.strip("# ").partition(" ")[0]
    lines = path.read_text().splitlines()
    path.write_text("\n".join(line if old.startswith(f"{key} ") else old for old in lines))
    assert complaint in found("client-0")["node.toml"]


def test_a_node_without_consent(written, found):
    path = written / "clients" / "client-0" / "node.toml"
    path.write_text("partition-id = 0\nnum-partitions = 2\n")
    assert "consent is missing; add consent" in found("client-0")["node.toml"]


def test_the_public_keys_of_all_clients_are_looked_at(written, found):
    place = written / "clients" / "client-0"
    peer, own = (place / "peers" / f"client-{client}.pub" for client in (1, 0))
    peer.write_bytes(own.read_bytes())
    assert "lacks the key of a client" in found("client-0")["node.toml"]
    peer.unlink()
    assert "copy each client's node.key.pub" in found("client-0")["node.toml"]


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('"auditor"', '"client"', "role is 'client'"),
        ("../transcripts", "../nowhere", "there is no folder '../nowhere'"),
        ('transcript-path = "../transcripts"', "", "set transcript-path"),
    ],
)
def test_an_auditors_config(tmp_path, old, new, said, free_port):
    kit.write_kit(tmp_path / "kit", "127.0.0.1", free_port(), 2, auditor=True)
    node = tmp_path / "kit" / "auditor" / "node.toml"
    assert _lines(tmp_path / "kit", "auditor", "node.toml")[0][0] == OK
    (folder := node.with_name("transcripts")).chmod(0o755)
    ((_, message),) = _lines(tmp_path / "kit", "auditor", "node.toml")
    assert message.endswith(f"chmod 700 {folder}")
    folder.chmod(0o700)
    node.write_text(node.read_text().replace(old, new))
    ((state, message),) = _lines(tmp_path / "kit", "auditor", "node.toml")
    assert (state, said in message) == (WRONG, True)


def test_a_node_key_that_does_not_fit(written, found):
    (written / "clients" / "client-0" / "node.key").write_bytes(certificates.node_key().private)
    assert "does not match node.key.pub" in found("client-0")["node key"]


@pytest.mark.skipif(shutil.which("ssh-keygen") is None, reason="ssh-keygen is not installed")
def test_a_key_with_a_passphrase_is_found(written, found):
    path = written / "clients" / "client-0" / "node.key"
    command = ["ssh-keygen", "-q", "-p", "-P", "", "-N", "a passphrase", "-f", str(path)]
    subprocess.run(command, check=True, capture_output=True)
    assert "cannot be read" in found("client-0")["node key"]


UNIT = "record", Neighbouring.ADD_REMOVE, "pld"


def _answer(run, round, charged):
    return AnsweredMessage("", run, "digits", "7", "", "12ab", 0, 1, round, 5.0, charged, *UNIT)


def test_what_is_spent_reserved_and_left_is_said(written):
    place = written / "clients" / "client-0"
    terms = Terms(frozenset(), 1, 2.2, 1e-5, place / "state")
    for run_id, charged in (("5", Steps(5.0)), ("6", Steps(5.0)), ("8", None)):
        for round in (1, 2):
            client_ledger.enter(terms, _answer(run_id, round, charged))
    said = "epsilon 1.555 of 2.2 is spent at delta 1e-05, in 3 runs; 0.645 is left"
    assert _lines(written, "client-0", "budget") == [(OK, said)]
    client_ledger.reserve(terms, _answer("9", 1, Steps(5.0, 2)))
    (state, message), _ = _lines(written, "client-0", "budget")
    assert (state, message.startswith("digits (run 9) has not ended; epsilon 1.")) == (NOTE, True)
    path, own = place / "node.toml", place / "state" / client_ledger.FILE
    text = path.read_text()
    for old, new, message in (
        ("epsilon-limit = 2.2", "epsilon-limit = 1.0", "answers nothing more; to agree to more"),
        ('consent = ""', 'consent = "experiment"', "nothing is charged, since consent has"),
    ):
        path.write_text(text.replace(old, new))
        *_, (state, said) = _lines(written, "client-0", "budget")
        assert (state, message in said) == (NOTE, True)
    own.write_bytes(own.read_bytes().replace(b"5.0", b"9.0", 1))
    ((state, message),) = _lines(written, "client-0", "budget")
    assert (state, "damaged in line 1" in message) == (WRONG, True)


@pytest.fixture
def running(written, change, monkeypatch):
    """The folder of a node that seems to be well, by its port alone."""
    place = written / "clients" / "client-0"
    monkeypatch.setattr(node_checks, "gives_tasks_to_anybody", lambda _: False)
    with socket.create_server(("127.0.0.1", 0)) as node:
        change(place, "NODE_PORT", node.getsockname()[1])
        yield place


def test_a_config_that_was_edited_while_the_node_runs(found, running):
    secret = running / "state" / "runtime" / "secret"
    kit.write_file(secret, "of a start under systemd, which leaves no supernode.pid")
    started = secret.stat().st_mtime
    os.utime(running / "node.toml", (started - 5, started - 5))
    assert "node.toml" not in found("client-0")
    os.utime(running / "node.toml", (started + 5, started + 5))
    assert "was edited after the node started" in found("client-0")["node.toml"]


def test_a_node_that_the_server_does_not_hear(found, running):
    kit.write_file(running / "logs" / "supernode.log", "OSError: disk full\n")
    said = "the server has not accepted this node yet (OSError: disk full)"
    assert said in found("client-0")["supernode"]
    heard = running / "state" / "runtime" / "heard"
    kit.write_file(heard, "")
    assert "supernode" not in found("client-0")
    os.utime(heard, (time.time() - 70,) * 2)
    said = "answered no heartbeat for 70 s, so it counts this node as away (OSError: disk full)"
    assert said in found("client-0")["supernode"]


def test_a_port_that_another_program_has_or_that_gives_tasks_to_anybody(
    written, found, change, monkeypatch
):
    answers = {"https": None, "http": None}  # as of a program that is no SuperNode
    monkeypatch.setattr(
        node_checks, "gives_tasks_to_anybody", lambda url: answers[url.partition(":")[0]]
    )
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        change(written / "clients" / "client-0", "NODE_PORT", port)
        assert f"port {port} is taken" in found("client-0")["supernode"]
        answers["http"] = True
        assert "gives every account of this machine" in found("client-0")["supernode"]


def test_a_node_that_ended_by_itself_says_why(written, found):
    place = written / "clients" / "client-0"
    (place / "supernode.pid").write_text("0\n")
    assert "has ended by itself (its log does not say why)" in found("client-0")["supernode"]
    (place / "logs").mkdir()
    (place / "logs" / "supernode.log").write_text("[code: 2004] Failed to activate SuperNode.\n")
    assert "([code: 2004] Failed to activate SuperNode.)" in found("client-0")["supernode"]
