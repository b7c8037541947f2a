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
from fedsim.audits.results import report as results
from fedsim.audits.results.report import decode, encode, schema
from fedsim.federation.runs.run_directory import RunDirectory
from fedsim.reports.kinds import schema as kinds
from tests.console import exit_of

from .conftest import KINDS


@cache
def _validator():
    """Return what checks a report; one test checks the schema itself, which takes longer."""
    return jsonschema.Draft202012Validator(schema())


@pytest.mark.parametrize("kind", KINDS)
def test_a_report_follows_the_schema_and_comes_back_as_it_was(kind, written):
    report = written(kind).report
    values = json.loads(json.dumps(encode(report), allow_nan=False))
    _validator().validate(values)
    assert decode(values) == report


def test_what_is_infinite_is_infinite_and_what_was_not_measured_is_null(written):
    report = written("server").report
    assert report.accounted.epsilon == report.mechanism.mu == math.inf
    values = encode(report)
    assert values["rows"]["server"]["limit"]["epsilon"] == values["mechanism"]["mu"] == "Infinity"
    nobody = replace(report, bounds=replace(report.bounds, delta=math.nan))
    with pytest.raises(ValueError, match="is NaN"):
        encode(nobody)


def _without(values):
    del values["rows"]["server"]["limit"]["rho_alpha"]


def _another(values):
    values["bounds"]["rho_gamma"] = 0.5


def _word(values):
    values["bounds"]["delta"] = "large"


def _number(values):
    values["name"] = 7


DAMAGE = {
    "it has no 'rows.server.limit.rho_alpha'": _without,
    "it has 'bounds.rho_gamma', which no report has": _another,
    "its 'bounds.delta' is 'large'": _word,
    "its 'name' is 7": _number,
}


@pytest.mark.parametrize("complaint", DAMAGE)
def test_a_report_that_was_changed_by_hand_is_refused(complaint, written):
    values = encode(written("central").report)
    DAMAGE[complaint](values)
    with pytest.raises(jsonschema.ValidationError):
        _validator().validate(values)
    with pytest.raises(ValueError, match=complaint):
        decode(values)


MANY = {str(number): {} for number in range(30_000)}


@pytest.mark.parametrize(
    "hostile",
    [{"warnings": [{}] * 30_000}, {"config": MANY}, {"rows": MANY}, {"data": MANY}, MANY],
    ids=["list", "words", "rows", "a part", "all"],
)
def test_a_report_of_wrong_entries_takes_little_memory(hostile, written):
    """In a process of its own: pydantic's errors are not in Python's memory."""
    both = [encode(written("central").report) | hostile, hostile]
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
from fedsim.audits.results.report import decode

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
    values = encode(written("central").report)
    _word(values)
    directory = RunDirectory.create(tmp_path / "run", small({}))
    directory.write_json("report.json", values)
    with pytest.raises(InputError, match=r"is damaged \(its 'bounds.delta' is 'large'\)"):
        results.read(directory)
    assert exit_of("report", str(directory.path), str(directory.path)) == 2
    assert len(capsys.readouterr().err.strip().splitlines()) == 1


def test_the_command_prints_the_schema_alone(capsys):
    assert exit_of("report", "--schema") == 0
    assert json.loads(capsys.readouterr().out) == kinds.schema()
    jsonschema.Draft202012Validator.check_schema(schema())
