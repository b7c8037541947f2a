"""Another version of the program leaves keys, settings and ledgers where they are."""

import json
from pathlib import Path

import pytest

from adversaries.errors import InputError
from fedsim.deployment import kit, wheel
from fedsim.deployment.upkeep import upgrade


def test_an_upgrade_is_what_is_copied_over_each_folder(tmp_path: Path) -> None:
    directory = tmp_path / "kit"
    kit.write_kit(directory, "federation.example", 8443, 2)
    with pytest.raises(InputError, match=r"already has fedsim"):
        upgrade(directory)
    with pytest.raises(InputError, match="the whole kit's folder"):
        upgrade(directory / "server")
    manifest = directory / "deploy.json"
    manifest.write_text(json.dumps(json.loads(manifest.read_text()) | {"fedsim": "0.0.9"}))
    out = upgrade(directory)
    assert kit.read_kit(directory).fedsim == kit.read_kit(out / "client-1").fedsim != "0.0.9"
    assert {place.name for place in out.iterdir()} == {"server", "client-0", "client-1"}
    for place in out.iterdir():
        own = kit.folder(directory, place.name)
        program = {path.name for path in place.iterdir()}
        assert {wheel.running().name, "install.sh", "start.sh", "deploy.json"} < program
        # Nothing that a machine may have changed, and no secret.
        assert not program & {"settings.env", "node.toml", "node.key", "server.key", "keys"}
        assert all((own / name).read_bytes() == (place / name).read_bytes() for name in program)
