"""A study is told as strict JSON, in a terminal's width, and as a page that needs no network."""

import io
import json
import re
import stat
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from adversaries.neighbours.rank_correlation import RankCorrelation
from fedsim.configuration import Config
from fedsim.federation.server import plan
from fedsim.studies.sensitivity import sensitivity_study
from fedsim.studies.sensitivity.sensitivity_report import (
    as_json,
    headings,
    render_html,
    rows,
    summary,
    verdict,
    write_sensitivity,
)
from fedsim.studies.sensitivity.sensitivity_study import LABEL, Study

CASES = [
    pytest.param(("digits", "add-remove"), marks=pytest.mark.slow),
    ("digits", "replace"),
    ("breast-cancer", "add-remove"),
    pytest.param(("breast-cancer", "replace"), marks=pytest.mark.slow),
]


def study(config: Config, top: int, trials: int) -> Study:
    batch = plan.fit_batch(config).trials.batch
    experiment, confidence = config.experiment, config.audit.confidence
    return sensitivity_study.study(experiment, confidence, batch, top, trials)


@pytest.fixture(scope="module", params=CASES, ids="-".join)
def found(request: pytest.FixtureRequest, small: Callable[..., Config]) -> Study:
    data, relation = request.param
    changes = {"data.name": data, "privacy.neighbouring": relation, "training.clipping-norm": 6.0}
    return study(small(changes), 2, 4)


def test_the_report_is_strict_json_with_every_pair(found: Study) -> None:
    report = json.loads(json.dumps(as_json(found), allow_nan=False))
    assert report["label"] == LABEL
    assert (report["trials"], report["steps"]) == (4, 3)
    assert report["global_sensitivity"] == (6 if report["neighbouring"] == "add-remove" else 12)
    for row, candidate in zip(report["pairs"], found.candidates, strict=True):
        assert row["record"] == candidate.pair.record
        assert found.loaded.split.members[row["record"]] == row["dataset_record"]
        train = found.loaded.split.dataset.train
        assert train.labels[row["dataset_record"]] == row["label"]
        if row["replacement"] is not None:
            assert train.labels[row["dataset_replacement"]] == row["replacement_label"]
        assert row["seen"][0]["rank"] == candidate.seen[0].rank
        assert 0 < row["mean"] <= row["rms"] <= row["largest"]
        assert all(len(row["by_step"][name]) == 3 for name in ("low", "median", "high"))
    for view in report["views"]:
        assert 0 < view["reach"] <= 1
        rhos = [row["rho"] for row in view["measures"].values() if "rho" in row]
        assert rhos == sorted(rhos, reverse=True)
    [worst] = [row for row in report["pairs"] if row["choice"] == "worst"]
    assert worst["seen"][0]["rank"] == 1
    first, chosen = report["views"][0], report["pairs"][0]["record"]
    reached = first["by_record"]
    assert len(reached) == report["records"]
    assert max(reached) == pytest.approx(worst["seen"][0]["local_sensitivity"], rel=1e-6)
    assert reached[worst["record"]] == pytest.approx(max(reached), rel=1e-6)
    larger = sum(value > reached[chosen] * (1 + 1e-5) for value in reached)
    assert 1 + larger <= first["record_rank"] <= len(reached)
    assert report["views"][0]["largest"]["sensitivity"] == worst["seen"][0]["local_sensitivity"]


def test_the_page_shows_the_records_and_needs_no_network(found: Study) -> None:
    page = render_html(found)
    assert "http" not in page.replace("http://www.w3.org", "")
    assert "<script" not in page and 'src="/' not in page
    assert "not a DP release" in page
    assert "\\" not in page
    images = found.loaded.split.dataset.kind == "image"
    replaced = found.candidates[0].pair.replacement is not None
    shown = page.count("data:image/png;base64")
    if images:
        assert shown == len(found.candidates) * (1 + replaced)
        assert 'class="stacked attributes"' not in page
    else:
        assert shown == 0
        assert page.count('class="stacked attributes"') == len(found.candidates)
        assert ("Replacement" if replaced else "Typical of D") in page
    ids = re.findall(r'\bid="([^"]+)"', page)
    assert len(ids) == len(set(ids))


