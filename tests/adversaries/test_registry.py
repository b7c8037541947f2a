"""Extensions go by name; a user's own code only where the machine's owner allowed it."""

import sys

import numpy as np
import pytest

from adversaries import registry
from adversaries.errors import InputError
from adversaries.registry import lookup
from fedsim.commands.main import main

OWN = """
from dataclasses import replace
import torch
from torch import nn
from adversaries.attacks import membership_attacks
from adversaries.neighbours.dissimilarity import euclidean
from fedsim.learning.data import public

def network(shape, classes, hidden):
    return nn.Sequential(nn.Flatten(), nn.Linear(torch.Size(shape).numel(), classes, bias=False))

def digits_by_another_name(source):
    return replace(public.digits(source), name="half")

def twice(features, others):
    return 2 * euclidean(features, others)

attack = replace(membership_attacks.ATTACKS["lira"], title="Of our own")
"""

NAMES = {
    "data.name": "own_code:digits_by_another_name",
    "model.name": "own_code:network",
    "challenge.dissimilarity": "own_code:twice",
    "audit.attacks": "own_code:attack",
}


@pytest.fixture
def own_code(tmp_path, monkeypatch):
    (tmp_path / "own_code.py").write_text(OWN)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv(registry.ALLOWED, "")
    monkeypatch.delitem(sys.modules, "own_code", raising=False)


@pytest.mark.usefixtures("own_code")
def test_a_run_uses_code_of_ones_own_wherever_a_configuration_names_some(small, run):
    registry.allow(NAMES.values())
    arrays = run(small(NAMES | {"trials.count": 4, "trials.batch": 4, "training.rounds": 1}))
    assert arrays["log_odds"].shape == (4, 1)
    assert np.isfinite(arrays["log_odds"]).all()


@pytest.mark.usefixtures("own_code")
@pytest.mark.parametrize("key", NAMES)
def test_code_that_nobody_allowed_is_refused_unread(key, small, run):
    # Another name of the same module is not enough.
    registry.allow(["own_code:something_else"])
    with pytest.raises(InputError, match=f"{key} is 'own_code:.*fedsim --allow-code own_code:"):
        run(small({key: "own_code:anything"}))
    assert "own_code" not in sys.modules


@pytest.mark.usefixtures("own_code")
def test_what_is_allowed_and_cannot_be_imported_is_one_line():
    registry.allow(["own_code:nothing", "no.such.module:name"])
    for name in ("own_code:nothing", "no.such.module:name"):
        with pytest.raises(InputError, match=r"cannot be imported: .*PYTHONPATH"):
            lookup({}, name, "model.name")


@pytest.mark.parametrize("name", ["no colon", "a:b:c", "os.system('x'):y", "a.b:"])
def test_only_a_module_and_a_name_can_be_allowed(name, capsys):
    with pytest.raises(SystemExit) as ended:
        main(["--allow-code", name, "account", "--rho-beta", "0.9", "--rounds", "3"])
    assert ended.value.code == 2
    assert "write package.module:name" in capsys.readouterr().err
