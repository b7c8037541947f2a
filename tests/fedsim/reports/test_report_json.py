"""report.json: its schema, what is refused, and what comes back as it was."""

import json
import math
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
