"""A server gets a new certificate, and no node has to know."""

from datetime import UTC, datetime, timedelta

import pytest

from adversaries.errors import InputError
from fedsim.deployment import certificates, kit
from fedsim.deployment.kit import renew

HOST = "federation.example"


def _contents(directory):
    return {path: path.read_bytes() for path in directory.rglob("*") if path.is_file()}


def _refused(directory):
    """What a node says of the server's certificate; "" if it is content."""
    server, node = directory / "server", directory / "clients" / "client-0"
    try:
        certificates.verify(server / "server.crt", server / "server.key", node / "ca.crt", HOST)
    except OSError as error:
        return str(error)
    return ""


def test_nodes_take_a_new_certificate_when_the_first_has_ended(tmp_path):
    then = datetime.now(UTC) - timedelta(days=400)
    kit.write_kit(tmp_path / "kit", HOST, 8443, 2, now=then)
    assert "expired" in _refused(tmp_path / "kit")
    before = _contents(tmp_path / "kit")
    end = renew(tmp_path / "kit", 365)
    assert timedelta(days=364) < end - datetime.now(UTC) <= timedelta(days=365)
    assert not _refused(tmp_path / "kit")
    after = _contents(tmp_path / "kit")
    changed = {path.name for path in after if after[path] != before.get(path)}
    assert changed == {"server.key", "server.crt"}
    assert before.keys() == after.keys()


def test_one_machine_alone_cannot_renew(tmp_path):
    kit.write_kit(tmp_path / "kit", HOST, 8443, 2)
    with pytest.raises(InputError, match="renew in the folder of the whole kit"):
        renew(tmp_path / "kit" / "server", 365)
