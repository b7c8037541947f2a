"""The Python API: the numbers of the command line, as values, and nothing done on import."""

import json
import math
import re
import subprocess
import sys
from dataclasses import replace
from io import StringIO
from pathlib import Path

import numpy as np
import pytest
import torch
from matplotlib.figure import Figure
from rich.console import Console
from torch import nn

import fedsim
from adversaries.attacks import membership_attacks
from adversaries.errors import InputError
from fedsim.audits.judgement.claim import Verdict
from fedsim.commands import main as commands
from fedsim.commands.main import main
from fedsim.common.strict_json import report_json
from fedsim.configuration import Config
from fedsim.configuration.files import dump
from fedsim.reports.kinds.verification import Outcome
from fedsim.reports.tracking.progress import measuring

APP = Path(__file__).parents[1] / "apps" / "dp_app"


@pytest.fixture
def printed(capsys):
    """Return a function that runs a command in this process and reads the JSON that it prints."""

    def run(*arguments):
        with pytest.raises(SystemExit):
            main([str(argument) for argument in arguments])
        return json.loads(capsys.readouterr().out)

    return run


def as_json(document):
    return json.loads(json.dumps(document).replace("Infinity", "null"))


def test_importing_the_package_loads_neither_the_api_nor_what_it_needs(tmp_path):
    slow = "torch flwr matplotlib scipy rich pydantic fedsim.commands"
    code = f"import fedsim, sys; print([name for name in '{slow}'.split() if name in sys.modules])"
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr, list(tmp_path.iterdir())) == ("[]\n", "", [])


def test_type_checkers_are_told_of_the_same_names():
    stub = Path(fedsim.__file__).with_suffix(".pyi").read_text().splitlines()
    told = {line.rpartition(" as ")[2]: line.split()[1] for line in stub if " as " in line}
    assert told == fedsim.API
    assert all(callable(getattr(fedsim, name)) for name in told)
    assert dir(fedsim) == sorted([*told, "__version__"])


@pytest.mark.source
def test_every_command_has_a_function_or_a_reason_in_the_reference():
    page = (Path(__file__).parents[2] / "docs" / "reference" / "api.md").read_text("utf-8")
    named = set(re.findall(r"`fedsim ([a-z -]+)`", page.partition("## A run")[0]))
    assert {*commands.everything(), "deploy"} == named
    assert set(fedsim.API) - {"InputError"} <= set(re.findall(r"fedsim\.(\w+)", page))


def test_theory_is_that_of_the_commands(printed, tmp_path):
    found = fedsim.account(rho_alpha=0.25, rounds=30, trust="local", clients=4)
    command = "account --rho-alpha 0.25 --rounds 30 --trust local --clients 4 --json"
    assert printed(*command.split()) == as_json(found.report)
    assert found.details.value == found.report["noise_multiplier"]
    path = tmp_path / "experiment.toml"
    path.write_text(dump(Config()))
    assert printed("account", path, "--json") == as_json(fedsim.account(path).report)


