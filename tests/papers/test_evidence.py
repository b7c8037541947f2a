"""Every number of the page Evidence is a file with its command, commit and date."""

import re

import pytest

from papers import evidence
from papers.findings import MadeItem, Number, Reproduced
from tests.benchmarks.tables import Table

RESULTS = evidence.read()
MEASURED = {"commit": "abc", "date": "2030-01-01", "seconds": 5}


def test_the_page_is_made_from_the_results():
    assert evidence.PAGE.read_text("utf-8") == evidence.page(RESULTS), "papers/evidence.py makes it"
    used = {name for _, name in evidence.NAMED.findall(evidence.TEMPLATE.read_text("utf-8"))}
    assert used - {"headings"} == set(RESULTS)


def test_no_sentence_has_a_measured_number_of_its_own():
    text = re.sub(r"`[^`]*`|\{[^}]*\}", "", evidence.TEMPLATE.read_text("utf-8"))
    stated = set(re.findall(r"\d+\.\d+|\d+ of \d+|\d+ ?%", text))
    assert stated <= {"95 %", "0.5"}  # the level of intervals, and a setting


@pytest.mark.parametrize("name", RESULTS)
def test_a_result_says_how_it_was_measured(name):
    result = RESULTS[name]
    assert (evidence.PAPERS.parent / result.source).exists()
    assert result.commit and result.command and result.question
    if result.interval is not None:
        assert result.interval[0] <= result.value <= result.interval[1]


def test_what_is_recorded_is_called_older():
    older = next(each for each in RESULTS.values() if each.recorded)
    assert f"| older: {older.commit}, {older.date} |" in older.row()
    assert "older" not in older.model_copy(update={"recorded": False}).row()
    assert f"{RESULTS['bernau-mnist'].shown()}†" in evidence.page(RESULTS)


def test_a_run_writes_its_numbers_and_the_page(tmp_path, monkeypatch):
    (tmp_path / "results").mkdir()
    for name in ("mutations", "tightness", "xiao-means"):
        (tmp_path / "results" / f"{name}.json").write_text(RESULTS[name].model_dump_json())
    (tmp_path / "evidence.md").write_text("{tightness}; {mutations}; {xiao-means}")
    monkeypatch.setattr(evidence, "RESULTS", tmp_path / "results")
    monkeypatch.setattr(evidence, "TEMPLATE", tmp_path / "evidence.md")
    monkeypatch.setattr(evidence, "PAGE", tmp_path / "page.md")
    rows = [("other", "1"), ("headline", "3.5 (3.25–3.75)")]
    table = Table("Bound reached on a Gaussian mechanism, by its true ε", ("bound", "ε = 4"), rows)
    evidence.record_tables("tightness", [table], MEASURED)
    broken = Table("Broken variants, 200 trials of 10 rounds: 12 of 16 convicted", (), [])
    evidence.record_tables("mutations", [broken], MEASURED)
    found = Reproduced("It holds.", [Number("Gaussian, n = 2: nats", 0.5)])
    item = MadeItem("xiao", "means", "Means", "full", "0", "", 0.0, "make", found)
    evidence.record_item(item, MEASURED)
    assert (tmp_path / "page.md").read_text() == (
        "3.5 (3.25 to 3.75); 75 (47.6 to 92.7) %; 0.5, published 0.347"
    )
    new = evidence.read()["tightness"]
    assert (new.commit, new.seconds, new.recorded) == ("abc", 5, False)


def test_a_cell_is_read_with_its_interval():
    assert evidence.parsed("0.119 (0.108 to 0.131)") == (0.119, (0.108, 0.131))
    assert evidence.parsed("-0.33% ± 0.5%") == (-0.33, pytest.approx((-0.83, 0.17)))
    assert evidence.parsed("2.34") == (2.34, None)
