"""`fedsim schema` as a user types it: a proposal that the project itself reads back."""

import csv
import io
from collections.abc import Callable
from datetime import date
from pathlib import Path

import numpy as np
import pytest

from fedsim.learning.data import own_records, schema
from fedsim.learning.data.columns import Dates, NumberColumn, Values

Command = Callable[..., tuple[int, str, str]]

RECORDS = 60


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """A table as a hospital has it: gaps, dates, an id, a category that one patient has."""
    draw = np.random.default_rng(3)
    rows = [
        {
            "patient id": f"P{place:04}",
            "age": str(draw.integers(21, 88)) if place % 6 else "",
            "ward": "rare" if place == 7 else draw.choice(["A", "B"]),
            "admitted": f"{draw.integers(1, 28):02}.03.2021",
            "weight": f"{draw.uniform(50, 90):.1f}",
            "note": "",
            "readmitted": draw.choice(["no", "yes"]) if place != 3 else "",
        }
        for place in range(RECORDS)
    ]
    path = tmp_path / "patients.csv"
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    return path


def test_a_proposal_reads_the_table_that_it_is_of(
    fedsim: Command, table: Path, tmp_path: Path
) -> None:
    out = tmp_path / "schema.toml"
    status, _, err = fedsim("schema", table, "--label", "readmitted", "--out", out, "--yes")
    assert status == 0
    assert "Identifiers, never features: patient id." in err
    agreed = schema.load(str(out))
    assert agreed.columns == {
        "age": NumberColumn(range=[20, 90], missing="category"),
        "ward": Values(values=["A", "B"], other="other"),
        "admitted": Dates(date=[date(2021, 1, 1), date(2022, 1, 1)], format="%d.%m.%Y"),
        "weight": NumberColumn(range=[50, 90]),
    }
    found = own_records.inspect(str(table), agreed)
    assert (found.refused, found.total, len(found.records.labels)) == ((), RECORDS, RECORDS - 1)
    assert found.ignored == ("patient id", "note")


def test_lines_that_were_read_off_the_records_are_marked(
    fedsim: Command, table: Path, tmp_path: Path
) -> None:
    out = tmp_path / "schema.toml"
    fedsim("schema", table, "--label", "readmitted", "--out", out, "--yes")
    lines = out.read_text().splitlines()
    of_records = [line for line in lines if line.split(" ")[0] in ("classes", '"age"', '"ward"')]
    assert len(of_records) == 3
    assert all("# FROM RECORDS" in line for line in of_records)
    assert "rare" not in out.read_text()


def test_a_numeric_label_is_a_range_and_not_a_list_of_the_records_values(
    fedsim: Command, tmp_path: Path
) -> None:
    days = np.random.default_rng(1).gamma(3.0, 4.0, 157)
    path, out = tmp_path / "stays.csv", tmp_path / "schema.toml"
    path.write_text(
        "age,days\n" + "".join(f"{40 + i % 9},{day:.2f}\n" for i, day in enumerate(days))
    )
    status, _, err = fedsim("schema", path, "--label", "days", "--out", out, "--yes")
    assert status == 0
    assert "a number as label" in err
    agreed = schema.load(str(out))
    assert (agreed.classes, agreed.target) == ([], [0, 50])
    assert f"{days[0]:.2f}" not in out.read_text()


def test_its_owner_answers_for_each_column(
    fedsim: Command, table: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = iter(["", "0,120", "", "s", "what?", "i"])
    monkeypatch.setattr("typer.prompt", lambda *_, **__: next(answers, ""))
    out = tmp_path / "schema.toml"
    status, _, _ = fedsim("schema", table, "--label", "readmitted", "--out", out)
    agreed = schema.load(str(out))
    assert status == 0
    assert list(agreed.columns) == ["age", "ward"]
    assert agreed.columns["age"] == NumberColumn(range=[0, 120], missing="category", outside="drop")
    assert agreed.identifiers == ["patient id", "weight"]


def test_a_range_that_everybody_knows_leaves_typing_errors_out(
    fedsim: Command, table: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = table.read_text().splitlines()
    content[9] = content[9].replace(content[9].split(",")[1], "999", 1)
    table.write_text("\n".join(content) + "\n")
    monkeypatch.setattr("sys.stdin", io.StringIO("\n0,120\n" + "\n" * 9))
    out = tmp_path / "schema.toml"
    status, _, err = fedsim("schema", table, "--label", "readmitted", "--out", out)
    assert status == 0
    assert "0,120" in err.split(), "an answer from a file is shown"
    found = own_records.inspect(str(table), schema.load(str(out)))
    assert found.refused == ()
    assert ["999" in str(each) for each in found.problems if each.drop] == [True, False]


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["patients.csv"], "has no column 'label'; set --label to"),
        (["nowhere.csv"], "there is no table"),
        (["reviews.txt"], "write the schema yourself, with a [text] table"),
        (["patients.csv", "--label", "patient id"], "different labels"),
        (["patients.csv", "--label", "note"], "0 different labels"),
        (["patients.csv", "--out", "patients.csv"], "'patients.csv' exists"),
    ],
)
def test_bad_input_is_one_line_and_nothing_is_written(
    fedsim: Command,
    table: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    arguments: list[str],
    complaint: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    if arguments[-1] == "patient id":
        monkeypatch.setattr("fedsim.learning.data.schema_proposal.MOST_LABELS", 50)
    before = table.read_bytes()
    status, out, err = fedsim("schema", *arguments, "--yes")
    assert (status, out) == (2, "")
    assert complaint in " ".join(err.split())
    assert table.read_bytes() == before
    assert not Path("schema.toml").exists()
