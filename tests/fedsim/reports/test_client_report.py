"""A client's owner learns, on its own machine, what left it and how exposed its records are."""

import json
import shutil
import tomllib
from dataclasses import replace

import numpy as np
import pytest
import tomli_w
import torch

from adversaries.statistics import gaussian
from fedsim import client_app, server_app
from fedsim.configuration import JOBS, from_run_config, to_run_config
from fedsim.federation.client import client_ledger, kept_models
from fedsim.federation.protocol import consent
from fedsim.federation.runs.run_directory import RunDirectory
from fedsim.federation.runtimes.inprocess import InProcessGrid
from fedsim.federation.server.plan import prepare
from fedsim.learning.training.clipped_block import MARGIN
from fedsim.reports import model_card
from fedsim.reports.document.wording import percent
from tests.console import exit_of

SCHEMA = {"label": "sick", "classes": ["no", "yes"], "columns": {"age": [0, 100], "dose": [0, 5]}}
RECORDS, ROUNDS = 40, 4


def _records(path, seed):
    rng = np.random.default_rng(seed)
    age, dose = rng.uniform(20, 90, RECORDS), rng.uniform(0, 5, RECORDS)
    sick = np.where(age / 90 + dose / 5 + rng.normal(0, 0.3, RECORDS) > 1.1, "yes", "no")
    np.savez(path, age=age, dose=dose, sick=sick)


@pytest.fixture
def client(tmp_path):
    """Train on records of two clients; return the folder of the first one's machine."""
    return _trained(tmp_path, {}, {})


def _trained(tmp_path, run, agreed):
    for seed, name in enumerate(("client-0", "client-1", "others")):
        _records(tmp_path / f"{name}.npz", seed)
    values = {
        "data.name": "own",
        "data.public-schema": tomli_w.dumps(SCHEMA),
        "data.root": str(tmp_path / "client-{client}.npz"),
        "data.records": 2 * RECORDS,
        "federation.trust": "local",
        "federation.vantage": "server",
        "model.name": "linear",
        "training.rounds": ROUNDS,
        "training.clipping-norm": 0.85,
        "privacy.rho-beta": 0.0,
        "privacy.epsilon": 2.0,
        "privacy.delta": 1e-3,
        "run.out": str(tmp_path / "run"),
        "run.device": "cpu",
        "run.threads": 1,
    }
    plan = prepare(from_run_config(JOBS["training"](values | run)))
    grid = InProcessGrid(client_app.app, 2, to_run_config(plan.config))
    place = tmp_path / "machine"
    (place / "work").mkdir(parents=True)
    told = {"consent": "", "state-path": str(place / "state")}
    told |= {"epsilon-limit": 3.0, "delta-limit": 1e-3, "data-path": str(tmp_path / "client-0.npz")}
    told |= agreed
    (place / "schema.toml").write_text(tomli_w.dumps(SCHEMA))
    told["schema-path"] = str(place / "schema.toml")
    grid.contexts[1000].node_config.update(told)
    node = {"partition-id": 0, "num-partitions": 2, **told, "state-path": "../state"}
    (place / "node.toml").write_text(tomli_w.dumps(node | {"data-path": "../../client-0.npz"}))
    server_app.carry_out(grid, plan, plan.begin())
    return place


def _report(client, capsys, *options):
    capsys.readouterr()
    assert exit_of("deploy", "report", str(client), "--json", *map(str, options)) == 0
    return json.loads(capsys.readouterr().out)


def test_it_says_what_left_and_how_exposed_each_record_is(client, capsys):
    run = RunDirectory.open(client.parent / "run")
    found = _report(client, capsys)
    towards = model_card.read_card(run).privacy.towards[0]
    assert found["budget"]["epsilon"] == pytest.approx(towards.epsilon["pld"], rel=1e-9)
    (only,) = found["runs"]
    assert (only["rounds"], only["trials"], only["charged"]) == (ROUNDS, 1, True)
    (training,) = found["trainings"]
    exposed = training["exposure"]
    assert exposed["rounds"] == [1, 2, 3, 4]
    expected, cut = _brute_force(client, only["noise_multiplier"])
    assert exposed["highest"]["mu"] == pytest.approx(expected.max(), rel=1e-5)
    assert exposed["median"]["mu"] == pytest.approx(np.median(expected), rel=1e-5)
    assert exposed["most_exposed"][0]["record"] == np.round(expected, 9).argmax()
    np.testing.assert_allclose(exposed["clipped_share"], cut)
    assert 0.05 < min(cut) < 0.95
    # The allowance is the whole guarantee of these rounds, which the most exposed stays within.
    assert gaussian.epsilon(exposed["allowed"]["mu"], 1e-3) == pytest.approx(2.0, rel=0.01)
    # A record clipped in every round spends it all, to the last bits of two sums (seen: 4e-13).
    assert exposed["highest"]["epsilon"] <= exposed["allowed"]["epsilon"] * (1 + 1e-9)
    assert (client / "report" / "report.html").stat().st_mode & 0o777 == 0o600


def test_a_replaced_record_shows_the_whole_signal_of_its_guarantee(tmp_path, capsys):
    place = _trained(tmp_path, {"privacy.neighbouring": "replace"}, {})
    (training,) = _report(place, capsys)["trainings"]
    exposed = training["exposure"]
    assert gaussian.epsilon(exposed["allowed"]["mu"], 1e-3) == pytest.approx(2.0, rel=0.01)
    # Another record's gradient may point the other way: at least half of the signal remains.
    assert 0.5 < exposed["median"]["mu"] / exposed["allowed"]["mu"] <= 1 + 1e-9


