"""A deployment over TLS, with authenticated nodes, gives the bits of a run in process."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import httpx
import numpy as np
import pytest

from adversaries.errors import InputError
from fedsim.configuration.files import dump
from fedsim.deployment import certificates, kit, run
from fedsim.deployment import run as deployment
from fedsim.federation.client import client_ledger
from fedsim.federation.runs.run_directory import RunDirectory
from fedsim.federation.runtimes.flower_command import FlowerError
from fedsim.federation.runtimes.flower_services import (
    AcquireTaskRequest,
    RuntimeHttpClient,
    RuntimeVersionHttpInterceptor,
)
from fedsim.federation.transcripts import reader

# Flower's processes wait for each other more than they compute: a few files beside each other.
pytestmark = pytest.mark.flower

BIN = Path(sys.executable).parent
CLIENTS = 2
AGREED = "adversary,central,challenge,experiment"
"""What an experiment with noise from the seed asks of clients."""


def _free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _script(place, name):
    subprocess.run(["sh", str(place / name)], check=True, capture_output=True, timeout=180)


def _deploy(*arguments):
    command = [str(BIN / "fedsim"), "deploy", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=900)


@pytest.fixture(scope="module")
def server_up(tmp_path_factory):
    """A kit whose server runs and has registered its keys; its nodes are as a test left them."""
    directory = tmp_path_factory.mktemp("deployed") / "kit"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", f"{BIN}{os.pathsep}{os.environ['PATH']}")
        yield from _up(directory)


def _up(directory):
    kit.write_kit(
        directory,
        "127.0.0.1",
        _free_port(),
        CLIENTS,
        superlink_port=_free_port(),
        listen="127.0.0.1",
        auditor=True,
    )
    for index, machine in enumerate(kit.read_kit(directory).nodes):
        settings = kit.folder(directory, machine) / "settings.env"
        own = f"NODE_PORT={9094 + index}"
        settings.write_text(settings.read_text().replace(own, f"NODE_PORT={_free_port()}"))
    _script(directory / "server", "start.sh")
    try:
        deadline = time.monotonic() + 120
        while True:
            try:
                deployment.register(directory / "server")
                break
            except FlowerError:
                assert time.monotonic() < deadline, (
                    directory / "server" / "logs" / "superlink.log"
                ).read_text()
                time.sleep(1)
        yield directory
    finally:
        for machine in [*kit.read_kit(directory).nodes, "server"]:
            _script(kit.folder(directory, machine), "stop.sh")


def _wait_until_online(directory, machines):
    """A run waits for its clients, but never for an auditor."""
    deadline = time.monotonic() + 120
    while list(deployment.statuses(directory / "server").values()).count("online") < machines:
        assert time.monotonic() < deadline
        time.sleep(1)


def _restart_clients(directory, consent=AGREED):
    for client in range(CLIENTS):
        place = kit.folder(directory, f"client-{client}")
        node = place / "node.toml"
        terms = node.read_text().replace('consent = ""', f'consent = "{consent}"')
        node.write_text(terms.replace("max-trials = 1\n", "max-trials = 8\n"))
        _script(place, "stop.sh")
        _script(place, "start.sh")


def _start_auditor(place):
    # On one busy machine it would otherwise come after the clients, and miss what is tested.
    settings = place / "settings.env"
    settings.write_text(settings.read_text().replace("NICE=19", "NICE=0"))
    _script(place, "start.sh")


@contextmanager
def _background(*command):
    arguments = [str(BIN / "fedsim"), *map(str, command)]
    pipe = subprocess.PIPE
    with subprocess.Popen(arguments, stdout=pipe, stderr=pipe, text=True) as process:
        try:
            yield process
        finally:
            if process.poll() is None:
                process.kill()


def _wait_for(happened, process):
    deadline = time.monotonic() + 900
    while not happened():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.2)


def _auditor_events(directory):
    return [event["joined"] for event, _ in directory.events() if "auditor" in event]


class Superlink:
    """As much of a SuperLink as `flwr supernode` sees: a key is taken once, for good."""

    def __init__(self):
        self.nodes: dict[str, str] = {}
        self.keys: set[str] = set()
        self.fails_at: str | None = None
        self.runs: list[dict[str, str]] = []

    def flwr(self, _, command, *arguments):
        """Answer as `flower_command.flwr` does."""
        if command == "list":
            return {"runs": self.runs}
        assert command == "supernode"
        action, given, *_ = arguments
        if action == self.fails_at:
            raise FlowerError("Connection to the SuperLink is unavailable.")
        if action == "list":
            nodes = [{"node-id": node, "status": status} for node, status in self.nodes.items()]
            return {"nodes": nodes}
        if action == "unregister":
            assert self.nodes[given] != "unregistered"
            self.nodes[given] = "unregistered"
            return {"node-id": given}
        if (content := Path(given).read_text()) in self.keys:
            raise FlowerError("flwr supernode: [code: 23] Public key already in use.")
        self.keys.add(content)
        node = str(100 + len(self.nodes))
        self.nodes[node] = "registered"
        return {"node-id": node}


@pytest.fixture
def superlink(monkeypatch):
    fake = Superlink()
    monkeypatch.setattr(deployment, "flwr", fake.flwr)
    return fake


@pytest.fixture
def server(tmp_path):
    kit.write_kit(tmp_path / "kit", "127.0.0.1", 8443, CLIENTS)
    return tmp_path / "kit" / "server"


def _replace_key(server, machine):
    pair = certificates.node_key()
    (server / "keys" / f"{machine}.pub").write_bytes(pair.public + b"\n")
    return pair


def test_a_key_is_registered_once(server, superlink):
    assert deployment.register(server) == {"client-0": "100", "client-1": "101"}
    assert deployment.register(server) == {"client-0": "100", "client-1": "101"}
    assert list(superlink.nodes.values()) == ["registered"] * 2


def test_a_replaced_key_is_registered_and_the_other_refused(server, superlink):
    deployment.register(server)
    _replace_key(server, "client-1")
    assert deployment.register(server) == {"client-0": "100", "client-1": "102"}
    assert superlink.nodes == {"100": "registered", "101": "unregistered", "102": "registered"}


def test_a_key_is_not_replaced_while_a_run_needs_its_node(server, superlink):
    superlink.runs = [{"run-id": "5", "status": "running"}]
    nodes = deployment.register(server)
    assert deployment.register(server) == nodes  # nothing changes, so nothing is refused
    _replace_key(server, "client-0")
    with pytest.raises(InputError, match="stop it with fedsim deploy stop, and register again"):
        deployment.register(server)
    assert superlink.nodes[nodes["client-0"]] == "registered"
    superlink.runs = [{"run-id": "5", "status": "finished:stopped"}]
    assert deployment.register(server)["client-0"] != nodes["client-0"]


def test_a_node_that_could_not_be_unregistered_is_so_the_next_time(server, superlink):
    deployment.register(server)
    superlink.fails_at = "unregister"
    for _ in range(2):  # what is to be unregistered adds up
        _replace_key(server, "client-0")
        with pytest.raises(FlowerError, match="unavailable"):
            deployment.register(server)
    assert list(superlink.nodes.values()) == ["registered"] * 4
    superlink.fails_at = None
    assert deployment.register(server) == {"client-0": "103", "client-1": "101"}
    assert [n for n, status in superlink.nodes.items() if status == "registered"] == ["101", "103"]


def test_a_strangers_key_is_refused_by_name(server, superlink):
    _replace_key(server, "mallory")
    with pytest.raises(InputError, match=r"keys/mallory\.pub belongs to no machine .*; delete it"):
        deployment.register(server)
    assert superlink.nodes == {}


def test_a_node_that_somebody_else_registered_is_unregistered(server, superlink):
    superlink.nodes["7"] = "online"
    deployment.register(server)
    assert superlink.nodes["7"] == "unregistered"


def test_an_unregistered_node_needs_a_new_key_and_has_it_registered(server, superlink):
    deployment.register(server)
    superlink.nodes["101"] = "unregistered"
    with pytest.raises(FlowerError, match=r"client-1: .* accepts no key twice"):
        deployment.register(server)
    _replace_key(server, "client-1")
    assert deployment.register(server) == {"client-0": "100", "client-1": "102"}


def test_a_superlink_that_begins_anew_is_told_every_key(server, superlink):
    deployment.register(server)
    superlink.nodes, superlink.keys = {"7": "online"}, set()
    assert deployment.register(server) == {"client-0": "101", "client-1": "102"}


def test_a_key_that_cannot_be_read_changes_nothing(server, superlink):
    (server / "keys" / "client-1.pub").write_bytes(b"no key")
    with pytest.raises(InputError, match="cannot read"):
        deployment.register(server)
    assert superlink.nodes == {}


def _wrong(place):
    found = json.loads(_deploy("check", place, "--json").stdout)["findings"]
    return {one["what"]: one["message"] for one in found if one["state"] == "wrong"}


def _gives_a_task(port):
    """Return whether a SuperNode gives a task to a program without its secret."""
    version = RuntimeVersionHttpInterceptor(component_name="SuperExec")
    url = f"https://127.0.0.1:{port}"
    client = RuntimeHttpClient(url, interceptors=[version], verify=False, timeout=5)
    try:
        client.AcquireTask(AcquireTaskRequest(supported_task_types=[]))
    except httpx.HTTPStatusError:
        return False
    finally:
        client.close()
    return True


@pytest.mark.slow
def test_a_node_that_the_server_refuses_says_why_and_is_no_open_door(server_up):
    place = kit.folder(server_up, "client-0")
    own = (place / "node.key").read_bytes(), (place / "node.key.pub").read_bytes()
    stranger = certificates.node_key()
    (place / "node.key").write_bytes(stranger.private)
    (place / "node.key.pub").write_bytes(stranger.public)
    started = subprocess.run(
        ["sh", str(place / "start.sh")], capture_output=True, text=True, check=False, timeout=180
    )
    assert (started.returncode, "tries again every few seconds" in started.stderr) == (1, True)
    assert "lacks the key" in _wrong(place)["node.toml"]
    log = (place / "logs" / "supernode.log").read_text()
    assert "[code: 2004] Failed to activate SuperNode." in log

    (place / "node.key").write_bytes(own[0])
    (place / "node.key.pub").write_bytes(own[1])
    _wait_until_online(server_up, 1)  # by itself
    node = run.registered(server_up / "server")["client-0"].node
    assert deployment.statuses(server_up / "server")[node] == "online"
    assert not _wrong(place)
    assert not _gives_a_task(kit.port(place, "NODE_PORT"))
    _script(place, "stop.sh")


@pytest.mark.slow
@pytest.mark.long
def test_a_node_with_another_registered_key_gets_another_node(server_up):
    server, place = server_up / "server", kit.folder(server_up, "client-1")
    before = deployment.register(server)
    for name in ("node.key", "node.key.pub"):
        (place / name).unlink()
    command = ["ssh-keygen", "-q", "-t", "ecdsa", "-b", "384", "-N", "", "-C", "", "-f", "node.key"]
    subprocess.run(command, cwd=place, check=True)
    public = (place / "node.key.pub").read_bytes()
    (server / "keys" / "client-1.pub").write_bytes(public)
    assert "keys/client-1.pub is not the registered key" in "".join(
        _deploy("check", server, "--json").stdout
    )
    after = deployment.register(server)
    assert {machine for machine in after if after[machine] != before[machine]} == {"client-1"}
    assert deployment.statuses(server)[before["client-1"]] == "unregistered"
    for client in range(2):
        (kit.folder(server_up, f"client-{client}") / "peers" / "client-1.pub").write_bytes(public)
    _script(place, "start.sh")
    _wait_until_online(server_up, 1)
    assert deployment.statuses(server)[after["client-1"]] == "online"
    assert deployment.register(server) == after
    assert not _wrong(place)
    found = json.loads(_deploy("status", server, "--json").stdout)["nodes"]
    assert [node["machine"] for node in found if node["state"] == "connected"] == ["client-1"]
    _script(place, "stop.sh")


@pytest.mark.slow
def test_clients_who_did_not_consent_end_the_run_by_saying_so(server_up, small, tmp_path):
    (tmp_path / "small.toml").write_text(dump(small({"federation.clients": CLIENTS})))
    _restart_clients(server_up, consent="")
    out = tmp_path / "refused"
    arguments = ["run", server_up, tmp_path / "small.toml", "--experiment", "--quiet"]
    refused = _deploy(*arguments, "--out", out)
    assert refused.returncode == 1
    assert "did not consent to 'central'" in refused.stderr
    assert refused.stderr.strip().splitlines()[-1].startswith("fedsim: ")
    assert not (out / "report.json").exists()


@pytest.mark.slow
def test_a_deployment_gives_the_bits_of_a_run_in_process_and_an_auditor_its_beliefs(
    server_up, small, run, tmp_path
):
    config = small({"federation.clients": CLIENTS, "training.rounds": 2})
    (tmp_path / "small.toml").write_text(dump(config))
    _restart_clients(server_up)
    auditor = kit.folder(server_up, "auditor")
    _start_auditor(auditor)
    _wait_until_online(server_up, CLIENTS + 1)
    out = tmp_path / "deployed"
    heard = ("--follow", "--json", "--out", tmp_path / "audit")
    with _background("audit", auditor / "transcripts", *heard) as watching:
        result = _deploy("run", server_up, tmp_path / "small.toml", "--experiment", "--out", out)
        assert result.returncode == 0, result.stderr
        printed, _ = watching.communicate(timeout=300)
    report = json.loads(printed)
    assert watching.returncode == 0
    lines = [*map(json.loads, (tmp_path / "audit" / "beliefs.jsonl").read_text().splitlines())]
    assert [line["round"] for line in lines] == [1, 2]
    heard = np.array([line["log_odds"] for line in lines]).T
    believed = RunDirectory.open(out).read_arrays("transcript.npz")["log_odds"]
    np.testing.assert_allclose(heard, believed, rtol=0, atol=1e-6)
    assert (report["details"]["rounds"], report["details"]["missed"]) == (2, 0)
    deployed, expected = RunDirectory.open(out).read_arrays("transcript.npz"), run(config)
    for name in ("worlds", "log_odds", "sensitivities", "final_models", "epsilon_spent"):
        np.testing.assert_array_equal(deployed[name], expected[name], err_msg=name)
    report = RunDirectory.open(out).read_json("report.json")
    assert report["details"]["runtime"] == "Flower deployment"
    checked = _deploy("check", server_up)
    assert checked.returncode == 0, checked.stdout


@pytest.mark.slow
@pytest.mark.long
def test_an_auditor_may_join_late_and_be_killed(server_up, small, tmp_path):
    config = small({"federation.clients": CLIENTS, "training.rounds": 8})
    (tmp_path / "small.toml").write_text(dump(config))
    auditor, out = kit.folder(server_up, "auditor"), tmp_path / "deployed"
    _script(auditor, "stop.sh")
    if list(deployment.statuses(server_up / "server").values()).count("online") < CLIENTS:
        _restart_clients(server_up)
    recordings = auditor / "transcripts"
    earlier = set(recordings.glob("*.fedt"))
    arguments = ("run", server_up, tmp_path / "small.toml", "--experiment", "--quiet")
    with _background("deploy", *arguments, "--out", out) as running:
        directory = RunDirectory(out)
        _wait_for(lambda: any(event.get("round") == 1 for event, _ in directory.events()), running)
        _start_auditor(auditor)

        def has_seen_two_messages():
            recorded = set(recordings.glob("*.fedt")) - earlier
            return any(len(reader.read_transcript(one).rounds) >= 2 for one in recorded)

        _wait_for(has_seen_two_messages, running)
        os.kill(int((auditor / "supernode.pid").read_text()), signal.SIGKILL)
        _, complaint = running.communicate(timeout=900)
        assert running.returncode == 0, complaint
    assert _auditor_events(directory) == [True, False]
    (recording,) = set(recordings.glob("*.fedt")) - earlier
    with recording.open("ab") as file:
        file.write(b"ROND\0\0")  # the beginning of a record that was never finished
    audited = [str(BIN / "fedsim"), "audit", str(recording), "--json"]
    result = subprocess.run(audited, capture_output=True, text=True, check=False, timeout=120)
    assert result.returncode == 0, result.stderr
    report = json.loads(result.stdout)
    report = report["details"]
    first = report["belief"]["rounds"][0]
    assert first > 1
    assert report["missed"] == first - 1
    ratios = np.diff(directory.read_arrays("transcript.npz")["log_odds"], axis=1)
    seen = ratios[:, first - 2 : report["rounds"] - 1].sum(axis=1)
    np.testing.assert_allclose(report["belief"]["log_odds"], seen, rtol=0, atol=1e-6)


@pytest.mark.slow
def test_clients_sum_securely_only_with_keys_that_their_node_keys_sign(server_up, small, tmp_path):
    secure = {"federation.trust": "distributed", "federation.secure-aggregation": "secagg+"}
    values = {"federation.clients": CLIENTS, "federation.vantage": "server", **secure}
    (tmp_path / "small.toml").write_text(dump(small(values)))
    _restart_clients(server_up, "experiment")
    known = kit.folder(server_up, "client-0") / "peers" / "client-1.pub"
    own, out = known.read_bytes(), tmp_path / "trained"
    command = ("train", server_up, tmp_path / "small.toml", "--quiet")
    noise = ("privacy.noise-source=system", "--out")
    known.write_bytes(certificates.node_key().public)
    refused = _deploy(*command, *noise, tmp_path / "refused")
    assert "exchange keys of client 1 are not signed by its node key" in refused.stderr
    known.write_bytes(own)
    trained = _deploy(*command, *noise, out)
    assert trained.returncode == 0, trained.stderr


def _clients_rounds(directory, name):
    """Return the rounds that each client was charged for in trainings of this name."""
    states = (kit.folder(directory, f"client-{client}") / "state" for client in range(CLIENTS))
    return [
        [each.round for each in client_ledger.read_answers(state) if each.name == name]
        for state in states
    ]


@pytest.mark.slow
def test_a_training_is_followed_and_stopped_and_another_is_refused_before_it_begins(
    server_up, small, tmp_path
):
    rounds = 14  # as many as the other command needs time for
    values = {"federation.clients": CLIENTS, "data.records": 400, "federation.trust": "local"}
    values |= {"federation.vantage": "server", "training.rounds": rounds}
    values |= {"privacy.rho-beta": 0.0, "privacy.epsilon": 2.0, "privacy.delta": 1e-5}
    (tmp_path / "small.toml").write_text(dump(small(values)))
    for client in range(CLIENTS):
        place = kit.folder(server_up, f"client-{client}")
        _script(place, "stop.sh")
        # Epsilon grows the slower the more is spent: begin with nothing, so that one run fits.
        (place / "state" / client_ledger.FILE).unlink(missing_ok=True)
        told = (place / "node.toml").read_text()
        told = re.sub("^epsilon-limit = .*$", "epsilon-limit = 2.5", told, flags=re.MULTILINE)
        told = re.sub('^consent = ".*"$', 'consent = ""', told, flags=re.MULTILINE)
        (place / "node.toml").write_text(told)
        _script(place, "start.sh")
    out, noise = tmp_path / "first", ["privacy.noise-source=system"]
    command = ["train", server_up, tmp_path / "small.toml", *noise]
    first = [*command, "run.name=first", "--out", out]
    directory = RunDirectory(out)

    def done(round):
        return any(event.get("round") == round for event, _ in directory.events())

    with _background("deploy", *first) as running:
        _wait_for(lambda: done(0), running)
        running.kill()  # as a terminal that was closed
        running.wait()
    with _background("deploy", *first) as following:
        time.sleep(15)
        stopped = _deploy("stop", server_up)
        assert stopped.returncode == 0, stopped.stderr
        _, id = run.last(server_up / "server") or (None, "")
        assert stopped.stdout == f"stopped: run {id}\n"
        _, said = following.communicate(timeout=120)
        assert f"following run {id}, which has not ended; Ctrl-C stops it" in said
        assert "the run was stopped; the command that began it continues it" in said
    assert "no run is running" in _deploy("stop", server_up).stdout
    finished = _deploy(*first)
    assert finished.returncode == 0, finished.stderr
    assert _clients_rounds(server_up, "first") == [[*range(1, rounds + 1)]] * CLIENTS
    refused = _deploy(*command, "run.name=second", "--out", tmp_path / "second")
    assert refused.returncode == 1
    (line,) = (line for line in refused.stderr.splitlines() if line.startswith("fedsim:"))
    assert "the run did not begin: client" in line
    assert "failed: 'second', with all rounds" in line
    assert _clients_rounds(server_up, "second") == [[]] * CLIENTS
