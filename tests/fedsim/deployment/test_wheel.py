"""The wheel of a kit is the program that wrote it."""

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import fedsim
from fedsim.deployment import example, wheel
from fedsim.errors import InputError

ROOT = Path(__file__).parents[3]


def test_what_is_installed_from_the_wheel_is_this_program(tmp_path: Path) -> None:
    program = wheel.running()
    path = tmp_path / program.name
    path.write_bytes(program.content)
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "--no-deps"]
    command += ["--no-index", "--quiet", "--target", str(tmp_path / "installed"), str(path)]
    subprocess.run(command, check=True)
    for package in ("fedsim", "adversaries"):
        sources = {path.relative_to(ROOT) for path in (ROOT / package).rglob("*.py")}
        installed = tmp_path / "installed"
        assert sources == {p.relative_to(installed) for p in (installed / package).rglob("*.py")}
        assert all((ROOT / path).read_text() == (installed / path).read_text() for path in sources)
    assert (installed / example.PACKED).read_bytes() == example.content()
    script = (tmp_path / "installed" / "bin" / "fedsim").read_text()
    assert "from fedsim.cli.entry import main" in script


def test_the_builder_of_wheels_packs_the_example_as_a_kit_does() -> None:
    build = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]
    packed = build["targets"]["wheel"]["force-include"]
    assert packed == {f"configs/{example.NAME}": example.PACKED}


def test_the_same_program_makes_the_same_wheel() -> None:
    first = wheel.running()
    wheel.running.cache_clear()
    assert wheel.running() == first


def test_another_version_than_the_one_installed_makes_none(monkeypatch: pytest.MonkeyPatch) -> None:
    wheel.running.cache_clear()
    monkeypatch.setattr(fedsim, "__version__", "9.9")
    with pytest.raises(InputError, match=r"fedsim 9.9 runs, but .* is installed"):
        wheel.running()


def test_what_was_not_installed_makes_none(monkeypatch: pytest.MonkeyPatch) -> None:
    wheel.running.cache_clear()
    monkeypatch.setattr(wheel, "DISTRIBUTION", "not-installed")
    with pytest.raises(InputError, match="runs without having been installed"):
        wheel.running()
