"""report.json: its schema, what is refused, and what comes back as it was."""

import json
import math
import subprocess
import sys
from dataclasses import replace
from functools import cache

import jsonschema
import pytest

from adversaries.errors import InputError
from fedsim.audits.judgement import report as document
from fedsim.audits.run import report as results
from fedsim.audits.run.report import RunDetails, accounted, decode
from fedsim.federation.runs.run_directory import RunDirectory
from fedsim.reports.kinds import schema as kinds
from tests.console import exit_of

from .conftest import KINDS


@cache
def _validator():
    """Return what checks a report; one test checks the schema itself, which takes longer."""
    return jsonschema.Draft202012Validator(document.schema(RunDetails))


@pytest.mark.parametrize("kind", KINDS)
def test_a_report_follows_the_schema_and_comes_back_as_it_was(kind, written):
    report = written(kind).report
    values = json.loads(json.dumps(report.report, allow_nan=False))
    _validator().validate(values)
    assert decode(values) == report


def test_what_is_infinite_is_infinite_and_what_was_not_measured_is_null(written):
    report = written("server").report
    assert accounted(report).epsilon == report.details.mechanism.mu == math.inf
    values = report.report
    assert (
        values["rows"]["server"]["limit"]["epsilon"]
        == values["details"]["mechanism"]["mu"]
        == "Infinity"
    )
    with pytest.raises(ValueError, match="is NaN"):
        _ = replace(report, delta=math.nan).report


def _without(values):
    del values["rows"]["server"]["limit"]["rho_alpha"]


def _another(values):
    values["details"]["bounds"]["rho_gamma"] = 0.5


def _word(values):
    values["delta"] = "large"


def _number(values):
    values["name"] = 7


DAMAGE = {
    "it has no 'rows.server.limit.rho_alpha'": _without,
    "it has 'details.bounds.rho_gamma', which no report has": _another,
    "its 'delta' is 'large'": _word,
    "its 'name' is 7": _number,
}


def test_a_run_whose_rows_say_too_little_is_refused(written):
    values = written("central").report.report
    server = values["rows"]["server"] | {"limit": None}
    with pytest.raises(ValueError, match=r"its 'rows.server.limit' is None"):
        decode(values | {"rows": values["rows"] | {"server": server}})
    with pytest.raises(ValueError, match=r"it has no 'rows.nobody'"):
        decode(values | {"vantage": "nobody"})


@pytest.mark.parametrize("complaint", DAMAGE)
def test_a_report_that_was_changed_by_hand_is_refused(complaint, written):
    values = json.loads(json.dumps(written("central").report.report))
    DAMAGE[complaint](values)
    with pytest.raises(jsonschema.ValidationError):
        _validator().validate(values)
    with pytest.raises(ValueError, match=complaint):
        decode(values)


MANY = {str(number): {} for number in range(30_000)}


@pytest.mark.parametrize(
    "hostile",
    [
        {"findings": [{}] * 30_000},
        {"details": {"config": MANY}},
        {"rows": MANY},
        {"details": {"data": MANY}},
        MANY,
    ],
    ids=["list", "words", "rows", "a part", "all"],
)
def test_a_report_of_wrong_entries_takes_little_memory(hostile, written):
    """In a process of its own: pydantic's errors are not in Python's memory."""
    values = written("central").report.report
    details = {"details": values["details"] | hostile.get("details", {})}
    both = [values | hostile | details, hostile]
    read = subprocess.run(
        [sys.executable, "-c", READ],
        input=json.dumps(both),
        capture_output=True,
        text=True,
        check=False,
    )
    assert read.returncode == 0, read.stderr
    assert int(read.stdout) < 60e6


READ = """
import json, resource, sys
from fedsim.audits.run.report import decode

most = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
try:
    decode({})
except ValueError:
    both = json.load(sys.stdin)
    before = most()
refused = 0
for values in both:
    try:
        decode(values)
    except ValueError:
        refused += 1
if refused == 2:
    print(most() - before)
"""


def test_a_damaged_report_is_one_line_and_status_2(written, small, tmp_path, capsys):
    values = json.loads(json.dumps(written("central").report.report))
    _word(values)
    directory = RunDirectory.create(tmp_path / "run", small({}))
    directory.write_json("report.json", values)
    with pytest.raises(InputError, match=r"is damaged \(its 'delta' is 'large'\)"):
        results.read(directory)
    assert exit_of("report", str(directory.path), str(directory.path)) == 2
    assert len(capsys.readouterr().err.strip().splitlines()) == 1


def test_the_command_prints_the_schema_alone(capsys):
    assert exit_of("report", "--schema") == 0
    assert json.loads(capsys.readouterr().out) == kinds.schema()
    jsonschema.Draft202012Validator.check_schema(document.schema(RunDetails))
