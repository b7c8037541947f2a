"""Somebody else's app is loaded, run and forgotten; what cannot be loaded is one line."""

import random
import sys
from pathlib import Path

import numpy as np
import pytest
from flwr.clientapp import ClientApp
from flwr.serverapp.strategy import Strategy

from adversaries.errors import InputError
from fedsim.audits.app.execution import Script, opened
from fedsim.audits.child_process.channel import AppFailedError

APP = Path(__file__).parents[3] / "apps" / "dp_app"
SERVER = "from flwr.serverapp import ServerApp\napp = ServerApp()\n"
CLIENT = "from flwr.clientapp import ClientApp\napp = ClientApp()\n"


def write_app(directory, components, **modules):
    (directory / "pyproject.toml").write_text(
        f'[project]\nname = "other"\n[tool.flwr.app.components]\n{components}\n'
        "[tool.flwr.app.config]\nrounds = 3\n[tool.flwr.app.config.nested]\nrate = 0.5\n",
        encoding="utf-8",
    )
    for name, code in modules.items():
        (directory / f"{name}.py").write_text(code, encoding="utf-8")
    return directory


def test_the_app_and_every_hook_are_gone_afterwards():
    watched = [(ClientApp, "train"), (ClientApp, "__init__"), (Strategy, "start")]
    watched += [(np.random, "seed")]
    before = [getattr(client, name) for client, name in watched]
    path = list(sys.path)
    with opened(APP, 2, {"clients": 2, "num-server-rounds": 1}) as app:
        assert "dp_app.server_app" in sys.modules
        assert app.honest(0).facts.strategies.endswith(" > FedAvg")
    assert [getattr(client, name) for client, name in watched] == before
    assert sys.path == path
    assert not [name for name in sys.modules if name.startswith("dp_app")]


def test_an_execution_follows_its_seed_and_not_what_was_drawn_before():
    def moved(seed):
        random.random()
        np.random.normal()  # noqa: NPY002
        script = Script(0, 1.0, None, "one", 1e-3, 0)
        return app.scripted(seed, script)[0].model_shift

    with opened(APP, 2, {"clients": 2, "num-server-rounds": 1}) as app:
        app.honest(0)
        assert moved(1) == moved(1) != moved(2)


def test_an_honest_run_shows_weights_norms_and_noise():
    config = {"variant": "weighted", "clients": 3, "num-server-rounds": 2, "noise-multiplier": 3.0}
    with opened(APP, 3, config) as app:
        facts = app.honest(0).facts
    assert (facts.rounds, facts.clipping_norm, facts.weighted_by) == (2, 1.0, "num-examples")
    # The noise is for a third of the average, of which one client may be all.
    assert facts.multipliers == pytest.approx((1.0, 1.0), rel=1e-5)
    assert facts.normal and not facts.bare and 0.8 < facts.detects[0] < 1


def test_an_undeclared_key_is_refused_with_the_declared_ones():
    with pytest.raises(InputError, match="key 'varient'; it has"), opened(APP, 2, {"varient": 1}):
        pass


def test_a_directory_without_an_app_is_refused(tmp_path):
    with pytest.raises(InputError, match="no pyproject"), opened(tmp_path, 2, {}):
        pass
    (tmp_path / "pyproject.toml").write_text("[project]\nname = 'x'\n", encoding="utf-8")
    with pytest.raises(InputError, match="does not describe a Flower app"), opened(tmp_path, 2, {}):
        pass
    (tmp_path / "pyproject.toml").write_text("[project\n", encoding="utf-8")
    with pytest.raises(InputError, match="is not valid TOML"), opened(tmp_path, 2, {}):
        pass


@pytest.mark.parametrize(
    ("components", "why"),
    [
        ('serverapp = "nowhere:app"\nclientapp = "audited_client:app"', "cannot be loaded"),
        ('serverapp = "audited_server:none"\nclientapp = "audited_client:app"', "cannot be loaded"),
        ('serverapp = "audited_client:app"\nclientapp = "audited_client:app"', "not a ServerApp"),
        ('serverapp = "json:app"\nclientapp = "audited_client:app"', "already loaded"),
    ],
)
def test_components_that_are_none_are_refused(tmp_path, components, why):
    write_app(tmp_path, components, audited_server=SERVER, audited_client=CLIENT)
    with pytest.raises(InputError, match=why), opened(tmp_path, 2, {}):
        pass
    assert "audited_client" not in sys.modules


def test_an_app_that_ends_the_process_is_an_error_and_no_silence(tmp_path):
    ends = SERVER + "@app.main()\ndef main(grid, context):\n    raise SystemExit(0)\n"
    components = 'serverapp = "ending_server:app"\nclientapp = "ending_client:app"'
    write_app(tmp_path, components, ending_server=ends, ending_client=CLIENT)
    with opened(tmp_path, 2, {}) as app, pytest.raises(AppFailedError, match="SystemExit"):
        app.honest(0)


@pytest.mark.parametrize("code", ["raise SystemExit(0)", "raise RuntimeError('two\\nlines')"])
def test_an_app_that_fails_while_it_is_loaded_is_one_line(tmp_path, code):
    components = 'serverapp = "failing_server:app"\nclientapp = "failing_client:app"'
    write_app(tmp_path, components, failing_server=f"{code}\n{SERVER}", failing_client=CLIENT)
    refused = pytest.raises(InputError, match=r"cannot be loaded: (SystemExit|RuntimeError)")
    with refused as refusal, opened(tmp_path, 2, {}):
        pass
    assert "\n" not in str(refusal.value)


def test_what_an_app_prints_while_it_is_loaded_is_no_output(tmp_path, capsys):
    components = 'serverapp = "loud_server:app"\nclientapp = "loud_client:app"'
    write_app(tmp_path, components, loud_server=f"print('hello')\n{SERVER}", loud_client=CLIENT)
    with opened(tmp_path, 2, {}):
        pass
    printed = capsys.readouterr()
    assert (printed.out, printed.err) == ("", "hello\n")
