"""Each thing that can be wrong with a machine's folder is found, and only that."""

import shutil
import stat
import sys

import pytest

from fedsim.deployment import kit
from fedsim.deployment.checks import machines
from fedsim.deployment.checks.connection import NOTE, OK, WRONG


def test_a_new_kit_lacks_nothing_but_its_start(written, found):
    server = found("server")
    assert set(server) == {"superlink", "proxy"}
    assert "does not answer on port" in server["superlink"]
    assert "start.sh" in server["superlink"]
    client = found("client-0")
    assert set(client) == {"server"}
    assert "is unreachable" in client["server"]
    assert {one.machine for one in machines.check_machines(written)} == {
        "server",
        "client-0",
        "client-1",
        "ca",
    }


def test_other_versions(written, monkeypatch):
    monkeypatch.setattr(machines.fedsim, "__version__", "9.9")
    (line,) = (one for one in machines.check_machines(written, "server") if one.what == "fedsim")
    assert line.state == NOTE
    assert "9.9 is installed, but the kit was written with" in line.message


def test_a_foreign_distribution_of_the_name(found, strangers, monkeypatch):
    monkeypatch.syspath_prepend(strangers)
    assert "pip uninstall fedsim, then install" in found("server")["distribution"]


def test_others_may_read_a_key(written, found):
    key = written / "server" / "server.key"
    key.chmod(0o644)
    assert f"chmod 600 {key}" in found("server")["permissions"]
    key.chmod(stat.S_IRUSR)
    assert "permissions" not in found("server")


def test_a_unit_that_is_not_the_kits_is_spoken_of(written, tmp_path, monkeypatch):
    monkeypatch.setattr(machines, "UNITS", tmp_path)
    own = written / "clients" / "client-0" / "fedsim-client-0.service"
    installed = tmp_path / own.name
    shutil.copy(own, installed)
    assert not [one for one in machines.check_machines(written, "client-0") if one.what == "unit"]
    installed.write_text(own.read_text().replace("UMask=0077\n", ""))
    (line,) = (one for one in machines.check_machines(written, "client-0") if one.what == "unit")
    assert (line.state, f"copy {own} there" in line.message) == (NOTE, True)


def test_commands_that_are_not_there(written, found, change):
    change(written / "server", "BIN", "/nowhere")
    assert "is not on the PATH; set BIN" in found("server")["commands"]


def test_flowers_commands_are_beside_the_interpreter_of_fedsim(found, tmp_path, monkeypatch):
    alone = tmp_path / "bin" / "fedsim"
    alone.parent.mkdir()
    alone.touch(0o700)
    monkeypatch.setattr(sys, "executable", str(alone.with_name("python")))
    monkeypatch.setenv("PATH", str(alone.parent))
    assert "flower-superlink is neither beside" in found("server")["commands"]


@pytest.mark.parametrize("machine", [None, "server", "client-0"])
def test_the_authoritys_key_is_looked_at_wherever_it_is(written, machine):
    (written / "ca" / "ca.key").chmod(0o644)
    wrong = [one for one in machines.check_machines(written, machine) if one.state == WRONG]
    assert any(one.machine == "ca" and "chmod 600" in one.message for one in wrong)


def _seen(written, machine):
    """What was looked at on a machine, with how it is."""
    return {
        one.what: one.state for one in machines.check_machines(written) if one.machine == machine
    }


@pytest.mark.slow
def test_a_machine_that_has_moved_away_hides_nothing_of_the_others(written, found):
    before = {machine: _seen(written, machine) for machine in ("server", "client-0")}
    place = written / "clients" / "client-1"
    place.rename(written / "elsewhere")
    assert {machine: _seen(written, machine) for machine in before} == before
    assert set(found("client-1")) == {"folder"}
    assert f"'{place}' is missing; copy it again" in found("client-1")["folder"]


@pytest.mark.slow
@pytest.mark.parametrize("machine", ["server", "client-1"])
def test_without_settings_all_else_is_looked_at(written, found, machine):
    place = kit.folder(written, machine)
    (place / "settings.env").unlink()
    place.chmod(0o755)
    wrong = [one for one in machines.check_machines(written, machine) if one.state == WRONG]
    assert sorted(one.what for one in wrong) == ["permissions", "settings"]
    assert f"cannot read '{place / 'settings.env'}'" in found(machine)["settings"]
    assert "copy this machine's folder again" in found(machine)["settings"]
    looked_at = _seen(written, machine)
    assert looked_at["certificate" if machine == "server" else "node key"] == OK
    assert set(_seen(written, "client-0")) > {"node key", "supernode"}
