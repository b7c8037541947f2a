"""Each thing that can be wrong with a machine's folder is found, and only that."""

import shutil
import socket
import subprocess
from datetime import UTC, datetime, timedelta

import pytest

from fedsim.deployment import certificates, check, kit, run
from fedsim.deployment.check import NOTE, OK, WRONG
from fedsim.federation.client import client_ledger
from fedsim.federation.client.client_ledger import AnsweredMessage
from fedsim.federation.protocol.consent import Terms
from fedsim.privacy.mechanism import Neighbouring, Steps


def _lines(written, machine, what):
    found = check.check_machines(written, machine)
    return [(one.state, one.message) for one in found if (one.machine, one.what) == (machine, what)]


def test_a_new_kit_lacks_nothing_but_its_start(written, found):
    server = found("server")
    assert set(server) == {"connection", "nodes"}
    assert "does not answer on port" in server["connection"]
    assert "start.sh" in server["connection"]
    assert set(found("client-0")) == {"connection"}
    everything = check.check_machines(written)
    assert {one.machine for one in everything} == {"server", "client-0", "client-1", "ca"}
    subjects = {one.what for one in everything}
    assert subjects == {"program", "permissions", "certificate", "nodes", *CLIENTS_SUBJECTS}


CLIENTS_SUBJECTS = "node.toml", "data", "budget", "connection"


def test_another_program(written, found, change, strangers, monkeypatch):
    monkeypatch.setattr(check.fedsim, "__version__", "9.9")
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
    (own := written / "ca" / "ca.key").chmod(0o644)
    last = check.check_machines(written)[-1]
    assert (last.machine, f"chmod 600 {own}" in last.message) == ("ca", True)
    for machine in ("server", "client-1"):
        shutil.copy(own, place := kit.folder(written, machine))
        line = WRONG, f"the authority's key must not be here; remove {place / 'ca.key'}"
        assert _lines(written, machine, "permissions")[0] == line


def test_a_machine_that_has_moved_away_hides_nothing_of_the_others(written, found):
    place = written / "clients" / "client-1"
    place.rename(written / "elsewhere")
    assert set(found("client-0")) == {"connection"}
    assert f"'{place}' is missing; copy it again" in found("client-1")["folder"]


@pytest.mark.parametrize("machine", ["server", "client-1"])
def test_without_settings_all_else_is_looked_at(written, found, machine):
    place = kit.folder(written, machine)
    (place / "settings.env").unlink()
    assert f"cannot read '{place / 'settings.env'}'" in found(machine)["connection"]
    ((state, _),) = _lines(written, machine, "certificate" if machine == "server" else "data")
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
    assert "has expired" in found("server")["certificate"]
    _certify(written, ["127.0.0.1"], 7, now)
    ((state, message),) = _lines(written, "server", "certificate")
    assert (state, message.startswith("ends on")) == (NOTE, True)
    before = key.read_bytes()
    _certify(written, ["elsewhere.example"], 9, now)
    assert "refuse server.crt with server.key for 127.0.0.1" in found("server")["certificate"]
    key.write_bytes(before)
    assert "KEY_VALUES_MISMATCH" in found("server")["certificate"]


@pytest.fixture
def registered(written, monkeypatch):
    """The server of a kit whose SuperLink, as far as is seen, answers and knows its nodes."""
    server = written / "server"
    keys = {machine: run.fingerprint_of(path) for machine, path in run.key_files(server).items()}
    nodes = {machine: run.Registration(f"{machine}'s", key) for machine, key in keys.items()}
    run.write_registered(server, nodes)
    statuses = {"client-0's": "online", "client-1's": "registered"}
    monkeypatch.setattr(run, "statuses", lambda _: statuses)
    return statuses


def test_registered_nodes_are_connected_or_not(written, registered):
    first, second = _lines(written, "server", "nodes")
    assert (first, second[0]) == ((OK, "client-0 is connected"), NOTE)
    registered |= {"client-1's": "online", "7": "offline", "8": "unregistered"}
    wrong = [said for state, said in _lines(written, "server", "nodes") if state == WRONG]
    assert [said.partition(",")[0] for said in wrong] == ["the SuperLink lets in node 7"]
    registered.clear()
    assert "the key of client-0 is not registered" in _lines(written, "server", "nodes")[0][1]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (certificates.node_key().public, "keys/client-0.pub is not the registered key; run fedsim"),
        (b"no key", "key type: b'no'); copy that machine's node.key.pub to it"),
        (None, "keys/client-0.pub is missing"),
    ],
)
@pytest.mark.usefixtures("registered")
def test_a_key_that_is_not_the_registered_one(written, content, said):
    path = written / "server" / "keys" / "client-0.pub"
    path.unlink()
    if content is not None:
        path.write_bytes(content)
    (state, message), *_ = _lines(written, "server", "nodes")
    assert (state, said in message) == (WRONG, True)


def test_a_port_that_is_none(found, change, written):
    change(written / "server", "PORT", "many")
    assert "PORT is 'many'" in found("server")["connection"]


