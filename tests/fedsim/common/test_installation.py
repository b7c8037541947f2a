"""The program knows its own distribution from one that took its name."""

import re
import subprocess
import sys
import tomllib
from importlib.metadata import metadata
from pathlib import Path

import fedsim
from fedsim.common.installation import PACKAGES

ROOT = Path(__file__).parents[3]


def test_a_foreign_distribution_that_has_written_over_a_module_is_named_in_one_line(strangers):
    program = (
        f"import sys; sys.path.append({str(strangers)!r}); "
        "sys.modules['fedsim.commands.main'] = sys; from fedsim.commands import entry; entry.main()"
    )
    ran = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert ran.returncode == 2
    assert "the installed distribution 'fedsim' is another project" in ran.stderr
    assert len(ran.stderr.splitlines()) == 1


def test_the_distribution_is_that_of_the_project_file():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert project["project"]["name"] == fedsim.DISTRIBUTION
    assert tuple(project["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]) == PACKAGES
    assert project["project"]["version"] == fedsim.__version__


def test_every_extra_that_a_message_names_exists():
    root = Path(fedsim.__file__).parent
    named = {
        extra
        for path in root.rglob("*.py")
        for extra in re.findall(r"installation\.command\([\"'](\w+)[\"']\)", path.read_text())
    }
    assert {"hf", "parquet", "text"} <= named
    assert named <= set(metadata(fedsim.DISTRIBUTION).get_all("Provides-Extra", []))
