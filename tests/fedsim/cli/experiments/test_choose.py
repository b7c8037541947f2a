"""`fedsim choose`, as a user types it."""

import csv
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from rich.console import Console
from scipy.stats import norm

import fedsim as api
from adversaries.errors import InputError
from fedsim import experiment
from fedsim.config import Config, dump, load
from fedsim.experiment import in_process
from fedsim.federation.runs.run_directory import RunDirectory
from fedsim.federation.server.plan import Plan
from fedsim.game.mechanisms import privacy
from fedsim.studies.choose import choose, choose_search

Command = Callable[..., tuple[int, str, str]]

TINY = {
    "training.rounds": 8,
    "training.learning-rate": 4.0,
    "data.records": 600,
    "data.held-out": 100,
    "trials.count": 8,
    "trials.batch": 8,
}
"""As few records and rounds as let every setting learn."""


@pytest.fixture
def tiny(small: Callable[..., Config], tmp_path: Path) -> Path:
    """The file of an experiment that is over at once."""
    path = tmp_path / "tiny.toml"
    path.write_text(dump(small(TINY)))
    return path


@pytest.mark.usefixtures("without_pages")
def test_a_choice_is_made_is_gone_on_with_and_can_be_run(
    fedsim: Command, tiny: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    asked = ("choose", tiny, "--max-belief", 0.8, "--trials", 4, "--out", out)
    status, printed, err = fedsim(*asked, "--json")
    assert status == 0, err
    found = json.loads(printed)
    written = json.loads((out / "report.json").read_text())
    assert found == written
    assert (found["kind"], found["state"], found["chosen"]) == ("choice", "chosen", "rho-beta=0.8")
    rows = list(csv.DictReader((out / "summary.csv").read_text().splitlines()))
    assert [row["chosen"] for row in rows] == ["False", "False", "True", "False", "False"]
    assert [row["meets_limit"] for row in rows] == ["True"] * 3 + ["False"] * 2
    assert {row["evaluated_trials"] for row in rows} == {"4"}
    # Looser settings have less noise, and let the adversary be right more often.
    right = [float(row["right_at_most"]) for row in rows]
    assert right == sorted(right)
    for row in rows:
        assert float(row["accuracy_low_together"]) <= float(row["accuracy_low"])
        assert row["epsilon_from_belief"]
    cost = found["search_cost"]
    assert (cost["settings"], found["search_cost_within_limit"]["settings"]) == (5, 3)
    assert cost["all_trainings"] > found["search_cost_within_limit"]["all_trainings"]
    page = (out / "report.html").read_text()
    assert "What the search itself costs in privacy" in page
    assert "records (--set data.records=" in page  # this search has a part of what is there
    assert "<svg" in page
    # Its own configuration is no other run's: the same command goes on, and does nothing twice.
    kept = (out / "rho-beta=0.8" / "events.jsonl").read_bytes()
    assert fedsim(*asked, "--quiet")[0] == 0
    assert (out / "rho-beta=0.8" / "events.jsonl").read_bytes() == kept
    chosen = load(out / "config.toml")
    assert (chosen.privacy.rho_beta, chosen.trials.count) == (0.8, 8)
    assert fedsim("run", out / "config.toml", "--out", tmp_path / "run", "--quiet")[0] == 0
    # Nor is the search a run, for its configuration.
    for command in (("report", out), ("run", out / "config.toml", "--out", out)):
        status, _, err = fedsim(*command)
        assert (status, "it holds several runs" in err) == (2, True)


@pytest.mark.usefixtures("without_pages")
def test_a_limit_on_the_success_of_any_attack_is_met_by_theory(
    fedsim: Command, tiny: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    asked = ("--max-risk", 0.05, "--baseline-risk", 0.0025, "--trials", 4, "--out", out)
    over = ("--over", "privacy.max-risk=0.02,0.05,0.2")
    status, printed, err = fedsim("choose", tiny, *asked, *over, "--json")
    assert status == 0, err
    written = json.loads(printed)
    assert (written["limit"]["risk"], written["limit"]["baseline"]) == (0.05, 0.0025)
    chosen = load(out / "config.toml")
    assert chosen.privacy.baseline_risk == 0.0025
    for row in written["settings"]:
        report = json.loads((out / row["run"] / "report.json").read_text())
        # The trade-off curve of a Gaussian mechanism, by its closed form.
        mu = float(norm.ppf(0.5 + report["bounds"]["rho_alpha"] / 2) * 2)
        assert row["risk"] == pytest.approx(norm.cdf(norm.ppf(0.0025) + mu), rel=1e-6)
        assert row["meets_limit"] == (row["risk"] <= 0.05 * (1 + 1e-8))
        assert len(report["lowering"]) > 1, "no setting that would lower the risk was computed"
    assert (
        written["chosen"]
        == max(
            (row for row in written["settings"] if row["meets_limit"]), key=lambda row: row["risk"]
        )["run"]
    )
    assert any("is right in at most" in each for each in written["sentences"])


@pytest.mark.slow
@pytest.mark.usefixtures("without_pages")
def test_what_is_interrupted_goes_on_and_what_fails_is_named(
    fedsim: Command, tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, begun = tmp_path / "out", []

    def breaking(plan: Plan, console: Console) -> RunDirectory:
        begun.append(plan.path.name)
        if len(begun) == 2:
            raise KeyboardInterrupt
        if plan.config.privacy.rho_alpha == 0.3:
            raise FloatingPointError("no numbers any more")
        return in_process(plan, console)

    monkeypatch.setattr(experiment, "in_process", breaking)
    over = ("--over", "privacy.rho-alpha=0.1,0.2,0.3")
    asked = ("choose", tiny, "--max-advantage", 0.2, "--trials", 4, "--out", out, *over)
    status, _, err = fedsim(*asked)
    assert (status, "give the same command again" in err) == (130, True)
    assert not (out / "report.json").exists()
    kept = (out / "rho-alpha=0.1" / "events.jsonl").read_bytes()
    status, _, err = fedsim(*asked)
    assert (out / "rho-alpha=0.1" / "events.jsonl").read_bytes() == kept
    assert status == 1
    assert "fedsim: 1 of 3 runs failed. The first is rho-alpha=0.3" in err
    assert json.loads((out / "report.json").read_text())["chosen"] == "rho-alpha=0.2"


@pytest.mark.slow
@pytest.mark.usefixtures("without_pages")
def test_what_no_setting_is_accurate_enough_for_is_said_and_exits_with_1(
    fedsim: Command, tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out"
    asked = ("choose", tiny, "--max-advantage", 0.2, "--trials", 4, "--out", out)
    over = ("--over", "training.rounds=1,2", "--over", "privacy.rho-alpha=0.1,0.2")
    assert fedsim(*asked, *over, "--quiet")[0] == 0
    assert (out / "config.toml").exists()
    status, printed, _ = fedsim(*asked, *over, "--min-accuracy", 0.999, "--json")
    assert status == 1
    found = json.loads(printed)
    assert (found["state"], found["chosen"]) == ("none", None)
    assert len(found["settings"]) == 4
    assert found["nearest"]
    assert found["sentences"][0].startswith("None of the settings meets the limit")
    assert "Nearest: rounds = " in fedsim(*asked, *over, "--min-accuracy", 0.999)[2]
    assert not (out / "config.toml").exists()
    # Not one of them is too lax or not accurate enough: their trials contradict theory.
    candidate = choose.candidate
    with monkeypatch.context() as patched:
        patched.setattr(
            choose_search.choose,
            "candidate",
            lambda *given: replace(candidate(*given), alarm=True),  # type: ignore[type-var]
        )
        status, printed, _ = fedsim(*asked, *over, "--json")
    first, *others = json.loads(printed)["sentences"]
    assert (status, "though some meet the limit in theory" in first) == (1, True)
    assert (
        sum(each.startswith("Left out: ") and "trials contradict theory" in each for each in others)
        == 4
    )
    # The answer stands where one of its sentences cannot be worked out.
    with monkeypatch.context() as patched:
        apart = SimpleNamespace(mechanism=privacy.mechanism, noise_multiplier=_refusing)
        patched.setattr(choose_search, "privacy", apart)
        assert fedsim(*asked, *over, "--quiet")[0] == 0


def _refusing(*given: object) -> None:
    raise InputError("it cannot be worked out")


def test_what_the_search_costs_is_worked_out_before_anything_is_trained(
    fedsim: Command, tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(choose_search, "search_cost", _refusing)
    out = tmp_path / "out"
    status, _, err = fedsim("choose", tiny, "--max-advantage", 0.2, "--out", out)
    assert (status, "it cannot be worked out" in err, out.exists()) == (2, True, False)


@pytest.mark.slow
@pytest.mark.usefixtures("without_pages")
def test_more_trials_are_added_and_no_other_answer_is_overwritten(
    fedsim: Command, tiny: Path, tmp_path: Path
) -> None:
    out, over = tmp_path / "out", ("--over", "privacy.rho-beta=0.7,0.8", "--out", tmp_path / "out")
    assert fedsim("choose", tiny, "--max-belief", 0.8, "--trials", 4, *over)[0] == 0
    before = (out / "summary.csv").read_text()
    status, printed, err = fedsim(
        "choose", tiny, "--max-belief", 0.8, "--trials", 8, *over, "--json"
    )
    assert status == 0, err
    found = json.loads(printed)
    assert {row["evaluated_trials"] for row in found["settings"]} == {8}
    towards = {each["vantage"]: each["epsilon"] for each in found["towards"]}
    assert set(towards) == {"participant", "server", "released-model"}
    assert found["sentences"][1].startswith("Trust is central. Towards a participant")
    assert "the operator of the server" in found["sentences"][1]
    assert found["sentences"][0].startswith("Take ε = ")
    assert "except in up to" in found["sentences"][0]
    # The trials that there were stay, and the same command goes on.
    kept = (out / "rho-beta=0.8" / "events.jsonl").read_bytes()
    assert fedsim("choose", tiny, "--max-belief", 0.8, "--trials", 8, *over)[0] == 0
    assert (out / "rho-beta=0.8" / "events.jsonl").read_bytes() == kept
    after = (out / "summary.csv").read_text()
    assert after != before
    for other in (("--max-belief", 0.75), ("--max-advantage", 0.2)):
        status, _, err = fedsim("choose", tiny, *other, "--trials", 8, *over)
        assert (status, "holds the choice for another limit" in err) == (2, True)
    status, _, err = fedsim("choose", tiny, "--max-belief", 0.8, "--trials", 4, *over)
    assert (status, "has 8 trials already" in err) == (2, True)
    changed = ("--set", "training.rounds=2")
    status, _, err = fedsim("choose", tiny, "--max-belief", 0.8, "--trials", 8, *over, *changed)
    assert (status, "name a new directory with --out" in err) == (2, True)
    assert (out / "summary.csv").read_text() == after


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ([], "the limit on the adversary is missing"),
        (["--max-belief", 0.8, "--max-advantage", 0.2], "several limits are given"),
        (["--max-belief", 0.8, "--baseline-risk", 0.1], "--baseline-risk needs --max-risk"),
        (["--max-belief", 0.4], "--max-belief is 0.4; give a number above 0.5"),
        (["--max-belief", 0.8, "--min-accuracy", 80], "--min-accuracy is 80; give a share"),
        (["--max-belief", 0.8, "--set", "privacy.epsilon=2"], "which fedsim choose searches for"),
        (["--max-belief", 0.8, "--set", "privacy.noise-source=system"], "from the seed"),
        (["--max-belief", 0.8, "--over", "training.rounds=1,0"], "rounds=0,rho-beta=0.6667: "),
        (
            ["--max-belief", 0.8, "--against", "server", "--set", "federation.trust=central"],
            "give --set federation.trust=local or distributed",
        ),
    ],
)
def test_what_cannot_be_searched_for_is_one_line_and_leaves_nothing(
    arguments: list[object], complaint: str, fedsim: Command, tiny: Path, tmp_path: Path
) -> None:
    status, out, err = fedsim("choose", tiny, "--out", tmp_path / "out", *arguments)
    assert (status, out) == (2, "")
    assert complaint in err
    assert len(err.strip().splitlines()) == 1
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
@pytest.mark.usefixtures("without_pages")
def test_the_function_finds_what_the_command_finds(
    fedsim: Command, tiny: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    levels = {"privacy.epsilon": [0.5, 1.0, 3.0]}
    found = api.choose(
        tiny, max_belief=0.8, against="released-model", over=levels, trials=4, out=out
    )
    assert found.config is not None
    assert found.config == load(found.path / "config.toml")
    assert found.config.privacy.epsilon == 1.0
    assert found.config.federation.vantage.value == "released-model"
    over = ("--over", "privacy.epsilon=0.5,1.0,3.0", "--against", "released-model")
    asked = ("choose", tiny, "--max-belief", 0.8, "--trials", 4, "--out", out, *over, "--json")
    status, printed, err = fedsim(*asked)
    assert status == 0, err
    assert json.loads(printed)["chosen"] == found.choice.chosen.name  # type: ignore[union-attr]