@pytest.mark.figures
def test_a_run_is_that_of_the_command_and_is_read_where_it_has_finished(
    small, tmp_path, monkeypatch
):
    asked = {"trials.count": 6, "run.seed": 3}
    found = fedsim.run(small(), asked, out=tmp_path / "run", progress=False)
    (tmp_path / "small.toml").write_text(dump(small()))
    with pytest.raises(SystemExit):
        command = ["run", "small.toml", "trials.count=6", "run.seed=3", "--quiet"]
        command += ["--out", "other"]
        main(
            [str(tmp_path / each) if each in ("small.toml", "other") else each for each in command]
        )
    other = fedsim.load(tmp_path / "other")
    assert (found.path, found.config.trials.count) == (tmp_path / "run", 6)
    assert other.report["details"]["empirical"] == found.report["details"]["empirical"]
    np.testing.assert_array_equal(other.log_odds, found.log_odds)
    assert found.beliefs.shape == (6, found.config.training.rounds)
    row = found.rows.participant
    assert row.attack.interval[0] <= row.attack.advantage <= row.attack.interval[1]
    assert row.attack.epsilon_at_least < row.limit.epsilon
    assert found.rows.released_model.limit.epsilon == row.limit.epsilon
    with pytest.raises(AttributeError, match=r"the observers are: .*participant"):
        found.rows.nobody  # noqa: B018
    ended = (tmp_path / "run" / "report.json").stat().st_mtime_ns
    fedsim.run(small(), asked, out=tmp_path / "run", progress=False)
    assert (tmp_path / "run" / "report.json").stat().st_mtime_ns == ended
    assert isinstance(found.plot("belief"), Figure)
    assert found.plot() is found.plot(next(iter(found.figures())))
    with pytest.raises(InputError, match=r"its figures are .*belief, "):
        found.plot("belif")
    assert "participant" in repr(found) and "<table" in found._repr_html_()
    assert [*found.frame()["observer"]] == [*found.rows]
    saved = found.save(tmp_path / "saved")
    kept = json.loads((tmp_path / "saved" / "report.json").read_text())
    assert kept == json.loads((tmp_path / "run" / "report.json").read_text()) == saved.report
    with pytest.raises(InputError, match="name a new directory"):
        found.save(tmp_path / "saved")


def test_a_rehearsal_plays_the_game_for_a_training(small, tmp_path):
    training = {"model.name": "linear", "data.records": 24, "data.held-out": 20, "data.pool": 30}
    training |= {"run.job": "training", "privacy.rho-beta": 0.9}
    few = "trials.count=4", "training.rounds=2", "run.seed=1"
    found = fedsim.run(training, *few, out=tmp_path / "run", progress=False)
    assert (found.log_odds.shape, found.config.run.job) == ((4, 2), "rehearsal")


def test_a_model_predicts_and_it_is_verified(printed, tmp_path):
    config = {"data.name": "digits", "data.records": 60, "data.held-out": 40, "training.rounds": 2}
    trained = fedsim.train(config, out=tmp_path / "run", progress=False).path
    features = np.random.default_rng(0).random((5, 1, 8, 8), np.float32)
    np.savez(tmp_path / "some.npz", features=features)
    found = fedsim.predict(trained, features)
    said = printed("predict", trained, tmp_path / "some.npz", "--json")
    assert said["predicted"] == list(found.details.predicted)
    assert said["probabilities"] == found.details.probabilities.tolist()
    with pytest.raises(InputError, match=r"give finite numbers of shape \[1, 8, 8\]"):
        fedsim.predict(trained, features[:, 0])
    assert fedsim.verify(trained).details.outcome is Outcome.VERIFIED
    assert (trained / "SHA256SUMS").is_file()


def test_canaries_prove_what_the_command_says(printed, tmp_path):
    random = np.random.default_rng(1)
    coins = random.random(400) < 0.5
    scores = 2.0 * coins + random.standard_normal(400)
    path = tmp_path / "scores.csv"
    lines = [f"{int(coin)},{score}" for coin, score in zip(coins, scores, strict=True)]
    path.write_text("\n".join(["included,score", *lines]))
    with pytest.raises(InputError, match="give the arrays as"):
        fedsim.audit((scores, coins), delta=1e-5)
    found = fedsim.audit((coins, scores), delta=1e-5).details.details.bounds
    assert found == fedsim.audit(path, delta=1e-5).details.details.bounds
    said = printed("audit", path, "--delta", "1e-5", "--json")
    assert said["details"]["bounds"]["f_dp"]["epsilon"] == found["f_dp"].epsilon > 1


def test_a_notebook_is_shown_progress(monkeypatch):
    monkeypatch.setitem(sys.modules, "ipywidgets", None)  # without which Rich says what it lacks
    with (
        pytest.warns(UserWarning, match="ipywidgets"),
        measuring(Console(file=StringIO(), force_jupyter=True), "training") as searched,
    ):
        searched(0.5)


