"""`fedsim deploy` refuses, in one line, what it should not or cannot do."""

import json
import os
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from fedsim.configuration.files import dump
from fedsim.deployment import kit, run
from fedsim.deployment import run as deployment
from fedsim.deployment.certificates import node_key
from fedsim.federation.runs.run_directory import RunDirectory
from fedsim.federation.runtimes.flower_command import FlowerError, Submission
from fedsim.federation.server.nodes import registered_nodes

CAMPAIGN = {"privacy.noise-source": "system"}
SYSTEM = CAMPAIGN | {"trials.count": 1}
DISTRIBUTED = {"federation.trust": "distributed"}


def test_init_writes_a_kit_for_the_given_address(fedsim, tmp_path):
    directory = tmp_path / "kit"
    status, out, _ = fedsim(
        "deploy", "init", directory, "--clients", 2, "--server-address", "a.example:9443"
    )
    assert status == 0
    assert "README.md" in out
    written = kit.read_kit(directory)
    assert (written.address, written.port, written.machines) == (
        "a.example",
        9443,
        ["server", "client-0", "client-1"],
    )


def test_a_certificate_is_renewed_where_the_kit_is(fedsim, tmp_path):
    command = ["deploy", "init", tmp_path / "kit", "--server-address", "a.example"]
    assert fedsim(*command, "--days", 5)[0] == 0
    status, out, _ = fedsim("deploy", "renew", tmp_path / "kit", "--days", 9)
    end = datetime.now(UTC) + timedelta(days=9)
    assert (status, out.splitlines()[0].endswith(f"server.crt: valid until {end:%F}")) == (0, True)
    status, _, err = fedsim("deploy", "renew", tmp_path / "kit" / "server")
    assert (status, len(err.splitlines())) == (2, 1)


def test_check_says_by_its_status_and_in_json_what_is_wrong(fedsim, tmp_path, monkeypatch):
    commands = Path(sys.executable).parent
    monkeypatch.setenv("PATH", f"{commands}{os.pathsep}{os.environ['PATH']}")
    kit.write_kit(tmp_path / "kit", "127.0.0.1", 1, 2, superlink_port=2)
    status, out, _ = fedsim("deploy", "check", tmp_path / "kit", "--machine", "server", "--json")
    answer = json.loads(out)
    assert status == 1
    assert answer["wrong"] == 3
    wrong = [one["what"] for one in answer["findings"] if one["state"] == "wrong"]
    assert wrong == ["connection", "connection", "nodes"]
    status, out, _ = fedsim("deploy", "check", tmp_path / "kit", "--machine", "server")
    assert status == 1
    assert "start.sh" in "".join(out.replace("│", "").split())


@pytest.mark.parametrize(
    ("changes", "options", "complaint"),
    [
        ({"federation.clients": 3}, [], "but 2 clients are deployed"),
        ({}, [], "every node knows the seed"),
        (
            CAMPAIGN,
            [],
            "the costs of so many trainings on the same people add up",
        ),
        (SYSTEM | DISTRIBUTED, [], "add federation.secure-aggregation=secagg+"),
        (SYSTEM | DISTRIBUTED, ["--experiment"], "with only a share of the noise"),
        # These are let through, to the next obstacle.
        (DISTRIBUTED, ["--experiment"], "is not registered"),
        (CAMPAIGN, ["--experiment"], "is not registered"),
        (SYSTEM, [], "is not registered"),
        (
            SYSTEM | DISTRIBUTED | {"federation.secure-aggregation": "secagg+"},
            [],
            "is not registered",
        ),
    ],
)
def test_a_run_that_should_not_be_is_refused_before_anything_is_made(
    fedsim, small, tmp_path, changes, options, complaint
):
    kit.write_kit(tmp_path / "kit", "127.0.0.1", 1, 2, superlink_port=2)
    (tmp_path / "small.toml").write_text(dump(small({"federation.clients": 2} | changes)))
    command = ["deploy", "run", tmp_path / "kit", tmp_path / "small.toml"]
    status, _, err = fedsim(*command, "--out", tmp_path / "run", *options)
    assert status == 2
    assert complaint in err
    assert len(err.splitlines()) == 1
    assert not (tmp_path / "run").exists()


def _registered(directory):
    """Write down nodes for the keys that the kit has."""
    server = directory / "server"
    nodes = enumerate(run.key_files(server).items(), start=70)
    run.write_registered(
        server,
        {
            machine: run.Registration(str(i), run.fingerprint_of(path))
            for i, (machine, path) in nodes
        },
    )


