"""The wheel of a kit is the program that wrote it."""

import io
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

import fedsim
from adversaries.errors import InputError
from fedsim.common import configurations
from fedsim.deployment import wheel

ROOT = Path(__file__).parents[3]


@pytest.mark.source
def test_what_is_installed_from_the_wheel_is_this_program(tmp_path: Path) -> None:
    program = wheel.running()
    path = tmp_path / program.name
    path.write_bytes(program.content)
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "--no-deps"]
    command += ["--no-index", "--quiet", "--target", str(tmp_path / "installed"), str(path)]
    subprocess.run(command, check=True)
    installed = tmp_path / "installed"
    for package in ("fedsim", "adversaries"):
        sources = {path.relative_to(ROOT) for path in (ROOT / package).rglob("*.py")}
        assert sources == {p.relative_to(installed) for p in (installed / package).rglob("*.py")}
        assert all((ROOT / path).read_text() == (installed / path).read_text() for path in sources)
        assert (installed / package / "py.typed").exists()
    carried = {path.name: path.read_text() for path in (ROOT / "configs").glob("*.toml")}
    there = (installed / configurations.PACKED).glob("*")
    assert carried == {path.name: path.read_text() for path in there}
    script = (installed / "bin" / "fedsim").read_text()
    assert "from fedsim.cli.entry import main" in script


def test_an_installed_program_knows_its_version_whatever_lies_beside_it(tmp_path: Path) -> None:
    program = wheel.running()
    zipfile.ZipFile(io.BytesIO(program.content)).extractall(tmp_path)
    (tmp_path / "pyproject.toml").write_text('[project]\nname = "another"\nversion = "9.9"\n')
    asked = [sys.executable, "-c", "import fedsim; print(fedsim.__file__, fedsim.__version__)"]
    told = subprocess.check_output(asked, cwd=tmp_path, env={}, text=True)
    assert told.split() == [str(tmp_path / "fedsim" / "__init__.py"), fedsim.__version__]


def test_the_builder_of_wheels_packs_the_configurations_as_a_kit_does() -> None:
    build = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]
    packed = build["targets"]["wheel"]["force-include"]
    assert packed == {"configs": configurations.PACKED}


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
    with pytest.raises(InputError, match="runs without an installation"):
        wheel.running()
