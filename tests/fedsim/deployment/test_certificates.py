"""What the kit's certificates are worth to a client that verifies strictly."""

import shutil
import socket
import ssl
import subprocess
import threading
from datetime import UTC, datetime, timedelta

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import load_ssh_private_key, load_ssh_public_key

from fedsim.deployment import certificates
from fedsim.deployment.certificates import KeyPair


def _handshake(folder, server, authority, name):
    """Connect over TLS on a socket pair. Raises ssl.SSLError as a client would."""
    for file, content in {
        "key": server.private,
        "crt": server.public,
        "ca": authority.public,
    }.items():
        (folder / file).write_bytes(content)
    ours, theirs = socket.socketpair()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "crt", folder / "key")

    def serve():
        try:
            with context.wrap_socket(theirs, server_side=True):
                pass
        except (ssl.SSLError, OSError):
            theirs.close()

    thread = threading.Thread(target=serve)
    thread.start()
    client = ssl.create_default_context(cafile=str(folder / "ca"))
    client.verify_flags |= ssl.VERIFY_X509_STRICT
    try:
        with client.wrap_socket(ours, server_hostname=name):
            pass
    finally:
        ours.close()
        thread.join()


@pytest.mark.parametrize("name", ["federation.example", "10.1.2.3"])
def test_a_strict_client_trusts_the_server_by_each_of_its_names(tmp_path, name):
    authority = certificates.authority(1)
    server = certificates.server_certificate(authority, ["federation.example", "10.1.2.3"], 1)
    _handshake(tmp_path, server, authority, name)


def test_another_name_is_refused(tmp_path):
    authority = certificates.authority(1)
    server = certificates.server_certificate(authority, ["federation.example"], 1)
    with pytest.raises(ssl.SSLCertVerificationError, match="Hostname mismatch"):
        _handshake(tmp_path, server, authority, "elsewhere.example")


def test_another_authority_is_refused(tmp_path):
    server = certificates.server_certificate(certificates.authority(1), ["a.example"], 1)
    with pytest.raises(ssl.SSLCertVerificationError, match="issuer"):
        _handshake(tmp_path, server, certificates.authority(1), "a.example")


def test_an_expired_certificate_is_refused(tmp_path):
    then = datetime.now(UTC) - timedelta(days=3)
    authority = certificates.authority(30, then)
    server = certificates.server_certificate(authority, ["a.example"], 1, then)
    with pytest.raises(ssl.SSLCertVerificationError, match="expired"):
        _handshake(tmp_path, server, authority, "a.example")


@pytest.mark.parametrize("name", certificates.LOOPBACK)
def test_a_machine_trusts_itself(tmp_path, name):
    pair, trusted = certificates.loopback(1)
    _handshake(tmp_path, pair, KeyPair(b"", trusted), name)


def test_a_certificate_ends_with_its_authority():
    then = datetime.now(UTC) - timedelta(days=3)
    authority = certificates.authority(9, then)
    of = x509.load_pem_x509_certificate(
        certificates.server_certificate(authority, ["a"], 30).public
    )
    assert of.not_valid_after_utc == then.replace(microsecond=0) + timedelta(days=9)
    with pytest.raises(ValueError, match="its certificate expired on"):
        certificates.server_certificate(certificates.authority(2, then), ["a"], 30)


def test_nodes_have_keys_that_fit_and_differ():
    first, second = certificates.node_key(), certificates.node_key()
    private = load_ssh_private_key(first.private, password=None)
    assert private.public_key() == load_ssh_public_key(first.public)
    assert first.public != second.public


@pytest.mark.skipif(shutil.which("ssh-keygen") is None, reason="ssh-keygen is not installed")
def test_a_fingerprint_is_the_one_that_ssh_keygen_shows(tmp_path):
    path = tmp_path / "node.key.pub"
    path.write_bytes(certificates.node_key().public + b" somebody@somewhere\n")
    command = ["ssh-keygen", "-l", "-E", "sha256", "-f", str(path)]
    shown = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert shown.split()[1] == certificates.fingerprint(path.read_bytes())


def test_keys_have_fingerprints_of_their_own_and_comments_none():
    first, second = certificates.node_key().public, certificates.node_key().public
    assert certificates.fingerprint(first) != certificates.fingerprint(second)
    assert certificates.fingerprint(first) == certificates.fingerprint(first + b" a comment\n")
    with pytest.raises(ValueError, match="key type"):
        certificates.fingerprint(b"no key")
