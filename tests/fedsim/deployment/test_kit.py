"""A kit holds what each machine needs and nothing that a machine must not have."""

import errno
import hashlib
import json
import os
import re
import shutil
import signal
import stat
import subprocess
import tomllib
from pathlib import Path

import pytest

from adversaries.errors import InputError
from fedsim.deployment import kit, run


@pytest.fixture
def written(tmp_path):
    kit.write_kit(tmp_path / "kit", "federation.example", 8443, 2, auditor=True)
    return tmp_path / "kit"


def test_every_machine_has_a_folder(written):
    assert kit.read_kit(written).machines == ["server", "client-0", "client-1", "auditor"]
    for machine in kit.read_kit(written).machines:
        place = kit.folder(written, machine)
        assert kit.read_kit(place).machine == machine
        assert kit.folder(place, machine) == place


def test_a_kit_that_a_full_disk_stops_leaves_nothing_and_can_be_written_again(
    tmp_path, monkeypatch
):
    really = kit.write_file

    def full(path, content, mode=0o600):
        if path.name == "node.toml":
            raise OSError(errno.ENOSPC, "No space left on device")
        really(path, content, mode)

    monkeypatch.setattr(kit, "write_file", full)
    with pytest.raises(OSError, match="No space left"):
        kit.write_kit(tmp_path / "kit", "10.0.0.1", 8443, 2)
    assert not list(tmp_path.iterdir())
    monkeypatch.undo()
    kit.write_kit(tmp_path / "kit", "10.0.0.1", 8443, 2)
    assert [path.name for path in tmp_path.iterdir()] == ["kit"]


def test_secrets_are_their_clients_alone(written):
    assert len(list(written.rglob("*.key"))) == 6
    for path in [written, *written.rglob("*")]:
        assert not stat.S_IMODE(path.stat().st_mode) & 0o077, path


def test_no_secret_of_one_machine_is_in_anothers_folder(written):
    keys = {path: path.read_bytes() for path in written.rglob("*.key")}
    for path in written.rglob("*"):
        if path.is_file():
            held = [key for key, content in keys.items() if content in path.read_bytes()]
            assert held in ([], [path])


def test_the_server_has_the_public_key_of_every_node(written):
    for machine in kit.read_kit(written).nodes:
        own = (kit.folder(written, machine) / "node.key.pub").read_bytes()
        assert (written / "server" / "keys" / f"{machine}.pub").read_bytes() == own


def test_a_kit_is_never_written_over(written):
    before = (written / "ca" / "ca.key").read_bytes()
    with pytest.raises(InputError, match="name a new directory"):
        kit.write_kit(written, "federation.example", 8443, 2)
    assert (written / "ca" / "ca.key").read_bytes() == before


def test_nothing_is_left_to_fill_in(written):
    for path in written.rglob("*"):
        if path.is_file() and path.suffix != ".pub":
            assert not re.findall("@[A-Z0-9_]+@", path.read_text()), path


def test_a_kit_has_no_program_and_installs_what_it_is_given(written):
    text = (written / "README.md").read_text()
    assert text.count("install.sh WHEEL SHA256") == 3  # a server, clients, an auditor
    # Another project has the bare name on the package index.
    flower = f"flwr=={kit.read_kit(written).flwr}"
    assert re.findall("pip install (.*)`", text) == [f"WHEEL {flower}"]
    script = (written / "server" / "install.sh").read_text()
    assert f'--upgrade "$WHEEL" "{flower}"' in script


@pytest.mark.source
def test_the_server_is_given_the_training_that_clients_allow_at_first(written):
    held = (written / "server" / "deployment.toml").read_text()
    assert held == (Path(__file__).parents[3] / "configs" / "deployment.toml").read_text()
    assert "deploy run . deployment.toml" in (written / "README.md").read_text()


def test_scripts_are_valid_and_settings_can_be_read(written):
    scripts = sorted(written.rglob("*.sh"))
    assert len(scripts) == 12
    for script in scripts:
        subprocess.run(["sh", "-n", str(script)], check=True)
    assert kit.port(written / "server", "SUPERLINK_PORT") == 8000
    assert kit.settings(written / "clients" / "client-1")["SUPERLINK"] == "federation.example:8443"


def test_a_client_consents_to_nothing_until_it_says_so(written):
    values = tomllib.loads((written / "clients" / "client-1" / "node.toml").read_text())
    assert values == {
        "partition-id": 1,
        "num-partitions": 2,
        "data-path": "../data",
        "state-path": "../state",
        "key-path": "../node.key",
        "peers-path": "../peers",
        "consent": "",
        "max-trials": 1,
        "epsilon-limit": 2.2,
        "delta-limit": 1e-5,
    }


def test_each_client_gets_the_public_keys_of_all_clients(written):
    registered = {p.name: p.read_bytes() for p in (written / "server" / "keys").iterdir()}
    del registered["auditor.pub"]
    assert len(registered) == 2
    for client in ("client-0", "client-1"):
        place = written / "clients" / client
        peers = {path.name: path.read_bytes() for path in (place / "peers").iterdir()}
        assert peers == registered
        assert peers[f"{client}.pub"] == (place / "node.key.pub").read_bytes()
    assert not (written / "auditor" / "peers").exists()


