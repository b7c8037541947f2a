"""Several runs in one table: a row for each trust and vantage."""

import math
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from adversaries.errors import InputError
from fedsim.audits.results.measured import ReleasedTogether
from fedsim.reports import comparison
from fedsim.reports.document import terminal
from fedsim.reports.document.html import fragment
from fedsim.reports.document.wording import percent
from fedsim.reports.sections.every_audit import mark


@pytest.fixture(scope="session")
def of(written):
    """Return a function that makes the report of a run under a trust, measured at two vantages."""
    report = written("central").report
    found = report.row
    assert found.predicted is not None
    predicted = replace(found.predicted, advantage=0.2)
    limit = replace(found.limit, noise_multiplier=4.0, epsilon=1.5, rho_alpha=0.25)

    def row(observer, advantage, good):
        ends = (0.1, 0.3)
        attack = replace(report.attack, advantage=advantage, interval=ends, near_prediction=good)
        standing = "below" if good else "contradicted"
        shown = replace(found, observer=observer, standing=standing, limit=limit)
        return replace(shown, attack=attack, predicted=predicted)

    none = replace(limit, noise_multiplier=0.0, epsilon=math.inf, rho_alpha=1.0)
    rows = {
        "server": replace(row("server", 0.9, False), limit=none),
        "participant": row("participant", 0.21, True),
        "released-model": replace(report.rows["released-model"], limit=limit),
    }

    def make(trust):
        details = replace(report.details, trust=trust)
        return replace(report, name="vantages", rows=rows, details=details)

    return make


def _with(report, **details):
    return replace(report, details=replace(report.details, **details))


def _side_by_side(reports):
    directories = [Path(f"runs/{place}") for place in range(len(reports))]
    return comparison.side_by_side(directories, reports)


def _shown(reports, width=140):
    console = Console(width=width)
    with console.capture() as capture:
        console.print(terminal.shown(*comparison.blocks(_side_by_side(reports))))
    return capture.get()


def test_rows_are_trust_by_vantage_with_a_verdict(of):
    rows = _side_by_side([of("central"), of("local")])
    assert [(row["trust"], row["vantage"]) for row in rows] == [
        (trust, vantage)
        for trust in ("central", "local")
        for vantage in ("server", "participant", "released-model")
    ]
    assert [row["verdict"] for row in rows[:3]] == [
        "Contradicted, apart from prediction",
        "Below the limit",
        "Limited by theory",
    ]
    assert rows[1]["predicted"] == 0.2
    assert rows[1]["measured"] == 0.21
    assert rows[1]["interval"] == (0.1, 0.3)
    assert rows[2]["measured"] is None


def test_every_row_has_the_state_of_the_runs_own_page_and_the_worst_comes_first(of):
    report = of("central")
    turned = replace(report, rows=dict([*report.rows.items()][::-1]))
    rows = _side_by_side([turned])
    assert [row["vantage"] for row in rows] == ["released-model", "participant", "server"]
    assert [row["state"] for row in rows] == [each.standing for each in turned.rows.values()]
    for each, row in zip(turned.rows.values(), rows, strict=True):
        assert row["verdict"].startswith(mark(turned, each).text)


def test_privacy_stands_beside_what_it_costs(of):
    report = of("central")
    rows = _side_by_side([report])
    row = next(row for row in rows if row["vantage"] == "participant")
    limit = report.rows["participant"].limit
    accuracy = report.details.utility.accuracy.mean[-1]
    assert (row["criterion"], row["value"]) == ("accuracy", accuracy)
    assert (row["tail_limit"], row["delta"]) == (limit.exceeded, report.delta)
    shown = " ".join(_shown([report]).split())
    page = fragment(comparison.blocks(rows))
    for words in (shown, page):
        for value in ((1 + row["rho_alpha"]) / 2, row["value"]):
            assert percent(value) in words
        assert f"{row['delta']:g}" in words


def test_eighty_characters_show_every_number_and_verdict(of):
    reports = [
        replace(_with(of(trust), colluding=3), name=f"digits-{trust}")
        for trust in ("central", "distributed")
    ]
    shown = _shown(reports, 80)
    assert "…" not in shown
    assert max(map(len, shown.splitlines())) <= 80
    words = "60.5%|55.0%|none|100%|released|Below the|Contradicted|prediction|verdict|collude"
    assert all(each in shown for each in words.split("|"))
    assert "intervals at 95.0%" in shown


def test_runs_of_one_name_are_told_apart_by_their_directories(of):
    shown = _shown([of("central"), of("central")])
    assert "1: vantages, runs/0" in shown
    assert "2: vantages, runs/1" in shown


def test_each_row_has_its_confidence_where_runs_differ(of):
    other = of("central")
    here = other.row
    half = replace(here, attack=replace(other.attack, confidence=0.5))
    other = replace(other, rows=other.rows | {"participant": half})
    shown = " ".join(_shown([of("central"), other]).split())
    assert (shown.count("intervals at 95.0%"), shown.count("95.0%, 50.0%")) == (2, 1)


def test_a_run_is_compared_with_itself_under_no_spelling(of, tmp_path):
    run, link = tmp_path / "run", tmp_path / "link"
    run.mkdir()
    link.symlink_to(run)
    for other in (run, link, tmp_path / "run" / ".." / "run"):
        with pytest.raises(InputError, match=r"are the same run; give each run once$"):
            comparison.side_by_side([run, other], [of("central"), of("local")])


def test_a_run_with_real_noise_says_what_all_of_its_trainings_released(of):
    released = {"trainings": 20, "epsilon": 29.5, "delta": 0.01, "vantage": "server"}
    everything = ReleasedTogether(
        **released, rounds=60, rho_beta=1.0, epsilon_of_one_training=2.0, vantages={}
    )
    real = _with(of("local"), released=everything)
    rows = _side_by_side([of("central"), real])
    assert [row["released"] for row in rows] == [None] * 3 + [released] * 3
    shown = " ".join(_shown([of("central"), real]).split())
    assert "ε = 29.500 at δ = 0.01 towards the server, released by 20 training(s)" in shown
    assert comparison.ADD_UP in shown
    assert "released by" not in _shown([of("central"), of("local")])


def test_uneven_classes_are_compared_by_their_criterion(written):
    """9 of 10 records are of one class: an accuracy of 90 % says nothing, and is not shown."""
    report = written("central").report

    def ranking(area):
        utility = report.details.utility
        measured = replace(utility.measured, of_class=(90, 10), area_under_curve=area)
        return _with(report, utility=replace(utility, measured=measured))

    rows = _side_by_side([ranking(0.7), ranking(0.75)])
    assert {(row["criterion"], row["value"]) for row in rows} == {("AUC", 0.7), ("AUC", 0.75)}
    shown = _shown([ranking(0.7), ranking(0.75)])
    assert "AUC 0.700" in shown
    assert "AUC 0.750" in shown