def test_a_run_is_told_which_node_each_client_is(fedsim, small, tmp_path, monkeypatch):
    kit.write_kit(tmp_path / "kit", "127.0.0.1", 1, 2, superlink_port=2)
    _registered(tmp_path / "kit")

    def away(*_):
        raise FlowerError("away")

    monkeypatch.setattr(deployment, "runs", lambda _: {})
    monkeypatch.setattr(deployment, "start", away)
    (tmp_path / "small.toml").write_text(dump(small({"federation.clients": 2})))
    command = ["deploy", "run", tmp_path / "kit", tmp_path / "small.toml", "--experiment"]
    assert fedsim(*command, "--out", tmp_path / "run")[0] == 1
    assert registered_nodes(RunDirectory.open(tmp_path / "run")) == {0: 70, 1: 71}


def test_a_submitted_run_that_has_not_begun_is_followed(fedsim, small, tmp_path, monkeypatch):
    """Its command was killed. A second run of the directory would end the first that begins."""
    kit.write_kit(tmp_path / "kit", "127.0.0.1", 1, 2, superlink_port=2)
    _registered(tmp_path / "kit")
    last = {"run-id": "5", "directory": str(tmp_path / "run")}
    kit.write_file(tmp_path / "kit" / "server" / run.LAST, json.dumps(last))
    waited = []
    monkeypatch.setattr(deployment, "runs", lambda _: {"4": "running", "5": "pending"})
    monkeypatch.setattr(Submission, "wait", lambda run, *_: waited.append(run.run_id))
    (tmp_path / "small.toml").write_text(dump(small({"federation.clients": 2})))
    command = ["deploy", "run", tmp_path / "kit", tmp_path / "small.toml", "--experiment"]
    directory = RunDirectory(tmp_path / "run")
    directory.path.mkdir()
    directory.write_text("config.toml", dump(small({"federation.clients": 2})))
    _, _, err = fedsim(*command, "--out", directory.path)
    assert waited == ["5"]
    assert "following run 5, which has not ended; Ctrl-C stops it" in err


def test_a_training_leaves_out_who_may_be_missing(fedsim, small, tmp_path, monkeypatch):
    kit.write_kit(tmp_path / "kit", "127.0.0.1", 1, 4, superlink_port=2)
    _registered(tmp_path / "kit")
    nodes = run.registered(tmp_path / "kit" / "server")
    del nodes["client-3"]
    run.write_registered(tmp_path / "kit" / "server", nodes)
    started = []

    def start(*arguments):
        started.append(arguments)
        raise FlowerError("away")

    flowers = {"5": "finished:failed", "6": "running", "7": "finished:completed"}
    monkeypatch.setattr(deployment, "runs", lambda _: flowers)
    monkeypatch.setattr(deployment, "start", start)
    changes = {"federation.clients": 4, "federation.vantage": "participant"}
    changes |= {"federation.trust": "local", "privacy.rho-beta": 0.0, "privacy.epsilon": 2.0}
    (tmp_path / "small.toml").write_text(dump(small(SYSTEM | changes)))
    command = ["deploy", "train", tmp_path / "kit", tmp_path / "small.toml"]
    command += ["--out", tmp_path / "run"]
    status, _, err = fedsim(*command)
    assert (status, "the key of client-3 is not registered" in err) == (2, True)
    status, _, err = fedsim(*command, "federation.tolerated-dropouts=1")
    assert (status, len(started)) == (1, 1)
    directory = RunDirectory.open(tmp_path / "run")
    assert registered_nodes(directory) == {0: 70, 1: 71, 2: 72}


def test_a_run_with_a_key_that_is_not_the_registered_one_is_refused(fedsim, small, tmp_path):
    kit.write_kit(tmp_path / "kit", "127.0.0.1", 1, 2, superlink_port=2)
    _registered(tmp_path / "kit")
    (tmp_path / "kit" / "server" / "keys" / "client-1.pub").write_bytes(node_key().public)
    (tmp_path / "small.toml").write_text(dump(small({"federation.clients": 2})))
    command = ["deploy", "run", tmp_path / "kit", tmp_path / "small.toml", "--experiment"]
    status, _, err = fedsim(*command, "--out", tmp_path / "run")
    assert (status, "keys/client-1.pub is not the registered key" in err) == (2, True)
    assert not (tmp_path / "run").exists()
