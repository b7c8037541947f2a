"""The reconstruction game trains what the federation would, and the posterior is Bayes' rule."""

import json
import math

import numpy as np
import pytest
import torch
from scipy.stats import norm

import fedsim
from adversaries.errors import InputError
from fedsim.common.randomness import SERVER, gaussian_noise
from fedsim.game import federation
from fedsim.game.mechanisms import privacy
from fedsim.learning.training.optimizers import ServerOptimizer
from fedsim.privacy import risks
from fedsim.privacy.participation.sampling import participation
from fedsim.studies.reconstruction.candidate_game import (
    mechanism,
    of_column,
    of_records,
    play,
    round_noise,
)
from tests.console import exit_of

TABLE = """age,colour,weight,label
20,red,50,yes
30,blue,60,no
40,red,70,yes
50,green,80,no
"""


def _played(config, trials, batch=64):
    known = federation.load(config)
    candidates = of_records(known, 5, 6, 0)
    nominal = privacy.noise_multiplier(config)
    return candidates, play(config, known, 5, candidates, nominal, trials, batch)


@pytest.mark.parametrize("rate", [1.0, 0.5])
def test_a_trial_is_dp_sgd_on_its_candidate_and_bayes_rule(rate, small):
    config = small({"training.sampling-rate": rate, "training.rounds": 2, "privacy.rho-beta": 0.99})
    candidates, outcome = _played(config, 4)
    known, trial = federation.load(config), 3
    std = privacy.noise_multiplier(config) * config.training.clipping_norm
    theta = federation.initial_parameters(config, known, range(trial, trial + 1))
    optimizer = ServerOptimizer(config.training, config.participation.divisor)
    total = np.zeros(6)
    for round in (1, 2):
        drawn = participation(0, [trial], round, 24, rate)
        coins = np.ones(24, bool) if drawn is None else drawn[0]
        others = known.clipped_sum(theta, np.flatnonzero(coins & (np.arange(24) != 5)))[0]
        each = known.clipper.clipped_gradients(theta, candidates.features, candidates.labels)[0]
        seen = std * torch.tensor(gaussian_noise(0, [trial], round, SERVER, theta.shape[1])[0])
        if coins[5]:
            seen += each[outcome.secrets[trial]]
        without = norm.logpdf(seen, 0, std).sum()
        for place, gradient in enumerate(each):
            # Against the step without a record, which only moves all numbers.
            ratio = norm.logpdf(seen, gradient, std).sum() - without
            total[place] += math.log(1 - rate + rate * math.exp(ratio))
        theta = optimizer.step(theta, (others + seen)[None].float(), round)
    posterior = np.exp(total) / np.exp(total).sum()
    assert outcome.guesses[trial] == posterior.argmax()
    assert outcome.certainty[trial] == pytest.approx(posterior.max(), rel=1e-4)


def test_trials_do_not_depend_on_batches(small):
    (_, whole), (_, cut) = (_played(small(), 20, batch) for batch in (20, 7))
    np.testing.assert_array_equal(whole.secrets, cut.secrets)
    np.testing.assert_allclose(whole.certainty, cut.certainty, rtol=1e-4)
    assert len(set(whole.secrets.tolist())) > 3


@pytest.mark.parametrize(
    "changes",
    [
        {"privacy.neighbouring": "replace"},
        {"federation.trust": "local"},
        {"training.sampling-rate": 0.5},
    ],
    ids=lambda changes: next(iter(changes.values())),
)
def test_the_bound_is_about_one_record_more_and_holds(changes, small):
    config = small({"privacy.rho-beta": 0.99, **changes})
    nominal = privacy.noise_multiplier(config)
    (hidden, own), described = round_noise(config, nominal), mechanism(config, nominal)
    # The noise that hides a record, in units of the longest gradient.
    (steps,) = described.groups
    assert steps.noise_multiplier == pytest.approx(hidden / config.training.clipping_norm)
    if config.federation.trust.value == "local":
        # Of three equal shares, the adversary knows its own.
        assert own == pytest.approx(hidden / math.sqrt(2))
    _, outcome = _played(config, 400)
    bound = risks.success(described, 1 / 6)
    slack = 4 * math.sqrt(bound * (1 - bound) / 400)
    assert outcome.right.mean() < bound + slack
    # Its belief is exact: it is right as often as it thinks.
    assert outcome.right.mean() == pytest.approx(outcome.certainty.mean(), abs=slack)
    assert abs(outcome.scores.sum()) < 4 * math.sqrt(400)


def _of_table(tmp_path, column, prior):
    path = tmp_path / "people.csv"
    header, *rows = TABLE.splitlines()
    path.write_text("\n".join([header, *(row for row in rows for _ in range(30))]))
    config = fedsim.Config.model_validate(
        {"data": {"name": "csv", "root": str(path), "records": 6, "held-out": 2}}
    )
    return of_column(federation.load(config), 0, column, prior)


def test_candidates_of_a_column_are_the_record_with_each_of_its_values(tmp_path):
    colours = _of_table(tmp_path, "colour", "uniform")
    assert colours.values == ("red", "green", "blue")
    assert colours.features[:, 1:5].tolist() == [[0, 0, 1, 0], [0, 1, 0, 0], [1, 0, 0, 0]]
    others = colours.features[:, [0, 5]]
    assert (others == others[0]).all() and len(set(colours.labels.tolist())) == 1
    labels = _of_table(tmp_path, "label", "data")
    assert labels.labels.tolist() == [0, 1] and labels.prior.sum() == pytest.approx(1)
    assert labels.baseline == labels.prior.max() >= 0.5
    with pytest.raises(InputError, match=r"--column is 'height'; csv has label, age, colour"):
        _of_table(tmp_path, "height", "uniform")


def test_more_candidates_than_records_are_refused(small):
    known = federation.load(small())
    with pytest.raises(InputError, match="at most 31"):
        of_records(known, 0, 40, 0)


def test_the_command_writes_a_report(small, tmp_path, capsys):
    keys = {"data.pool": 30, "data.records": 24, "data.held-out": 20, "model.name": "linear"}
    settings = [f"{key}={value}" for key, value in keys.items()]
    settings += ["training.rounds=2", "federation.clients=3"]
    out = tmp_path / "report"
    arguments = ["attack", "configs/digits.toml", "--candidates", "8", "trials.count=40"]
    assert exit_of(*arguments, *settings, "--out", str(out), "--json") == 0
    report = json.loads(capsys.readouterr().out)
    assert report == json.loads((out / "report.json").read_text())
    assert report["alarms"] == 0 and report["chance_alarms"] == 2
    assert report["baseline"] == 1 / 8 < report["bound"] < 1
    assert "The adversary guesses which of 8 records" in (out / "report.html").read_text()
