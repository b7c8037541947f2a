"""A study is told as strict JSON, in a terminal's width, and as a page that needs no network."""

import io
import json
import re

import pytest
from rich.console import Console

from fedsim.federation.server import plan
from fedsim.reports.document import terminal
from fedsim.reports.document.html import page as as_page
from fedsim.studies.sensitivity import sensitivity_study
from fedsim.studies.sensitivity.sensitivity_report import LABEL, as_json, rows, told, verdict

CASES = [
    pytest.param(("digits", "add-remove"), marks=pytest.mark.slow),
    ("digits", "replace"),
    ("breast-cancer", "add-remove"),
]


def study(config, top, trials):
    batch = plan.fit_batch(config).trials.batch
    return sensitivity_study.study(config, batch, top, trials)


@pytest.fixture(scope="module", params=CASES, ids="-".join)
def found(request, small):
    data, relation = request.param
    changes = {"data.name": data, "privacy.neighbouring": relation, "training.clipping-norm": 6.0}
    return study(small(changes), 2, 4)


def test_the_report_is_strict_json_with_every_pair(found):
    report = json.loads(json.dumps(as_json(found), allow_nan=False))
    assert report["label"] == LABEL
    assert report["global_sensitivity"] == (6 if report["neighbouring"] == "add-remove" else 12)
    for row, candidate in zip(report["pairs"], found.candidates, strict=True):
        assert row["record"] == candidate.pair.record
        assert found.loaded.split.members[row["record"]] == row["dataset_record"]
        train = found.loaded.split.dataset.train
        assert train.labels[row["dataset_record"]] == row["label"]
        if row["replacement"] is not None:
            assert train.labels[row["dataset_replacement"]] == row["replacement_label"]
        assert 0 < row["mean"] <= row["rms"] <= row["largest"]
    [worst] = [row for row in report["pairs"] if row["choice"] == "worst"]
    assert worst["first"] == pytest.approx(report["largest"], rel=1e-4)


def test_the_page_shows_the_records_and_needs_no_network(found):
    html = as_page(told(found))
    assert "http" not in html.replace("http://www.w3.org", "")
    assert "<script" not in html and 'src="/' not in html
    assert "not a DP release" in html
    is_image = found.loaded.split.dataset.kind == "image"
    shown, count = html.count("data:image/png;base64"), len(found.candidates)
    assert shown == (count if is_image else 0)
    assert html.count("Records at least as unusual") == 0 if is_image else count
    ids = re.findall(r'\bid="([^"]+)"', html)
    assert len(ids) == len(set(ids))


def test_the_terminal_shows_every_pair_within_80_columns(found):
    screen = io.StringIO()
    Console(width=80, file=screen).print(terminal.told(told(found)))
    text = screen.getvalue()
    for cells in rows(found):
        assert re.search(r"[^\S\n]+".join(map(re.escape, cells)), text)  # on a line of its own
    assert max(map(len, text.splitlines())) <= 80
    assert " ".join(LABEL.split()) in " ".join(text.split())


def test_a_choice_as_good_as_all_others_is_not_praised(small):
    said = " ".join(verdict(study(small({"training.clipping-norm": 1e-3}), 1, 2)))
    assert "is 100% of the largest" in said
