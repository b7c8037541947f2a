"""`fedsim choose`, as a user types it."""

import csv
import json

import numpy as np
import pytest
from scipy.stats import norm

import fedsim as api
from fedsim.configuration.files import dump, load
from fedsim.game import federation, trainings
from fedsim.game.trainings import Setting
from fedsim.reports.document.wording import number, percent
from fedsim.studies.choose import choose_search, utility


@pytest.fixture
def tiny(small, tmp_path):
    """The file of an experiment on pictures that is over at once."""
    values = {"training.rounds": 8, "data.records": 600, "data.held-out": 100}
    path = tmp_path / "tiny.toml"
    path.write_text(dump(small(values)))
    return path


@pytest.fixture
def bank(tmp_path):
    """A table of 1,500 customers of whom 10 % default, by two of its four columns."""
    random = np.random.default_rng(0)
    values = random.normal(size=(1500, 4)).round(3)
    odds = 1.2 * values[:, 0] - 0.9 * values[:, 1] - 2.9
    default = random.random(1500) < 1 / (1 + np.exp(-odds))
    lines = [f"{','.join(map(str, row))},{int(y)}" for row, y in zip(values, default, strict=True)]
    path = tmp_path / "bank.csv"
    path.write_text("\n".join(["age,income,loan,savings,default", *lines]) + "\n")
    return path


@pytest.mark.slow
@pytest.mark.usefixtures("without_pages")
def test_an_uneven_table_is_answered_without_any_further_option(fedsim, bank, tmp_path):
    written = tmp_path / "bank.toml"
    assert fedsim("init", written, "--data", bank, "--label", "default")[0] == 0
    out = tmp_path / "out"
    asked = ("choose", written, "--max-belief", 0.9, "--out", out)
    status, printed, err = fedsim(*asked, "--json")
    assert status == 0, err
    found = json.loads(printed)
    assert found == json.loads((out / "report.json").read_text())
    rows = {row["chosen"]: row for row in found["settings"]}
    chosen = rows[True]
    assert chosen["criterion"] == "AUC"
    assert chosen["low"] < chosen["auc"] == chosen["value"] < chosen["high"]
    # Within two points of logistic regression without privacy, which is right.
    assert found["without_privacy"] > 0.75
    assert chosen["value"] > found["without_privacy"] - 0.02
    # The strictest that is at most half a point worse than the best within the limit.
    within = [row for row in found["settings"] if row["meets_limit"]]
    best = max(row["value"] for row in within)
    assert max(row["epsilon"] for row in within) == pytest.approx(np.log(9), rel=1e-3)
    near = [row["epsilon"] for row in within if row["value"] >= best - 0.005]
    assert chosen["epsilon"] == pytest.approx(min(near), rel=1e-6)
    kinds = {(row["model.name"], row["training.rounds"]) for row in found["settings"]}
    assert kinds >= {(name, 30 * times) for name in ("linear", "mlp") for times in (1, 2, 5)}
    assert found["sentences"][0].startswith(f"Take ε = {number(chosen['epsilon'])}")
    stated = (
        f"limit of 90.0%: the belief of the participant is at most {percent(chosen['rho_beta'])}"
    )
    assert stated in found["sentences"][0]
    assert "; without privacy, a linear model has" in " ".join(found["sentences"])
    assert "right about one record in at most" in found["sentences"][-1]
    # The answer's last line is what a manager can be told.
    again = " ".join(fedsim(*asked)[1].split())
    assert found["sentences"][-1] in again
    # The chosen configuration trains.
    settings = load(out / "config.toml")
    assert settings.privacy.rho_beta == pytest.approx(chosen["rho_beta"], rel=1e-3)
    assert settings.training.rounds == chosen["training.rounds"]
    loaded = federation.load(settings)
    taken = Setting(settings, chosen["noise_multiplier"])
    alone = trainings.trained([taken], loaded, chosen["trainings"], start=choose_search.FIRST)
    areas = [row["area"] for row in utility.measure(loaded, alone)]
    assert np.mean(areas) == pytest.approx(chosen["value"], abs=1e-4)
    least = fedsim(*asked, "--min-auc", 0.7, "--json")
    strict = next(row for row in json.loads(least[1])["settings"] if row["chosen"])
    assert strict["epsilon"] <= chosen["epsilon"]
    assert strict["low"] >= 0.7


@pytest.mark.usefixtures("without_pages")
def test_a_choice_is_continued_and_can_be_run(fedsim, tiny, tmp_path, monkeypatch):
    out = tmp_path / "out"
    asked = ("choose", tiny, "--max-belief", 0.8, "--out", out)
    original, calls = trainings.trained, []

    def interrupted(*given):
        calls.append(given)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return original(*given)

    monkeypatch.setattr(trainings, "trained", interrupted)
    status, _, err = fedsim(*asked)
    assert (status, "give the same command again" in err) == (130, True)
    assert not (out / "report.json").exists()
    status, printed, err = fedsim(*asked, "--json")
    assert status == 0, err
    found, done = json.loads(printed), len(calls)
    # What is finished is not trained again.
    assert fedsim(*asked, "--quiet")[0] == 0
    assert len(calls) == done
    rows = list(csv.DictReader((out / "summary.csv").read_text().splitlines()))
    assert [row["meets_limit"] for row in rows] == ["True"] * 3 + ["False"] * 2
    assert [row["chosen"] for row in rows] == ["False", "False", "True", "False", "False"]
    assert {row["criterion"] for row in rows} == {"accuracy"}
    # Looser settings have less noise, and let the adversary be right more often.
    right = [float(row["right_at_most"]) for row in rows]
    assert right == sorted(right)
    assert found["chosen"]["privacy.rho-beta"] == 0.8
    page = (out / "report.html").read_text()
    assert "What the search itself costs in privacy" in page
    assert "<svg" in page
    assert fedsim("run", out / "config.toml", "--out", tmp_path / "run", "--quiet")[0] == 0
    # Nor is the search a run, for its configuration.
    for command in (("report", out), ("run", out)):
        status, _, err = fedsim(*command)
        assert (status, f"run the chosen one with {out / 'config.toml'}" in err) == (2, True)
    assert fedsim("run", out / "config.toml", "--out", out)[0] == 2
    # No other answer is overwritten.
    for other in (("--max-belief", 0.75), ("--max-belief", 0.8, "run.seed=5")):
        status, _, err = fedsim("choose", tiny, *other, "--out", out)
        assert (status, "holds the choice for another" in err) == (2, True)


