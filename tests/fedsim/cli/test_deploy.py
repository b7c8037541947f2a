"""`fedsim deploy` refuses, in one line, what it should not or cannot do."""

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from fedsim.cli.main import main
from fedsim.config import Config, dump
from fedsim.deployment import kit

Fedsim = Callable[..., tuple[int, str, str]]
SYSTEM = {"privacy.noise-source": "system"}
DISTRIBUTED = {"federation.trust": "distributed"}


@pytest.fixture
def fedsim(capsys: pytest.CaptureFixture[str]) -> Fedsim:
    """Return a function that runs the command line: exit status, output, error output."""

    def call(*arguments: object) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as ending:
            main([str(argument) for argument in arguments])
        out, err = capsys.readouterr()
        return int(ending.value.code or 0), out, err

    return call


def test_init_writes_a_kit_for_the_given_address(fedsim: Fedsim, tmp_path: Path) -> None:
    directory = tmp_path / "kit"
    status, out, _ = fedsim(
        "deploy", "init", directory, "--owners", 2, "--server-address", "a.example:9443"
    )
    assert status == 0
    assert "README.md" in out
    written = kit.read(directory)
    assert (written.address, written.port, written.machines) == (
        "a.example",
        9443,
        ["server", "owner-0", "owner-1"],
    )


@pytest.mark.parametrize("address", ["a.example:0", "a.example:x", ":8443", "a b", "a;b", "::1"])
def test_an_address_that_is_none_is_refused(fedsim: Fedsim, tmp_path: Path, address: str) -> None:
    status, _, err = fedsim("deploy", "init", tmp_path / "kit", "--server-address", address)
    assert status == 2
    assert len(err.splitlines()) == 1
    assert "is not HOST or HOST:PORT" in err
    assert not (tmp_path / "kit").exists()


def test_an_existing_directory_is_refused(fedsim: Fedsim, tmp_path: Path) -> None:
    status, _, err = fedsim("deploy", "init", tmp_path, "--server-address", "a.example")
    assert status == 2
    assert "name a new directory" in err
    assert not list(tmp_path.iterdir())


def test_two_services_on_one_port_are_refused(fedsim: Fedsim, tmp_path: Path) -> None:
    status, _, err = fedsim(
        "deploy", "init", tmp_path / "kit", "--server-address", "a.example:8000"
    )
    assert (status, "--superlink-port" in err) == (2, True)


def test_check_says_by_its_status_and_in_json_what_is_wrong(
    fedsim: Fedsim, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commands = Path(sys.executable).parent
    monkeypatch.setenv("PATH", f"{commands}{os.pathsep}{os.environ['PATH']}")
    kit.write(tmp_path / "kit", "127.0.0.1", 1, 2, superlink_port=2)
    status, out, _ = fedsim("deploy", "check", tmp_path / "kit", "--machine", "server", "--json")
    answer = json.loads(out)
    assert status == 1
    assert answer["wrong"] == 2
    wrong = [one["what"] for one in answer["findings"] if one["state"] == "wrong"]
    assert wrong == ["superlink", "proxy"]
    status, out, _ = fedsim("deploy", "check", tmp_path / "kit", "--machine", "server")
    assert status == 1
    assert "start.sh" in "".join(out.split())


@pytest.mark.parametrize(
    ("changes", "options", "complaint"),
    [
        ({"federation.owners": 3}, [], "but 2 owners are deployed"),
        ({}, [], "every node is told the seed"),
        (SYSTEM | DISTRIBUTED, [], "add --set federation.secure-aggregation=secagg+"),
        (SYSTEM | DISTRIBUTED, ["--experiment"], "under a share of the noise only"),
        # These are let through, to the next obstacle.
        (DISTRIBUTED, ["--experiment"], "is not registered"),
        (
            SYSTEM | DISTRIBUTED | {"federation.secure-aggregation": "secagg+"},
            [],
            "is not registered",
        ),
    ],
)
def test_a_run_that_should_not_be_is_refused_before_anything_is_made(
    fedsim: Fedsim,
    small: Callable[..., Config],
    tmp_path: Path,
    changes: dict,
    options: list[str],
    complaint: str,
) -> None:
    kit.write(tmp_path / "kit", "127.0.0.1", 1, 2, superlink_port=2)
    (tmp_path / "small.toml").write_text(dump(small({"federation.owners": 2} | changes)))
    command = ["deploy", "run", tmp_path / "kit", tmp_path / "small.toml"]
    status, _, err = fedsim(*command, "--out", tmp_path / "run", *options)
    assert status == 2
    assert complaint in err
    assert len(err.splitlines()) == 1
    assert not (tmp_path / "run").exists()