def test_the_page_opens_with_the_budget_and_the_most_exposed_record(client, capsys):
    (training,) = _report(client, capsys)["trainings"]
    page = (client / "report" / "report.html").read_text()
    bound = f"theory allows {percent((1 + training['advantage_bound']) / 2)}"
    exposed = percent((1 + training["exposure"]["highest"]["advantage"]) / 2)
    assert f"Its gradients allow {exposed}; {bound}." in page
    assert "of the budget is left for further trainings" in page
    assert "Keep this report on this machine" in page


@pytest.mark.parametrize("lost", [3, 4])
def test_a_round_whose_model_was_not_kept_counts_whole(lost, client, capsys):
    whole = _report(client, capsys)["trainings"][0]["exposure"]
    (kept,) = (client / "state" / kept_models.FOLDER).iterdir()
    for round in range(1, lost + 1):
        (kept / f"round-{round}.npy").unlink()
    found = _report(client, capsys)
    exposed = found["trainings"][0]["exposure"]
    assert (exposed["answered"], len(exposed["rounds"])) == (ROUNDS, ROUNDS - lost)
    assert [(each["rounds"], each["models_kept"]) for each in found["runs"]] == [(4, 4 - lost)]
    assert exposed["allowed"] == pytest.approx(whole["allowed"])
    # As if every record had been clipped in the lost rounds, and as before in the last one.
    least = (exposed["allowed"]["mu"] ** 2 * lost / ROUNDS) ** 0.5
    assert least <= exposed["median"]["mu"] <= exposed["highest"]["mu"]
    assert exposed["median"]["mu"] > whole["median"]["mu"]
    assert f"Of 4 answered rounds, the models of {lost} were not kept." in _page(client)


def test_an_interrupted_training_is_one(client, capsys):
    """The rounds of its runs, and their models, add up to what one run would have."""
    whole = _report(client, capsys)["trainings"][0]["exposure"]
    path = client / "state" / client_ledger.FILE
    answers = client_ledger.read_answers(path.parent)
    path.unlink()
    terms = consent.Terms(frozenset(), 1, 3.0, 1e-3, path.parent)
    (kept,) = (client / "state" / kept_models.FOLDER).iterdir()
    other = kept.with_name("2")
    shutil.copytree(kept, other)
    for answer in answers:
        client_ledger.enter(terms, replace(answer, run="2" if answer.round > 2 else answer.run))
        ((kept if answer.round > 2 else other) / f"round-{answer.round}.npy").unlink()
    found = _report(client, capsys)
    assert [each["rounds"] for each in found["runs"]] == [2, 2]
    (training,) = found["trainings"]
    assert training["exposure"]["highest"] == pytest.approx(whole["highest"])
    assert training["exposure"]["allowed"] == pytest.approx(whole["allowed"])


def _page(client):
    return " ".join((client / "report" / "report.html").read_text().split())


def _brute_force(client, noise_multiplier):
    """Return mu of every record, and the share that was cut, by one gradient after another."""
    (training,) = kept_models.read_seen(client / "state")
    data = np.load(client.parent / "client-0.npz")
    features = np.stack([data["age"] / 50 - 1, data["dose"] / 2.5 - 1], axis=1).astype(np.float32)
    labels = (data["sick"] == "yes").astype(np.int64)
    norm, squares, cut = training.config.training.clipping_norm, np.zeros(RECORDS), []
    for round in training.models:
        weights = torch.tensor(training.model(round))
        lengths = []
        for record, label in zip(features, labels, strict=True):
            theta = weights.clone().requires_grad_()
            logits = theta[:4].view(2, 2) @ torch.tensor(record) + theta[4:]
            loss = torch.nn.functional.cross_entropy(logits[None], torch.tensor([label]))
            lengths.append(float(torch.autograd.grad(loss, theta)[0].norm()))
        squares += (np.minimum(lengths, norm) / (noise_multiplier * norm)) ** 2
        # Clipping shortens to C less the margin for rounding, and so what is longer than that.
        cut.append(np.mean(np.array(lengths) > (1 - MARGIN) * norm))
    return np.sqrt(squares), np.array(cut)


def test_without_models_the_ledger_remains(client, capsys):
    (kept,) = (client / "state" / kept_models.FOLDER).iterdir()
    assert json.loads((kept / kept_models.CONFIG).read_text())["data.root"] == ""
    # Other records by now: what took part cannot be measured any more.
    toml = client / "node.toml"
    toml.write_text(toml.read_text().replace("client-0.npz", "others.npz"))
    (training,) = _report(client, capsys)["trainings"]
    assert (training["gone"], training["exposure"]) == (True, None)
    for path in kept.iterdir():
        path.unlink()
    found = _report(client, capsys)
    assert (len(found["runs"]), found["trainings"]) == (1, [])


def test_what_is_no_client_is_refused_in_a_line(client, capsys):
    toml = client / "node.toml"
    node = tomllib.loads(toml.read_text())
    for values, said in (
        ({"role": "auditor"}, "is not the node of a client"),
        ({**node, "epsilon-limit": "much"}, "epsilon-limit"),
    ):
        toml.write_text(tomli_w.dumps(values))
        assert exit_of("deploy", "report", str(client)) == 2
        printed = capsys.readouterr().err
        assert said in printed
        assert printed.count("\n") == 1