@pytest.mark.usefixtures("without_pages")
def test_a_limit_on_the_success_of_any_attack_is_met_by_theory(fedsim, tiny, tmp_path):
    asked = ("--max-risk", 0.05, "--baseline-risk", 0.0025, "--out", tmp_path / "out")
    over = ("--over", "privacy.max-risk=0.02,0.05,0.2", "--over", "training.learning-rate=4")
    status, printed, err = fedsim("choose", tiny, *asked, *over, "--json")
    assert status == 0, err
    written = json.loads(printed)
    assert (written["limit"]["risk"], written["limit"]["baseline"]) == (0.05, 0.0025)
    assert load(tmp_path / "out" / "config.toml").privacy.baseline_risk == 0.0025
    for row in written["settings"]:
        # The trade-off curve of a Gaussian mechanism, by its closed form.
        mu = float(norm.ppf(0.5 + row["rho_alpha"] / 2) * 2)
        assert row["risk"] == pytest.approx(norm.cdf(norm.ppf(0.0025) + mu), rel=1e-6)
        assert row["meets_limit"] == (row["risk"] <= 0.05 * (1 + 1e-8))
    assert written["chosen"]["privacy.max-risk"] == 0.05
    assert any("the model succeeds in at most" in each for each in written["sentences"])


@pytest.mark.usefixtures("without_pages")
def test_a_search_that_fails_says_what_to_change(fedsim, tiny, tmp_path):
    out = tmp_path / "out"
    asked = ("choose", tiny, "--max-advantage", 0.01, "--out", out)
    over = ("--over", "training.rounds=1,2", "--over", "training.learning-rate=0.001")
    status, printed, _ = fedsim(*asked, *over, "--json")
    found = json.loads(printed)
    assert (status, found["state"], found["chosen"]) == (1, "none", None)
    text = " ".join(found["sentences"])
    assert text.startswith("No setting can be chosen: no model that meets the limit")
    assert "More records help most" in text
    assert not (out / "config.toml").exists()


@pytest.mark.usefixtures("without_pages")
def test_a_class_without_held_out_records_and_a_diverged_model_end_no_search(
    fedsim, tiny, tmp_path
):
    """Three held-out records cannot have ten classes, and a rate of 1e36 overflows."""
    asked = ("choose", tiny, "--max-belief", 0.8, "--out", tmp_path / "out", "--json")
    sgd = ("training.optimizer=sgd", "--over", "training.learning-rate=1.5,1e36")
    status, printed, err = fedsim(*asked, *sgd, "data.held-out=3")
    assert status in (0, 1), err
    assert {row["training.learning-rate"] for row in json.loads(printed)["settings"]} == {1.5}


@pytest.mark.slow
@pytest.mark.usefixtures("without_pages")
def test_sampled_records_are_compared_at_one_noise_level(fedsim, bank, tmp_path):
    """With sampling, equal epsilons have other advantages for other numbers of rounds."""
    written, out = tmp_path / "bank.toml", tmp_path / "out"
    assert fedsim("init", written, "--data", bank, "--label", "default")[0] == 0
    fixed = ("training.sampling-rate=0.2", "model.name=linear")
    over = ("--over", "training.rounds=10,40", "--over", "privacy.rho-beta=0.9")
    asked = ("choose", written, "--max-belief", 0.9, "--out", out, *fixed, *over, "--json")
    status, printed, err = fedsim(*asked)
    assert status == 0, err
    rows = json.loads(printed)["settings"]
    assert len({row["rho_alpha"] for row in rows}) == 2
    best = max(row["value"] for row in rows)
    assert next(row["value"] for row in rows if row["chosen"]) >= best - 0.005


@pytest.mark.usefixtures("without_pages")
def test_the_function_finds_what_the_command_finds(fedsim, tiny, tmp_path):
    out = tmp_path / "out"
    over = {"privacy.epsilon": [0.5, 1.0, 3.0], "training.learning-rate": [4.0]}
    found = api.choose(tiny, max_belief=0.8, against="released-model", over=over, out=out)
    chosen = load(found.path / "config.toml")
    assert (chosen.privacy.epsilon, chosen.federation.vantage.value) == (1.0, "released-model")
    assert set(found.figures()) == {"frontier"}
    given = ("--over", "privacy.epsilon=0.5,1.0,3.0", "--over", "training.learning-rate=4.0")
    asked = ("choose", tiny, "--max-belief", 0.8, "--against", "released-model", "--out", out)
    status, printed, err = fedsim(*asked, *given, "--json")
    assert status == 0, err
    assert json.loads(printed)["chosen"] == dict(found.details.choice.chosen.values)