def test_the_terminal_shows_every_pair_within_80_columns(found: Study) -> None:
    screen = io.StringIO()
    Console(width=80, file=screen).print(summary(found))
    text = screen.getvalue()
    for one, cells in zip(found.candidates, rows(found), strict=True):
        assert re.search(r"[^\S\n]+".join(map(re.escape, cells)), text)  # on a line of its own
        assert f"{one.rms:.3f}" in text
    assert "max 2" in text and "worst" in text and "euclidean" in text
    assert max(map(len, text.splitlines())) <= 80
    assert " ".join(LABEL.split()) in " ".join(text.split())


def test_a_rank_in_millions_is_a_share(found: Study) -> None:
    view, first = found.views[0], found.candidates[0]
    views = (replace(view, truth=replace(view.truth, pairs=5_990_000)), *found.views[1:])
    for rank, shown in ((9_999, "9,999"), (599_000, "10.0%"), (5_990_000, "100%")):
        seen = (replace(first.seen[0], rank=rank), *first.seen[1:])
        many = replace(found, views=views, candidates=(replace(first, seen=seen),))
        assert rows(many)[0][headings(many).index("rank")] == shown


def test_the_verdict_says_how_close_the_choice_comes(found: Study) -> None:
    said = " ".join(verdict(found))
    assert "by euclidean" in said
    assert f"(rank {found.candidates[0].seen[0].rank}" in said
    assert "rank correlation" in said and "95%" in said


def test_a_choice_as_good_as_all_others_is_not_praised(small: Callable[..., Config]) -> None:
    said = " ".join(verdict(study(small({"training.clipping-norm": 1e-3}), 1, 2)))
    assert "is 100% of the largest" in said
    assert "all local sensitivities are equal" in said
    assert "No dissimilarity can be compared" in said


def test_a_report_is_its_users_alone(found: Study, tmp_path: Path) -> None:
    page = write_sensitivity(found, tmp_path / "out")
    assert stat.S_IMODE(page.parent.stat().st_mode) == 0o700
    assert {path.name for path in page.parent.iterdir()} == {"report.html", "report.json"}
    assert {stat.S_IMODE(path.stat().st_mode) for path in page.parent.iterdir()} == {0o600}


def test_what_orders_the_other_way_round_is_said_to(found: Study) -> None:
    best = next(iter(found.views[0].correlations))
    said = verdict(_first_compared(found, RankCorrelation(-0.5, -0.7, -0.2)))[2]
    assert "Every dissimilarity" in said and "opposite to" in said
    assert best in said and "-0.5" in said.replace("\N{MINUS SIGN}", "-")
    said = verdict(_first_compared(found, RankCorrelation(-0.5, -0.7, 0.1)))[2]
    assert "No dissimilarity is shown" in said
    said = verdict(_first_compared(found, RankCorrelation(0.5, 0.2, 0.7)))[2]
    assert "most like" in said and "selected on the same data" in said


def _first_compared(found: Study, best: RankCorrelation) -> Study:
    """Return a study whose first view has another best correlation."""
    view = found.views[0]
    now = {**view.correlations, next(iter(view.correlations)): best}
    return replace(found, views=(replace(view, correlations=now), *found.views[1:]))


def test_the_page_is_headed_by_its_data(found: Study) -> None:
    experiment, data = found.experiment, found.experiment.data.name
    for name, subject in (("mine", f"{data} (mine)"), (data, data)):
        run = experiment.run.model_copy(update={"name": name})
        page = render_html(replace(found, experiment=replace(experiment, run=run)))
        assert f"<title>Dataset sensitivity of {subject}</title>" in page
        assert re.search(rf"<h1[^>]*>\s*{re.escape(subject)}\s*</h1>", page)