def test_an_auditor_records_where_nobody_else_may_read(written):
    place = written / "auditor"
    values = tomllib.loads((place / "node.toml").read_text())
    assert values == {"role": "auditor", "transcript-path": "../transcripts"}
    assert (place / "transcripts").is_dir()
    assert "fedsim audit transcripts --follow\n" in (written / "README.md").read_text()


@pytest.mark.parametrize("content", ["{", "[]", '{"client-0": 7}', '{"client-0": {"node": "7"}}'])
def test_registrations_that_cannot_be_read_are_refused(written, content):
    (written / "server" / "nodes.json").write_text(content)
    with pytest.raises(InputError, match="delete it and register again"):
        run.registered(written / "server")


@pytest.mark.parametrize(
    "host", ["a", "a.example", "A-1.example", "10.1.2.3", "x" * 63 + ".example", "1a.2b"]
)
def test_host_names_and_addresses(host):
    assert kit.is_host(host)


@pytest.mark.parametrize(
    "host",
    [
        "",
        ".",
        "a..b",
        "a.",
        "-a.example",
        "a-.example",
        "999.1.1.1",
        "1.2.3",
        "7",
        "a;b",
        "a b",
        "a.example\n",
        "x" * 64,
        ".".join(["x" * 63] * 4),
        "::1",
        "$(id)",
    ],
)
def test_what_is_no_host(tmp_path, host):
    assert not kit.is_host(host)
    with pytest.raises(InputError, match="neither a host name"):
        kit.write_kit(tmp_path / "kit", host, 8443, 2)
    assert not (tmp_path / "kit").exists()


@pytest.mark.parametrize("listen", ["a; touch pwned", "", "$(id)", "eth0", "::1%a; touch pwned"])
def test_what_is_no_address_gets_into_no_script(tmp_path, listen):
    with pytest.raises(InputError, match="is not an IP address"):
        kit.write_kit(tmp_path / "kit", "a.example", 8443, 2, listen=listen)
    assert not (tmp_path / "kit").exists()


@pytest.mark.parametrize(
    ("name", "value"),
    [("clients", "2"), ("port", 8443.0), ("auditor", 1), ("address", None), ("machine", [])],
)
def test_a_manifest_of_other_types_is_refused(written, name, value):
    path = written / "deploy.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {name: value}))
    with pytest.raises(InputError, match=f"{name} is .* not of type"):
        kit.read_kit(written)


@pytest.mark.parametrize(
    ("content", "complaint"),
    [("{", "cannot read"), ("{}", "cannot read"), (None, "is not a deploy")],
)
def test_what_is_no_kit_is_refused(tmp_path, content, complaint):
    if content is not None:
        (tmp_path / "deploy.json").write_text(content)
    with pytest.raises(InputError, match=complaint):
        kit.read_kit(tmp_path)


def test_a_machine_that_is_not_there_is_refused(written):
    with pytest.raises(InputError, match="no machine 'client-2'"):
        kit.folder(written, "client-2")
    with pytest.raises(InputError, match="is the folder of 'server'"):
        kit.folder(written / "server", "client-0")


def test_units_restart_always_within_limits_when_the_time_is_set(written):
    units = sorted(written.rglob("*.service"))
    names = ["auditor", "client-0", "client-1", "proxy", "superlink"]
    assert [unit.stem for unit in units] == [f"fedsim-{name}" for name in names]
    for unit in units:
        lines = unit.read_text().splitlines()
        wanted = {"Restart=always", "User=fedsim", "UMask=0077", "ProtectProc=invisible"}
        assert wanted < set(lines)
        assert any(line.startswith("MemoryMax=") for line in lines)
        assert any(line.startswith("After=") and "time-sync.target" in line for line in lines)


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="systemd-analyze is not installed")
def test_systemd_takes_the_units(written):
    units = sorted(written.rglob("*.service"))
    command = ["systemd-analyze", "verify", "--man=no", *units]
    answer = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert (answer.returncode, answer.stderr) == (0, "")