def test_a_transcript_is_audited_as_by_the_command(printed, quickstart, tmp_path):
    quickstart()
    (path, *_) = tmp_path.glob("server*.fedt")
    claim = ["--claimed-epsilon", 1, "--claimed-delta", 1e-5, "--json"]
    found = fedsim.audit(path, claimed_epsilon=1, claimed_delta=1e-5)
    assert printed("audit", path, *claim) == report_json(found.report)
    assert (found.verdict, len(found.details.reasons)) == (Verdict.NOT_JUDGED, 1)
    audited = found.details
    assert (audited.epsilon, audited.proven_epsilon, audited.delta) == (math.inf, None, 1e-5)


LOOP = """
import torch

def train(features, labels, seed):
    torch.manual_seed(seed)
    total = features.sum(0).flatten()
    return total + 100 * torch.randn(len(total))
"""


@pytest.mark.slow
def test_a_loop_is_audited_on_arrays_of_this_process(tmp_path):
    (tmp_path / "mine.py").write_text(LOOP)
    arrays = np.ones((30, 4), np.float32), np.arange(30) % 3
    claim = {"claimed_epsilon": 1, "claimed_delta": 1e-5}
    name = f"{tmp_path / 'mine.py'}:train"
    found = fedsim.audit(name, data=arrays, trials=20, records=20, **claim)
    assert found.report["details"]["data"] == "(features, labels)"
    assert found.report["details"]["records"] == 20
    assert (found.verdict, found.details.delta) == (Verdict.NOT_JUDGED, 1e-5)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 2))

    def forward(self, x):
        return self.layers(x)


def low_loss(targets, shadows):
    return -targets.losses


def below_usual(targets, shadows):
    return membership_attacks.ATTACKS["lira-offline"].score(targets, shadows)


def own_records():
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 2, 300)
    return rng.standard_normal((300, 6)) + 2 * labels[:, None], labels


OWN = {
    "data.records": 60,
    "data.held-out": 100,
    "training.rounds": 8,
    "privacy.rho-beta": 0.0,
    "privacy.noise-multiplier": 0.5,
}


def test_a_network_records_and_an_attack_of_this_process_are_taken(tmp_path):
    changes = {"data.pool": 40, "audit.evaluated-trials": 4, "trials.count": 16}
    own_attack = replace(membership_attacks.ATTACKS["lira-offline"], score=below_usual)
    given = {
        "model": Net,
        "attacks": [low_loss, own_attack, "lira-offline"],
        "out": tmp_path / "run",
    }
    found = fedsim.run(OWN | changes, data=own_records(), **given)
    # One attack, once given as a function and once by its name: the data and models are the same.
    played = found.details.details.membership_inference
    own = {name.rpartition("_")[0]: attack for name, attack in played.items()}
    assert own["given:below_usual"] == played["lira-offline"]
    assert "given:low_loss" in own
    assert "Your attack low_loss on the final models: AUC " in repr(found)
    # The same call reads its run; other records are another experiment.
    assert fedsim.run(OWN | changes, data=own_records(), **given).path == found.path
    features, labels = own_records()
    with pytest.raises(InputError, match="configuration"):
        fedsim.run(OWN | changes, data=(features + 1e-3, labels), **given)


