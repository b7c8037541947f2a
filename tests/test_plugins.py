"""Plug-ins of the package in tests/plugins/, built and unpacked as an installer does it."""

import json
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from adversaries import plugins, registry
from adversaries.errors import InputError
from fedsim.audits.results import report as results
from fedsim.cli.main import main
from fedsim.config import Config, Scalar, to_run_config
from fedsim.federation.runs.run_directory import Arrays, RunDirectory
from fedsim.privacy.accounting import accountant
from fedsim.privacy.mechanism import Mechanism
from fedsim.report.page import Pictures, all_sections, render_html
from fedsim.report.tracking.trackers import TrackedSubject, opened

SOURCE = Path(__file__).parent / "plugins"
PACKAGE = "fedsim_example"
USED: dict[str, Scalar] = {
    "data.name": "plugin:two-moons",
    "model.name": "plugin:tanh",
    "privacy.accountant": "plugin:doubled",
    "audit.attacks": "lira-offline, plugin:confident",
    "audit.mode": "plugin:quiet",
    "federation.vantage": "server",
    "federation.trust": "local",
}


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder in which the package is installed."""
    place = tmp_path_factory.mktemp("site")
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(place)]
    subprocess.run(build, cwd=SOURCE, check=True, capture_output=True)
    (wheel,) = place.glob("*.whl")
    with zipfile.ZipFile(wheel) as file:
        file.extractall(place)
    return place


@pytest.fixture(autouse=True)
def installed(site: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Put the package on the path; nothing of it is allowed or imported."""
    monkeypatch.syspath_prepend(site)
    monkeypatch.setenv(registry.ALLOWED, "")
    yield
    sys.modules.pop(PACKAGE, None)


def test_every_kind_is_listed_and_refused_without_being_imported(
    capsys: pytest.CaptureFixture[str], small: Callable[..., Config]
) -> None:
    with pytest.raises(SystemExit):
        main(["plugins", "--json"])
    listed = json.loads(capsys.readouterr().out)["plugins"]
    ours = [each for each in listed if each["package"] == "fedsim-example"]
    assert [each["key"] for each in ours] == list(plugins.GROUPS)
    assert not any(each["allowed"] for each in listed)
    values = to_run_config(small(USED))
    for key in ("audit.attacks", "audit.mode", "data.name", "model.name", "privacy.accountant"):
        code = values[key].split(",")[-1]
        with pytest.raises(InputError, match=f"does not allow.*fedsim --allow-code {code} COMMAND"):
            registry.lookup({}, code, key)
    with pytest.raises(InputError, match="--track is 'fedsim_example:Lines'"):
        opened("plugin:lines:somewhere")
    assert not any(section.title == "How many rounds" for section in all_sections())
    assert PACKAGE not in sys.modules


def test_a_run_uses_plugins_of_every_kind_that_it_names(
    small: Callable[..., Config], run: Callable[[Config], Arrays], tmp_path: Path
) -> None:
    registry.allow(each.code for each in plugins.installed())
    noise: dict[str, Scalar] = {"privacy.rho-beta": 0.0, "privacy.epsilon": 8.0}
    config = small(USED | noise | {"trials.count": 24, "trials.batch": 24})
    run(config)
    directory = RunDirectory.open(tmp_path / "run-0")
    report = results.read(directory)
    assert report.model.parameters == 3 * 32 + 33 * 2
    assert {"lira-offline", f"{PACKAGE}:CONFIDENT"} <= report.membership_inference.keys()
    assert not report.vantages["server"].exact_posterior
    assert report.budget.epsilon["server"] == pytest.approx(8)
    page = render_html(report, Pictures(report, {}))
    assert f"Every trial had {report.rounds} rounds." in page


def test_a_tracker_and_an_accountant_are_named_on_the_command_line(tmp_path: Path) -> None:
    registry.allow([f"{PACKAGE}:Lines", f"{PACKAGE}:DOUBLED"])
    tracker = opened(f"plugin:lines:{tmp_path / 'lines'}")
    tracker.begin(TrackedSubject("first", "1", {}))
    tracker.log({"advantage": 0.25}, 3, 0.0)
    tracker.end(True)
    assert (tmp_path / "lines").read_text() == "run first\n3 advantage 0.25\nfinished\n"
    one = Mechanism.alike(1.0, 1)
    twice = 2 * accountant("gdp").epsilon(one, 1e-5)
    assert accountant("plugin:doubled").epsilon(one, 1e-5) == pytest.approx(twice)


def test_a_name_that_no_package_or_two_packages_have_is_one_line(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with pytest.raises(InputError, match=r"no installed package has .*fedsim plugins lists"):
        plugins.code_of("plugin:unheard", "model.name")
    (first,) = plugins.installed(["model.name"])
    other = replace(first, code="other:tanh", package="other")
    monkeypatch.setattr(plugins, "installed", lambda keys: [first, other])
    with pytest.raises(InputError, match="write fedsim_example:tanh or other:tanh"):
        plugins.code_of("plugin:tanh", "model.name")