def test_installing_needs_the_very_program_and_starts_the_units(written, tmp_path):
    """The commands that change a machine are in the place of others that write down their names."""
    place, units, log = written / "clients" / "client-1", tmp_path / "units", tmp_path / "log"
    (bin := tmp_path / "bin").mkdir()
    units.mkdir()
    for name in ("useradd", "chown", "systemctl", "python3", "id"):
        (bin / name).write_text(f'#!/bin/sh\necho {name} "$*" >>{log}\n[ {name} != id ]\n')
        (bin / name).chmod(0o700)
    (place / "data" / "records.csv").touch()
    (place / "venv" / "bin").mkdir(parents=True)
    (place / "venv" / "bin" / "pip").write_text(f'#!/bin/sh\necho pip "$*" >>{log}\n')
    (place / "venv" / "bin" / "pip").chmod(0o700)
    environment = {"PATH": f"{bin}:/usr/bin:/bin", "UNITS": str(units)}

    def install(*program):
        command = ["sh", place / "install.sh", *program]
        return subprocess.run(
            command, env=environment, capture_output=True, text=True, check=False, timeout=30
        )

    refused = install()
    assert (refused.returncode, log.exists()) == (2, False)
    assert "usage: install.sh WHEEL SHA256" in refused.stderr
    (tmp_path / "fedsim.whl").write_bytes(b"program")
    wheel, known = os.path.relpath(tmp_path / "fedsim.whl"), hashlib.sha256(b"program").hexdigest()
    refused = install(wheel, hashlib.sha256(b"another").hexdigest())
    assert (refused.returncode, log.exists()) == (2, False)
    assert f"is {known}; give the SHA-256 that you received" in refused.stderr
    assert install(wheel, known).returncode == 0
    done = log.read_text()
    for command in (
        "useradd --system",
        "venv venv",
        f"{tmp_path}/fedsim.whl flwr==",
        "chown -h fedsim: ",
    ):
        assert command in done
    assert "./node.key" in done
    assert "./data" in done
    assert "records.csv" not in done
    assert done.endswith("enable fedsim-client-1\nsystemctl restart fedsim-client-1\n")
    unit = (units / "fedsim-client-1.service").read_text()
    assert f"ExecStart=/bin/sh {place}/start.sh supernode\n" in unit
    assert f"ReadWritePaths={place}\n" in unit
    assert unit == (place / "fedsim-client-1.service").read_text()
    assert kit.settings(place)["BIN"] == f"{place}/venv/bin"


@pytest.mark.parametrize(
    ("ending", "status", "said"),
    [("sleep 60", 0, "supernode started"), ("exit 0", 1, "has ended (logs/supernode.log)")],
)
def test_starting_waits_until_the_node_is_connected(tmp_path, ending, status, said):
    kit.write_kit(tmp_path / "kit", "127.0.0.1", 8443, 2)
    folder = tmp_path / "kit" / "clients" / "client-0"
    settings = (folder / "settings.env").read_text()
    (folder / "settings.env").write_text(settings.replace("BIN=", f"BIN={tmp_path}"))
    (folder / "logs").mkdir()
    (folder / "logs" / "supernode.log").write_text("SuperNode ID: of the last time\n")
    connected = "echo SuperNode ID: 7; " if status == 0 else ""
    (tmp_path / "fedsim").write_text(f"#!/bin/sh\nsleep 0.4; {connected}{ending} # {folder}/\n")
    (tmp_path / "fedsim").chmod(0o700)
    command = ["sh", folder / "start.sh"]
    started = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    try:
        assert started.returncode == status
        assert said in started.stdout + started.stderr
        log = (folder / "logs" / "supernode.log").read_text()
        assert ("SuperNode ID: 7" in log) == (status == 0)
    finally:
        subprocess.run(["sh", folder / "stop.sh"], check=True, capture_output=True, timeout=60)


def test_stopping_ends_nothing_that_is_not_of_the_folder(tmp_path):
    kit.write_kit(tmp_path / "kit", "127.0.0.1", 8443, 2)
    folder = tmp_path / "kit" / "clients" / "client-0"
    stranger = subprocess.Popen(["sleep", "60"])
    try:
        (folder / "supernode.pid").write_text(f"{stranger.pid}\n")
        stopped = subprocess.run(
            ["sh", folder / "stop.sh"], capture_output=True, text=True, check=True, timeout=30
        )
        assert "was not running" in stopped.stdout
        assert stranger.poll() is None
        assert not (folder / "supernode.pid").exists()
    finally:
        stranger.kill()
        stranger.wait()


def test_stopping_ends_a_process_of_the_app_that_hangs_and_no_others(tmp_path):
    kit.write_kit(tmp_path / "kit", "127.0.0.1", 8443, 2)
    mine, other = (tmp_path / "kit" / "clients" / f"client-{client}" for client in (0, 1))
    hanging = tmp_path / "hanging"
    hanging.write_text("trap '' TERM\necho $$\nwhile :; do sleep 1; done\n")
    started = []
    try:
        for folder in (mine, other):
            (folder / "work").mkdir(exist_ok=True)
            process = subprocess.Popen(
                # A message's process is forked, and has the arguments of its parent.
                ["sh", hanging, "fedsim", "deploy", "supernode"],
                cwd=folder / "work",
                stdout=subprocess.PIPE,
                text=True,
            )
            assert process.stdout is not None
            process.stdout.readline()  # from now on it hangs
            started.append(process)
        (tmp_path / "link").symlink_to(mine)
        subprocess.run(["sh", tmp_path / "link" / "stop.sh"], check=True, timeout=30)
        assert started[0].wait(timeout=30) == -signal.SIGKILL
        assert started[1].poll() is None
    finally:
        for process in started:
            process.kill()
            process.communicate()