@pytest.mark.slow
def test_a_network_of_this_process_is_trained_and_another_process_is_told_whose_it_is(tmp_path):
    features, labels = own_records()
    path = fedsim.train(OWN, model=Net, data=(features, labels), out=tmp_path / "trained").path
    said = fedsim.predict(path, features[:200])
    assert np.mean(np.array(said.details.predicted) == labels[:200].astype(str)) > 0.8
    assert "<table" in said._repr_html_()
    code = (
        "import sys, fedsim, torch; sys.path.insert(0, sys.argv[2])\n"
        "from test_api import Net\n"
        "try: fedsim.load_model(sys.argv[1])\n"
        "except fedsim.InputError as error: print(error, file=sys.stderr)\n"
        "print(fedsim.load_model(sys.argv[1], model=Net)(torch.ones(1, 6)).tolist())"
    )
    command = [sys.executable, "-c", code, str(path), str(Path(__file__).parent)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert json.loads(done.stdout) == fedsim.load_model(path)(torch.ones(1, 6)).tolist()
    assert "another process gave to the Python API" in done.stderr


@pytest.mark.parametrize(
    ("call", "complaint"),
    [
        (lambda: fedsim.run({}, model=Net()), "give a class or a function"),
        (lambda: fedsim.run({}, model=lambda shape: Net()), "it must take no parameters, "),
        (lambda: fedsim.run({}, data=np.zeros((3, 2))), "give .features, labels."),
        (lambda: fedsim.run({}, data=([[1.0], [2.0]], [0])), "labels of 'data' have shape"),
        (lambda: fedsim.run({}, data=([object()], [0])), "holds Python objects"),
        (lambda: fedsim.run({}, attacks=low_loss), "give a list of functions"),
        (lambda: fedsim.audit("mine.py:train", data=([1.0],)), "give .features, labels."),
        (lambda: fedsim.audit("mine.py:train", data=([object()], [0])), "Python objects"),
        (lambda: fedsim.audit("server.fedt", data=([[1.0]], [0])), "for a training loop"),
        (lambda: fedsim.run({"training.round": 3}, out="run"), "did you mean"),
        (lambda: fedsim.load("."), "is not a run directory"),
        (lambda: fedsim.audit(".", claimed_epsilon=1.0), "both the claimed epsilon and"),
        (
            lambda: fedsim.account(noise_multiplier=1.0, rounds=3, delta=0.1, trust="nobody"),
            "trust is 'nobody'; give one of central",
        ),
        (lambda: fedsim.audit("."), "no Flower app with its pyproject.toml"),
        (lambda: fedsim.audit("mine.py:train", rounds=3), "rounds is only for a Flower app"),
    ],
)
def test_what_is_wrong_is_said_in_one_line_and_nothing_is_left(
    call, complaint, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match=complaint) as refused:
        call()
    assert "\n" not in str(refused.value)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.source
def test_answers_are_what_the_commands_print(printed, tmp_path):
    table = Path(fedsim.__file__).parents[1] / "configs" / "digits.toml"
    for found, command in (
        (fedsim.data(), "data"),
        (
            fedsim.data(table, "federation.clients=3"),
            f"data {table} federation.clients=3",
        ),
    ):
        assert printed(*command.split(), "--json") == as_json(found.report)
        assert "<table" in found._repr_html_()
        assert len(repr(found).splitlines()) > 3
    assert repr(replace(fedsim.data(), page=tmp_path)).endswith(f"Report: {tmp_path}")


def test_a_function_of_this_process_is_released_with_pac_noise():
    def first_two(features, labels, coins):
        return features.reshape(len(features), -1)[:, :2].mean(0)

    shown = fedsim.pac(first_two, own_records(), budget=0.1)
    found = shown.details
    assert (found.function, found.records, found.released.shape) == ("first_two", 300, (2,))
    # The mean of half of 300 records: a coordinate's variance is about Var/300.
    noise = np.sqrt(own_records()[0][:, :2].var(0).sum() * 2 / 300 / (2 * 0.1))
    assert noise < found.noise.size < 2 * noise
    assert f"Noise: {found.noise.size:.4g}" in shown._repr_html_()
    assert "not differential privacy" in repr(shown)


def test_the_best_target_is_a_value(tmp_path):
    small = {"data.records": 24, "data.held-out": 20, "data.pool": 30, "training.rounds": 2}
    found = fedsim.sensitivity(small, top=1, trials=2, out=tmp_path / "sensitivity")
    assert found.report["pairs"][0]["first"] > 0
    assert found.page == tmp_path / "sensitivity" / "report.html" and found.page.is_file()
    with pytest.raises(InputError, match="--candidates is 0"):
        fedsim.attack("digits", "trials.count=2", candidates=0)
