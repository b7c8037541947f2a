"""`fedsim choose` without a limit, as a user types it."""

import csv
import json
import stat

import pytest

from fedsim import experiment as experiments
from fedsim.configuration import dump
from fedsim.experiment import in_process
from fedsim.reports import page as page_of_run
from fedsim.reports.sections.section import TITLES


@pytest.mark.slow
@pytest.mark.usefixtures("without_pages")
def test_a_table_keeps_what_succeeded_names_what_failed_and_skips_what_is_done(
    fedsim, small, tmp_path, monkeypatch
):
    def breaking(plan, console):
        if plan.config.privacy.rho_beta == 0.95:
            raise FloatingPointError("no numbers any more")
        return in_process(plan, console)

    monkeypatch.setattr(experiments, "in_process", breaking)
    monkeypatch.setattr(page_of_run, "render_html", lambda *_: "")
    experiment, out = tmp_path / "tiny.toml", tmp_path / "sweep"
    experiment.write_text(dump(small({"training.rounds": 1, "trials.count": 4})))
    arguments = ("choose", experiment, "--over", "privacy.rho-beta=0.6,0.9,0.95", "--out", out)
    status, _, err = fedsim(*arguments)
    assert (status, "Warning: 1 of 3 runs failed. The first is rho-beta=0.95" in err) == (1, True)
    assert "rho-beta=0.95 failed: no numbers any more" in err
    rows = list(csv.DictReader((out / "summary.csv").read_text().splitlines()))
    assert [row["privacy.rho-beta"] for row in rows] == ["0.6", "0.9", "0.95"]
    assert [row["status"] == "done" for row in rows] == [True, True, False]
    for row, name in zip(rows, ("rho-beta=0.6", "rho-beta=0.9"), strict=False):
        found = json.loads((out / name / "report.json").read_text())
        assert float(row["advantage"]) == found["rows"]["participant"]["attack"]["advantage"]
        assert float(row["epsilon"]) == found["rows"]["participant"]["limit"]["epsilon"]
        assert float(row["accuracy"]) == pytest.approx(found["utility"]["accuracy"]["mean"][-1])
        assert float(row["accuracy_low"]) <= float(row["accuracy"]) <= float(row["accuracy_high"])
        leading = found["empirical"]["leading"]
        proven = found["empirical"]["lower_bounds"][leading]["epsilon"]
        assert (row["bound"], float(row["epsilon_at_least"])) == (leading, proven)
    written = [out / "summary.csv", out / "report.html"]
    assert {stat.S_IMODE(path.stat().st_mode) for path in written} == {0o600}
    page = (out / "report.html").read_text()
    assert TITLES[rows[0]["bound"]] in page
    assert "rho-beta%3D0.6/report.html" in page
    summary = json.loads((out / "report.json").read_text())
    assert len(summary["runs"]) == 3
    written = (out / "rho-beta=0.6" / "events.jsonl").read_bytes()
    for heading in ("accuracy", "advantage", "ρα", "ε"):
        assert f'<th scope="col">{heading}</th>' in page
    over = ("--over", "privacy.rho-beta=0.6,0.9")
    again = ("choose", experiment, *over, "--out", out, "--quiet")
    status, printed, err = fedsim(*again, "--json")
    assert (status, err) == (0, "")
    assert json.loads(printed) == json.loads((out / "report.json").read_text())
    assert (out / "rho-beta=0.6" / "events.jsonl").read_bytes() == written
    # Of another command, whose report must not be lost.
    (out / "report.json").write_text('{"kind": "membership inference"}')
    status, _, err = fedsim(*again)
    assert status == 2
    assert "since it has report.json; name a new directory with --out" in err
    assert (out / "report.json").read_text() == '{"kind": "membership inference"}'


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ([], "the limit on the adversary is missing; give --max-belief"),
        (["--over", "run.seed=1,2", "--min-accuracy", "0.5"], "need a limit on the adversary"),
        (["--over", "run.seed=1,2", "--against", "server"], "need a limit on the adversary"),
        (["--max-belief", "0.9", "--workers", "2"], "drop the limit"),
        (["--over", "run.seed"], "is not KEY=V1,V2"),
        (["--over", "run.seed=1,,2"], "is not KEY=V1,V2"),
        (["--over", "run.sed=1,2"], "did you mean 'run.seed'?"),
        (["--over", "run.seed=1,1"], "has a value twice"),
        (["--over", "run.seed=1", "--over", "run.seed=2"], "given twice"),
        (["--over", "run.out=a,b"], "every run of a grid has its own"),
        (["--over", "run.seed=1", "run.seed=2"], "run.seed is fixed, and --over varies it"),
        (["--over", "run.seed=1", "run.out=a"], "run.out: every run"),
        (["--over", "privacy.rho-beta=0.6,nan"], "not a number (nan)"),
        (["--over", "privacy.rho-beta=0.6,1.5"], "rho-beta=1.5: privacy.rho-beta is 1.5"),
        (["--over", "training.schedule=constant,none"], "schedule=none: "),
        (["--over", "data.records=50,100000"], "records=100000: "),
    ],
)
def test_a_table_of_nothing_sensible_leaves_nothing(
    arguments, complaint, fedsim, experiment, tmp_path
):
    status, out, err = fedsim("choose", experiment, "--out", tmp_path / "sweep", *arguments)
    assert (status, out) == (2, "")
    assert complaint in err
    assert len(err.strip().splitlines()) == 1
    assert not (tmp_path / "sweep").exists()
