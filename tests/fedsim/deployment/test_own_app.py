"""A deployed node answers with its own fedsim: code that a server submits stays packed."""

import io
import json
import os
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

import fedsim
from adversaries.errors import InputError
from fedsim import client_app
from fedsim.common import randomness
from fedsim.deployment import own_app

NAME = f"fedsim/{fedsim.DISTRIBUTION}"


def _answered(run: Callable[..., None], monkeypatch: pytest.MonkeyPatch) -> None:
    """Run a function in place of Flower's program, in the process of a message."""
    monkeypatch.setattr(own_app.flower, "run_clientapp", run)
    held = os.open(os.devnull, os.O_RDONLY)
    process = own_app.begin("127.0.0.1:9094", b"certificate", "a-token", held)
    os.close(held)
    process.join(60)
    assert process.exitcode == 0


def test_the_code_that_a_server_submits_is_neither_unpacked_nor_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Flower's program calls these two by name, and nothing else of it touches the app's files.
    called = own_app.flower.run_clientapp.__code__.co_names
    assert own_app.INSTEAD.keys() < set(called)
    monkeypatch.setenv("FLWR_HOME", f"{tmp_path}")
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr("fedsim/client_app.py", "raise SystemExit(7)")

    def run(address: str, token: str, **options: object) -> None:
        program = vars(own_app.flower)
        program["install_from_fab"](packed.getvalue(), skip_prompt=True)
        load = program["get_load_client_app_fn"](default_app_ref="", app_path=None, multi_app=True)
        assert load(NAME, fedsim.__version__, "hash") is client_app.app
        assert (os.getpgid(0), options["insecure"]) == (os.getpid(), False)
        assert options["parent_pid"] == os.getppid()
        (tmp_path / "seen").write_text(f"{address} {token}")

    _answered(run, monkeypatch)
    assert [path.name for path in tmp_path.iterdir()] == ["seen"]
    assert (tmp_path / "seen").read_text() == "127.0.0.1:9094 a-token"


def test_forked_processes_draw_other_noise(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(2):

        def run(*_: object, number: int = number, **__: object) -> None:
            noise = randomness.gaussian_noise(None, range(1), 1, 0, 4)
            (tmp_path / f"{number}.json").write_text(json.dumps(noise.tolist()))

        _answered(run, monkeypatch)
    first, second = (json.loads((tmp_path / f"{number}.json").read_text()) for number in range(2))
    assert first != second


@pytest.mark.parametrize(
    ("name", "version", "said"),
    [
        (NAME, "9.9", rf"this node has fedsim {fedsim.__version__}, but the server has 9\.9;"),
        ("fedsim/echo", fedsim.__version__, "answers only for fedsim-identifiability, .*echo"),
    ],
)
def test_a_node_refuses_another_app_or_version(name: str, version: str, said: str) -> None:
    with pytest.raises(InputError, match=said):
        own_app.own_app(name, version, "hash")
