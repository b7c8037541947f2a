"""`fedsim schema` as a user types it: a proposal that the project itself reads back."""

import csv

import numpy as np
import pytest

from adversaries.errors import InputError
from fedsim.learning.data import own_records, schema
from fedsim.learning.data.columns import NumberColumn, Values

RECORDS = 60


@pytest.fixture
def table(tmp_path):
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


def test_a_proposal_reads_the_table_that_it_is_of(fedsim, table, tmp_path):
    out = tmp_path / "schema.toml"
    status, said, _ = fedsim("data", table, "--label", "readmitted", "--out", out)
    assert status == 0
    assert "identifiers, which are no features: patient id" in said
    agreed = schema.load(str(out))
    assert agreed.columns == {
        "age": NumberColumn(range=[22, 86], outside="clip", missing="category"),
        "ward": Values(values=["A", "B"], other="other"),
        "weight": NumberColumn(range=[52, 90], outside="clip"),
    }
    found = own_records.inspect(str(table), agreed)
    assert (found.refused, len(found.kept), len(found.records)) == ((), RECORDS, RECORDS - 1)


def test_lines_that_were_read_off_the_records_are_marked(fedsim, table, tmp_path):
    out = tmp_path / "schema.toml"
    fedsim("data", table, "--label", "readmitted", "--out", out)
    lines = out.read_text().splitlines()
    of_records = [line for line in lines if line.split(" ")[0] in ("classes", '"age"', '"ward"')]
    assert len(of_records) == 3
    assert all("# FROM RECORDS" in line for line in of_records)
    assert "rare" not in out.read_text()


def test_a_range_is_where_nearly_all_values_lie(fedsim, tmp_path):
    """A few large values, or a unit in which all values are small, leave no constant feature."""
    draw = np.random.default_rng(5)
    columns = np.stack([draw.lognormal(8, 1, 500), draw.normal(0.1, 0.01, 500)])
    rare = np.arange(500) == 3
    rows = enumerate(zip(*columns, rare, strict=True))
    lines = [f"{a:.2f},{b:.4f},{c:d},{n % 2}" for n, (a, b, c) in rows]
    path, out = tmp_path / "own.csv", tmp_path / "schema.toml"
    path.write_text("income,share,rare,label\n" + "\n".join(lines))
    assert fedsim("data", path, "--out", out)[0] == 0
    features = own_records.records(str(path), schema.load(str(out))).features
    assert (features[:, :2].std(0) > 0.3).all()
    assert 0.9 < (np.abs(features) < 1)[:, :2].mean() < 0.99
    assert (features[:, 2] > 0).tolist() == rare.tolist()


def test_a_numeric_label_is_a_range_and_not_a_list_of_the_records_values(fedsim, tmp_path):
    days = np.random.default_rng(1).gamma(3.0, 4.0, 157)
    path, out = tmp_path / "stays.csv", tmp_path / "schema.toml"
    path.write_text(
        "age,days\n" + "".join(f"{40 + i % 9},{day:.2f}\n" for i, day in enumerate(days))
    )
    status, said, _ = fedsim("data", path, "--label", "days", "--out", out)
    assert status == 0
    assert "the label is predicted as a number" in said
    agreed = schema.load(str(out))
    assert (agreed.classes, agreed.target) == ([], [0, 50])
    assert f"{days[0]:.2f}" not in out.read_text()


def test_a_schema_says_how_files_are_written_and_another_file_is_refused(fedsim, tmp_path):
    """Semicolons, decimal commas and Windows-1252 are found once, and agreed on for all clients."""
    lines = ["größe;ort;label", *(f"{n},5;{'Köln' if n % 2 else 'Ulm'};{n % 2}" for n in range(40))]
    path, out = tmp_path / "own.csv", tmp_path / "schema.toml"
    path.write_bytes("\n".join(lines).encode("windows-1252"))
    status, said, _ = fedsim("data", path, "--out", out)
    assert status == 0
    assert "values separated by ';', decimal commas, windows-1252" in said
    agreed = schema.load(str(out))
    expected = own_records.records(str(path), agreed).features
    assert expected[:3, 0].tolist() == pytest.approx([1 / 40 - 1, 3 / 40 - 1, 5 / 40 - 1])
    other = tmp_path / "other.csv"
    for text, complaint in (
        ("\n".join(lines).replace(",", ".").replace(";", ","), "separated by ',', but the schema"),
        ("\n".join(lines).replace(",", "."), "decimal point"),
    ):
        other.write_bytes(text.encode("windows-1252"))
        with pytest.raises(InputError, match=complaint):
            own_records.records(str(other), agreed)
    other.write_text("\n".join(lines), encoding="utf-8")
    with pytest.raises(InputError, match="seems to be utf-8 text, but the schema says windows-125"):
        own_records.records(str(other), agreed)
    plain = schema.parse(out.read_text().partition("[file]")[0])
    assert "file.separator is ',' in the run's schema, but ';' in" in schema.difference(
        agreed, plain
    )


def test_a_label_of_no_or_too_many_values_is_refused(fedsim, table, monkeypatch):
    monkeypatch.setattr("fedsim.learning.data.schema_proposal.MOST_LABELS", 50)
    for label, complaint in (("note", "0 different labels"), ("patient id", "different labels")):
        status, out, said = fedsim("data", table, "--label", label)
        assert (status, out, said.count("\n"), complaint in said) == (2, "", 1, True)