def test_a_port_that_others_reach_or_that_asks_for_no_secret(written, found, change, monkeypatch):
    change(written / "server", "SUPERLINK_PORT", port := kit.port(written / "server", "PORT"))
    with socket.create_server(("0.0.0.0", port)):
        lines = _lines(written, "server", "connection")
    assert "also listens on 0.0.0.0, where anyone" in lines[0][1]
    monkeypatch.setattr(check, "_reached", lambda *_: iter([]))
    with socket.create_server(("127.0.0.1", port)):
        assert "connection" not in found("server")
        change(written / "clients" / "client-0", "NODE_PORT", port)
        for answers in (None, False, True):  # to a program without the secret
            monkeypatch.setattr(check, "gives_tasks_to_anybody", lambda _, said=answers: said)
            told = found("client-0").get("connection", "")
            assert ("gives every account of this machine" in told) == bool(answers)


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
    ]
    (place / "schema.toml").unlink()
    assert "cannot read the schema" in found("client-0")["data"]


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("partition-id = 7", "partition-id is 7, but this client needs 0"),
        ('consent = "everything"', "'everything'; choose from central"),
        ('peers-path = "../nowhere"', "copy each client's node.key.pub"),
    ],
)
def test_a_node_with_a_wrong_config(written, found, line, complaint):
    path = written / "clients" / "client-0" / "node.toml"
    key = line.partition(" ")[0]
    lines = path.read_text().splitlines()
    path.write_text("\n".join(line if old.startswith(f"{key} ") else old for old in lines))
    assert complaint in found("client-0")["node.toml"]


def test_a_node_with_a_damaged_key_of_a_peer_or_without_consent(written, found):
    (key := written / "clients" / "client-0" / "peers" / "client-1.pub").write_text("")
    assert f"cannot read '{key}'" in found("client-0")["node.toml"]
    assert _lines(written, "client-0", "budget")  # the other checks go on
    path = written / "clients" / "client-0" / "node.toml"
    path.write_text("partition-id = 0\nnum-partitions = 2\n")
    assert "consent is missing; add consent" in found("client-0")["node.toml"]


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('"auditor"', '"client"', "role is 'client'"),
        ("../transcripts", "../nowhere", "there is no folder '../nowhere'"),
    ],
)
def test_an_auditors_config(tmp_path, old, new, said, free_port):
    kit.write_kit(tmp_path / "kit", "127.0.0.1", free_port(), 2, auditor=True)
    node = tmp_path / "kit" / "auditor" / "node.toml"
    assert _lines(tmp_path / "kit", "auditor", "node.toml")[0][0] == OK
    (folder := node.with_name("transcripts")).chmod(0o755)
    ((_, message),) = _lines(tmp_path / "kit", "auditor", "permissions")
    assert message.endswith(f"chmod 700 {folder}")
    node.write_text(node.read_text().replace(old, new))
    ((state, message),) = _lines(tmp_path / "kit", "auditor", "node.toml")
    assert (state, said in message) == (WRONG, True)


def test_a_node_key_that_does_not_fit(written, monkeypatch):
    (written / "clients" / "client-0" / "node.key").write_bytes(certificates.node_key().private)
    monkeypatch.setattr(check, "_reached", lambda *_: iter([]))
    assert "does not match node.key.pub" in _lines(written, "client-0", "connection")[-1][1]


@pytest.mark.skipif(shutil.which("ssh-keygen") is None, reason="ssh-keygen is not installed")
def test_a_key_with_a_passphrase_is_found(written, monkeypatch):
    path = written / "clients" / "client-0" / "node.key"
    command = ["ssh-keygen", "-q", "-p", "-P", "", "-N", "a passphrase", "-f", str(path)]
    subprocess.run(command, check=True, capture_output=True)
    monkeypatch.setattr(check, "_reached", lambda *_: iter([]))
    assert "cannot be read" in _lines(written, "client-0", "connection")[-1][1]


UNIT = "record", Neighbouring.ADD_REMOVE, "pld"


def _answer(run, round, charged):
    return AnsweredMessage("", run, "digits", "7", "", "12ab", 0, 1, round, 5.0, charged, *UNIT)


def test_what_is_spent_and_left_is_said(written):
    place = written / "clients" / "client-0"
    terms = Terms(frozenset(), 1, 2.2, 1e-5, place / "state")
    for run_id, charged in (("5", Steps(5.0)), ("6", Steps(5.0)), ("8", None)):
        for round in (1, 2):
            client_ledger.enter(terms, _answer(run_id, round, charged))
    said = "epsilon 1.555 of 2.2 is spent at delta 1e-05, in 3 runs; 0.645 is left"
    assert _lines(written, "client-0", "budget") == [(OK, said)]
    path, own = place / "node.toml", place / "state" / client_ledger.FILE
    text = path.read_text()
    for old, new, message in (
        ("epsilon-limit = 2.2", "epsilon-limit = 1.0", "answers nothing more; to agree to more"),
        ('consent = ""', 'consent = "experiment"', "nothing is charged, since consent has"),
    ):
        path.write_text(text.replace(old, new))
        ((state, said),) = _lines(written, "client-0", "budget")
        assert (state, message in said) == (NOTE, True)
    own.write_bytes(own.read_bytes().replace(b"5.0", b"9.0", 1))
    ((state, message),) = _lines(written, "client-0", "budget")
    assert (state, "damaged in line 1" in message) == (WRONG, True)
