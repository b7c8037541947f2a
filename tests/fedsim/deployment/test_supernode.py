"""A node's work is for its own processes: nothing that opens it is where others can read."""

from pathlib import Path

from fedsim.deployment import kit, supernode


def test_a_supernode_gives_tasks_for_a_secret_of_this_start(tmp_path):
    kit.write_kit(tmp_path / "kit", "127.0.0.1", 8443, 2)
    place = tmp_path / "kit" / "clients" / "client-0"
    secrets = []
    for _ in range(2):
        command = supernode._supernode(place)
        options = dict(zip(command[3::2], command[4::2], strict=True))
        assert (options["--isolation"], "--host" in options) == ("process", False)
        secret = Path(options["--superexec-auth-secret-file"])
        assert secret.stat().st_mode & 0o077 == 0
        assert {"--ssl-certfile", "--ssl-keyfile", "--ssl-ca-certfile"} < options.keys()
        secrets.append(secret.read_bytes())
        assert not any(secret.read_bytes().hex() in part for part in command)
    assert secrets[0] != secrets[1]
    assert len(secrets[0]) == 32
