"""A server gets a new certificate, and no node has to know."""

from datetime import UTC, datetime, timedelta

import pytest

from adversaries.errors import InputError
from fedsim.deployment import certificates, kit
from fedsim.deployment.certificates import Own
from fedsim.deployment.renewal import renew

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


@pytest.fixture
def own(tmp_path):
    """An operator's own certificate, key and authority."""
    authority = certificates.authority(30)
    pair = certificates.server_certificate(authority, [HOST], 30)
    files = {"own.crt": pair.public, "own.key": pair.private, "authority.crt": authority.public}
    for name, content in files.items():
        (tmp_path / name).write_bytes(content)
    return Own(*(tmp_path / name for name in files))


def test_an_operators_own_certificate_is_what_nodes_see(tmp_path, own):
    kit.write_kit(tmp_path / "kit", HOST, 8443, 2, own=own)
    assert not _refused(tmp_path / "kit")
    assert (tmp_path / "kit" / "server" / "server.crt").read_bytes() == own.certificate.read_bytes()
    assert not (tmp_path / "kit" / "ca").exists()
    with pytest.raises(InputError, match="give --certificate and --key"):
        renew(tmp_path / "kit", 365)
    renew(tmp_path / "kit", 365, (own.certificate, own.key))
    assert not _refused(tmp_path / "kit")


def test_an_own_certificate_that_nodes_would_refuse_changes_nothing(tmp_path, own):
    with pytest.raises(InputError, match=r"elsewhere\.example \(Hostname mismatch"):
        kit.write_kit(tmp_path / "kit", "elsewhere.example", 8443, 2, own=own)
    assert not (tmp_path / "kit").exists()
    kit.write_kit(tmp_path / "kit", HOST, 8443, 2)
    before = _contents(tmp_path / "kit")
    with pytest.raises(InputError, match="issuer certificate"):
        renew(tmp_path / "kit", 365, (own.certificate, own.key))
    assert _contents(tmp_path / "kit") == before


def test_one_machine_alone_cannot_renew(tmp_path):
    kit.write_kit(tmp_path / "kit", HOST, 8443, 2)
    with pytest.raises(InputError, match="renew in the folder of the whole kit"):
        renew(tmp_path / "kit" / "server", 365)
