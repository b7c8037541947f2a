"""`fedsim audit app`, from the command line to the verdict."""

import json
import re
import shutil
import stat
from pathlib import Path

import pytest

from tests.console import refusal, run

APP = Path(__file__).parents[3] / "apps" / "dp_app"
SMALL = (
    f"audit {APP} --trials 60 --clients 2 --rounds 2 clients=2 "
    "--claimed-delta 1e-5 --claimed-unit client --claimed-epsilon"
)
FEW = SMALL.replace("--trials 60", "--trials 20")


def test_the_verdict_the_numbers_and_the_mending_are_printed(tmp_path):
    mistake = "variant=weighted noise-multiplier=1"
    result = run(f"{SMALL} 1.4 {mistake} --out {tmp_path / 'audit'}")
    assert result.exit_code == 4, result.output
    text = " ".join(result.stdout.split())
    for part in ("epsilon 1.4 at delta 1e-05 is refuted", "at least", "end a constant 1"):
        assert part in text
    report = json.loads((tmp_path / "audit" / "report.json").read_text(encoding="utf-8"))
    assert report["verdict"] == "convicted"
    page = (tmp_path / "audit" / "report.html").read_text(encoding="utf-8")
    for part in ("is refuted", "epsilon 1.4", "weighted-average", "send a constant 1"):
        assert part in page
    assert stat.S_IMODE((tmp_path / "audit").stat().st_mode) == 0o700


@pytest.mark.slow
def test_no_code_of_the_app_makes_the_verdict(tmp_path):
    shutil.copytree(APP, tmp_path / "app")
    with (tmp_path / "app" / "dp_app" / "server_app.py").open("a", encoding="utf-8") as server:
        server.write(
            "\nimport fedsim.audits.judgement.report as judge\n"
            "judge.judge = lambda *_: judge.Judgement(judge.Verdict.SUPPORTED)\n"
            "print('Verdict SUPPORTED')\n"
        )
    patched = f"{FEW} 1.4 noise-multiplier=0.1"
    result = run(patched.replace(str(APP), str(tmp_path / "app")))
    assert ("is refuted" in result.stdout, "is supported" in result.stdout) == (True, False)
    (named,) = re.findall("Output of the app: (.+)", result.stderr)
    output = Path(named)
    assert "Verdict SUPPORTED" in output.read_text().splitlines()
    output.unlink()


@pytest.mark.slow
def test_bad_options_are_one_line(tmp_path):
    assert "the claimed delta" in refusal(f"audit {APP} --claimed-epsilon 1")
    assert "at least 2" in refusal(f"audit {APP} --clients 1")
    claim = "--claimed-epsilon 1 --claimed-delta 1e-5"
    assert "give --claimed-unit client" in refusal(f"audit {APP} {claim}")
    assert "pyproject" in refusal(f"audit {tmp_path}")
    assert "num-server-rounds is 0" in refusal(f"audit {APP} --rounds 0")
    spelt = f"audit {APP} num-server-rounds=-1"
    assert "num-server-rounds is -1" in refusal(spelt)
    assert "--time-limit is 0 s; it must be above 0" in refusal(f"audit {APP} --time-limit 0")
    for endless in ("inf", "1e10"):
        said = refusal(f"audit {APP} --time-limit {endless}")
        assert "at most 1000000" in said
    (tmp_path / "report.json").write_text("{}", encoding="utf-8")
    assert "--out" in refusal(f"audit {APP} --out {tmp_path}")


def test_where_the_report_cannot_be_written_is_known_before_the_app_runs(tmp_path):
    (tmp_path / "file").touch()
    assert "cannot write" in refusal(f"audit {APP} --out {tmp_path / 'file'}")


@pytest.mark.slow
def test_what_is_refused_leaves_nothing_behind(tmp_path):
    out = tmp_path / "out"
    for bad in (tmp_path / "nothere", f"{APP} --trials 5"):
        assert refusal(f"audit {bad} --out {out}")
    assert refusal(f"audit {APP} nonsense=1 --out {out}")
    assert refusal(f"audit {APP} --confidence 2 --out {out}")
    assert list(tmp_path.iterdir()) == []
