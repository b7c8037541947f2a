"""Each thing that can be wrong with a node is found, and only that."""

import shutil
import subprocess

import numpy as np
import pytest

from fedsim.configuration import to_run_config
from fedsim.deployment import kit
from fedsim.deployment.checks import machines
from fedsim.deployment.checks.connection import NOTE, OK, WRONG
from fedsim.federation.client import seen_models
from fedsim.federation.protocol import consent


def test_no_data(written, found):
    (written / "clients" / "client-1" / "data").rmdir()
    assert "there is no folder or file '../data'" in found("client-1")["data"]


def test_the_data_may_be_a_single_file(written, found):
    (written / "clients" / "client-1" / "data").rmdir()
    (written / "clients" / "client-1" / "data").write_text("age,label")
    assert "data" not in found("client-1")


def test_records_are_read_against_the_clients_own_schema(written, found):
    place = written / "clients" / "client-0"
    (place / "data").rmdir()
    (place / "data.csv").write_text("age,label\n12,a\n99,b\n")
    (place / "schema.toml").write_text('classes = ["a", "b"]\n[columns]\nage = [0, 90]\n')
    config = (place / "node.toml").read_text().replace('"../data"', '"../data.csv"')
    (place / "node.toml").write_text(config.replace("# schema-path", "schema-path"))
    assert (
        "column 'age': outside of the range 0 to 90: '99' (record 2)" in found("client-0")["data"]
    )

    def lines():
        checked = machines.check_machines(written, "client-0")
        return [
            (one.state, one.message.partition("data.csv")[2])
            for one in checked
            if one.what == "data"
        ]

    (place / "data.csv").write_text("age,label\n12,a\n9,b\n")
    assert lines() == [(OK, ": schema-path keeps all 2 records")]
    (place / "data.csv").write_text("name,age,label\nx,,a\ny,,b\nz,old,b\n")
    text = 'classes = ["a", "b"]\n[columns]\nage = { range = [0, 90], missing = "drop" }\n'
    (place / "schema.toml").write_text(text)
    assert lines() == [
        (
            WRONG,
            ", column 'age': not a number: 'old' (record 3); correct the records, or the schema "
            "that all share",
        ),
        (NOTE, ", column 'age': no value (2 records: 1, 2); left out, as schema-path says"),
        (NOTE, " has columns that schema-path does not use: name"),
    ]
    (place / "schema.toml").unlink()
    assert "cannot read the schema" in found("client-0")["data"]


@pytest.mark.parametrize(
    ("line", "what", "complaint"),
    [
        ("partition-id = 7", "node.toml", "partition-id is 7, but client-0 of 2 clients needs 0"),
        ('consent = "everything"', "consent", "'everything'; choose from central"),
    ],
)
def test_a_node_with_a_wrong_config(written, found, line, what, complaint):
    path = written / "clients" / "client-0" / "node.toml"
    key = line.partition(" ")[0]
    lines = path.read_text().splitlines()
    path.write_text("\n".join(line if old.startswith(f"{key} ") else old for old in lines))
    assert complaint in found("client-0")[what]


def test_the_public_keys_of_all_clients_are_looked_at(written, found):
    place = written / "clients" / "client-0"
    assert "peers" not in found("client-0")
    peer, own = (place / "peers" / f"client-{client}.pub" for client in (1, 0))
    key = peer.read_bytes()
    peer.write_bytes(own.read_bytes())
    assert "lacks the key of a client" in found("client-0")["peers"]
    peer.unlink()
    assert "copy each client's node.key.pub" in found("client-0")["peers"]
    peer.write_bytes(key)
    config = (place / "node.toml").read_text()
    (place / "node.toml").write_text(config.replace("peers-path", "# peers-path"))
    assert "only one of key-path and peers-path" in found("client-0")["peers"]


def test_a_node_that_computes_longer_than_the_server_waits_says_so(written, small):
    def said():
        lines = machines.check_machines(written, "client-0")
        return [(each.state, each.message) for each in lines if each.what == "deadline"]

    place = written / "clients" / "client-0"
    model = np.zeros(3, np.float32)
    assert said() == []  # no server has said yet how long it waits
    values = to_run_config(small({"federation.timeout": 100.0}))
    seen_models.keep(place / "state", "5", values, 1, model)
    ((state, message),) = said()
    assert state == NOTE
    assert message.endswith("not read an answer, so set DEADLINE=100")
    settings = place / "settings.env"
    settings.write_text(settings.read_text().replace("DEADLINE=3600", "DEADLINE=100"))
    assert said() == []


def test_a_node_that_nobody_asks_for_consent(written, found):
    path = written / "clients" / "client-0" / "node.toml"
    lines = path.read_text().splitlines()
    path.write_text("\n".join(line for line in lines if not line.startswith(consent.DEPLOYED)))
    assert "is missing; add consent" in found("client-0")["consent"]


@pytest.mark.parametrize(
    ("old", "new", "what", "said"),
    [
        ('"auditor"', '"client"', "node.toml", "role is 'client'"),
        ("../transcripts", "../nowhere", "transcripts", "there is no folder '../nowhere'"),
        ('transcript-path = "../transcripts"', "", "transcripts", "set transcript-path"),
    ],
)
def test_an_auditors_config(tmp_path, old, new, what, said, free_port):
    kit.write_kit(tmp_path / "kit", "127.0.0.1", free_port(), 2, auditor=True)
    node = tmp_path / "kit" / "auditor" / "node.toml"
    before = {one.what: one for one in machines.check_machines(tmp_path / "kit", "auditor")}
    assert before["transcripts"].state == OK
    node.write_text(node.read_text().replace(old, new))
    wrong = [
        one for one in machines.check_machines(tmp_path / "kit", "auditor") if one.state == WRONG
    ]
    after = {one.what: one.message for one in wrong if one.what not in ("server", "commands")}
    assert set(after) == {what}
    assert said in after[what]


def test_others_may_read_an_auditors_transcripts(tmp_path, free_port):
    kit.write_kit(tmp_path / "kit", "127.0.0.1", free_port(), 2, auditor=True)
    folder = tmp_path / "kit" / "auditor" / "transcripts"
    folder.chmod(0o755)
    wrong = {one.what: one.message for one in machines.check_machines(tmp_path / "kit", "auditor")}
    assert wrong["transcripts"].endswith(f"chmod 700 {folder}")


@pytest.mark.skipif(shutil.which("ssh-keygen") is None, reason="ssh-keygen is not installed")
def test_a_key_with_a_passphrase_is_found(written, found):
    path = written / "clients" / "client-0" / "node.key"
    command = ["ssh-keygen", "-q", "-p", "-P", "", "-N", "a passphrase", "-f", str(path)]
    subprocess.run(command, check=True, capture_output=True)
    assert "cannot be read" in found("client-0")["node key"]
