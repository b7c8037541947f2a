"""A client's records become features by the public schema alone, from whatever format."""

import csv
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from adversaries import registry
from adversaries.errors import InputError
from fedsim.learning.data import own_records, schema

TEXT = """
label = "income"
classes = ["low", "high"]

[columns]
age = [10, 60]
work = ["state", "private", "none of both"]
"""
TABLE = schema.parse(TEXT)
ROWS = [["35", "private", "high"], ["10", "state", "low"], ["60", "private", "low"]]
FEATURES = [[0, 0, 1, 0], [-1, 1, 0, 0], [1, 0, 1, 0]]

IMAGES = schema.parse("""
classes = ["0", "1", "7"]

[image]
shape = [1, 2, 3]
range = [0, 255]
""")
PIXELS = np.arange(12, dtype=np.uint8).reshape(2, 2, 3) * 20


def _csv(place):
    path = place / "own.csv"
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([["income", "age", "name", "work"]])
        csv.writer(file).writerows([[income, age, "x", work] for age, work, income in ROWS])
    return path


def _parquet(place):
    arrow = pytest.importorskip("pyarrow", reason="Parquet needs pyarrow")
    from pyarrow import parquet  # noqa: PLC0415

    ages, works, incomes = zip(*ROWS, strict=True)
    table = arrow.table({"age": [int(age) for age in ages], "work": works, "income": incomes})
    parquet.write_table(table, place / "own.parquet")
    return place / "own.parquet"


def _npz(place):
    ages, works, incomes = zip(*ROWS, strict=True)
    np.savez(place / "own.npz", age=np.array(ages, float), work=works, income=incomes)
    return place / "own.npz"


@pytest.mark.parametrize("write", [_csv, _parquet, _npz])
def test_a_table_is_the_same_in_every_format(write, tmp_path):
    found = own_records.records(str(write(tmp_path)), TABLE)
    np.testing.assert_allclose(found.features, FEATURES, rtol=1e-6)
    assert found.labels.tolist() == [1, 0, 0]
    assert TABLE.features == ("age", "work=state", "work=private", "work=none of both")


def _folder(place):
    for label, pixels in zip("71", PIXELS, strict=True):
        (place / "own" / label).mkdir(parents=True)
        Image.fromarray(pixels).save(place / "own" / label / "one.png")
    (place / "own" / "0").mkdir()  # this client has none of this class
    return place / "own"


def _arrays(place):
    np.savez(place / "own.npz", features=PIXELS, labels=np.array([7, 1]))
    return place / "own.npz"


@pytest.mark.parametrize("write", [_folder, _arrays])
def test_pictures_are_the_same_in_every_format(write, tmp_path):
    found = own_records.records(str(write(tmp_path)), IMAGES)
    in_order = np.argsort(-found.labels)  # a folder's subfolders are read in the order of names
    expected = PIXELS[:, None].astype(np.float64) / 255
    np.testing.assert_allclose(found.features[in_order], expected, rtol=1e-6)
    assert sorted(found.labels) == [1, 2]


def crafted():
    """Return what a client's own function might."""
    return {"features": PIXELS, "labels": np.array(["7", "1"])}


def test_a_function_of_the_owner_is_called_where_it_is_allowed(monkeypatch):
    name = f"{__name__}:crafted"
    with pytest.raises(InputError, match="code that this machine does not allow"):
        own_records.records(name, IMAGES)
    monkeypatch.setenv(registry.ALLOWED, name)
    assert own_records.records(name, IMAGES).labels.tolist() == [2, 1]


@pytest.mark.parametrize(
    ("row", "complaint"),
    [
        (["61", "private", "low"], r"column 'age': outside .* 10 to 60: '61' \(record 2\)"),
        (["", "private", "low"], r"column 'age': no value \(record 2\)"),
        (["nan", "private", "low"], r"column 'age': no value \(record 2\)"),
        (["old", "private", "low"], r"column 'age': not a number: 'old' \(record 2\)"),
        (["20", "?", "low"], r"column 'work': no value \(record 2\)"),
        (["20", "army", "low"], r"column 'work': 'army' is not one of state, private, .*record 2"),
        (
            ["20", "state", "middle"],
            r"column 'income': the label 'middle' is not one of .*record 2",
        ),
    ],
)
def test_a_value_that_the_schema_does_not_have_is_named_in_a_line(row, complaint, tmp_path):
    path = tmp_path / "own.csv"
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([["age", "work", "income"], ROWS[0], row])
    with pytest.raises(InputError, match=complaint) as refused:
        own_records.records(str(path), TABLE)
    assert "\n" not in str(refused.value)


def test_records_that_are_to_be_predicted_need_no_label(tmp_path):
    path = tmp_path / "own.csv"
    path.write_text("work,age\nstate,35\n")
    found = own_records.records(str(path), TABLE, labelled=False)
    np.testing.assert_allclose(found.features, [[0, 1, 0, 0]])
    with pytest.raises(InputError, match=r"has no labels \('income'\)"):
        own_records.records(str(path), TABLE)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("classes = ['a', 'b']", "columns. of a table, .image. or .text"),
        ("classes = ['a', 'a']\n[columns]\nx = [0, 1]", "has a label twice"),
        ("classes = ['a', 'b']\n[columns]\nx = [1, 0]", "column 'x': its range is"),
        ("classes = ['a', 'b']\n[columns]\nx = [0, 1e25]", "exceeds 1e.15; narrow it"),
        ("classes = ['a', 'b']\n[columns]\nx = ['u', 'u']", "column 'x': values has a value twice"),
        ("classes = ['a', 'b']\n[columns]\nlabel = [0, 1]", "is the label, and not a feature"),
        ("classes = ['a', 'b']\n[columns]\nx = 3", "column 'x': a column is .least, largest"),
        (
            "classes = ['a', 'b']\n[columns]\nx = { unit = 'kg' }",
            "needs exactly one of range, values",
        ),
        (
            "classes = ['a', 'b']\n[columns]\nx = { range = [0, 9], missing = 12 }",
            "column 'x': missing is 12, outside of the range",
        ),
        (
            "classes = ['a', 'b']\nidentifiers = ['x']\n[columns]\nx = [0, 9]",
            "column 'x' is an identifier",
        ),
        ("classes = [", "data.public-schema is not a schema"),
    ],
)
def test_a_schema_that_means_nothing_is_refused(text, complaint):
    with pytest.raises(InputError, match=complaint):
        schema.parse(text)


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        (
            "[10, 60]",
            "[10, 90]",
            "columns.age.range is [10.0, 60.0] in the run's schema, but [10.0, 90.0] in the "
            "client's",
        ),
        ('"low", "high"', '"high", "low"', "classes is ['low', 'high'] in the run's schema"),
        (
            "age =",
            "years =",
            "columns.years.placeholders is not set in the run's schema, but [] in the client's",
        ),
        ("income", "wage", "label is 'income' in the run's schema, but 'wage' in the client's"),
        ("# nothing", "", ""),
    ],
)
def test_schemas_are_compared_by_what_they_say(tmp_path, old, new, said):
    (tmp_path / "own.toml").write_text(TEXT.replace(old, new) + "# a comment")
    found = schema.difference(schema.load(str(tmp_path / "own.toml")), TABLE)
    assert said in found
    assert bool(said) == bool(found)


def test_a_clients_own_schema_is_named_by_its_file(tmp_path):
    (tmp_path / "own.toml").write_text("classes = 3")
    with pytest.raises(InputError, match=r"^'.*own\.toml' is not a schema"):
        schema.load(str(tmp_path / "own.toml"))


def test_the_order_of_columns_is_that_of_the_features():
    lines = TEXT.strip().splitlines()
    turned = schema.parse("\n".join([*lines[:-2], *lines[:-3:-1]]))
    assert schema.difference(turned, TABLE) == "the columns are in another order"


HOSPITAL = schema.parse("""
classes = ["no", "yes"]
label = "readmitted"
unlabelled = "drop"
identifiers = ["patient"]

[columns]
age = { range = [0, 100], missing = "drop", outside = "clip" }
weight = { range = [0, 200], unit = "kg", missing = 80 }
pulse = { range = [0, 200], missing = "category" }
ward = { values = ["A", "B"], other = "other", missing = "category" }
sex = { values = ["f", "m"], missing = "f", other = "drop" }
""")
NAMES = ["patient", "age", "weight", "pulse", "ward", "sex", "readmitted", "note"]
WHOLE = ["p1", "50", "100", "100", "A", "m", "yes", ""]


def _hospital(place, *rows):
    with (place / "own.csv").open("w", newline="") as file:
        lines = [dict(zip(NAMES, WHOLE, strict=True)) | row for row in rows]
        csv.writer(file).writerows([NAMES, *(line.values() for line in lines)])
    return str(place / "own.csv")


def test_the_schema_says_what_becomes_of_each_value_that_does_not_fit(tmp_path):
    rows = [
        {},
        {
            "age": "130",
            "weight": "",
            "pulse": "?",
            "ward": "C",
            "sex": "",
        },
        {"ward": "NA"},
    ]
    found = own_records.inspect(_hospital(tmp_path, *rows), HOSPITAL)
    assert HOSPITAL.features[:7] == (
        *("age", "weight", "pulse", "pulse=missing", "ward=A", "ward=B", "ward=missing"),
    )
    expected = [
        [0, 0, 0, 0, 1, 0, 0, 0, 0, 1],
        [1, -0.2, 0, 1, 0, 0, 0, 1, 1, 0],
        [0, 0, 0, 0, 0, 0, 1, 0, 0, 1],
    ]
    np.testing.assert_allclose(found.records.features, expected, rtol=1e-6, atol=1e-7)
    assert len(HOSPITAL.features) == len(expected[0])
    assert found.refused == ()
    # The owner of the records is told each value that the schema changes.
    assert [str(each) for each in found.problems] == [
        "column 'age': outside of the range 0 to 100: '130' (record 2), clipped to the range",
        "column 'weight': no value (record 2), read as 80.0",
        "column 'ward': 'C' is not one of A, B (record 2), read as other",
        "column 'sex': no value (record 2), read as f",
    ]
    assert found.summary.startswith("3 records; used with another value: column 'age'")


def test_every_problem_is_said_once_with_its_records(tmp_path):
    rows = [{}, {"age": ""}, {"sex": "x"}, {"readmitted": ""}, *[{"weight": "heavy"}] * 7]
    path = _hospital(tmp_path, *rows, {"pulse": "-1"})
    found = own_records.inspect(path, HOSPITAL)
    assert [str(each) for each in found.problems if each.drop] == [
        "column 'age': no value (record 2)",
        "column 'sex': 'x' is not one of f, m (record 3)",
        "column 'readmitted': the label '' is not one of no, yes (record 4)",
    ]
    assert [str(each) for each in found.refused] == [
        "column 'weight': not a number: 'heavy' (7 records: 5, 6, 7, 8, 9, …)",
        "column 'pulse': outside of the range 0 to 200: '-1' (record 12)",
    ]
    with pytest.raises(InputError, match=r"'weight': .*; column 'pulse': "):
        own_records.records(path, HOSPITAL)


def test_records_that_are_left_out_are_counted_and_none_is_left_out_of_a_prediction(tmp_path):
    path = _hospital(tmp_path, {}, {"age": ""}, {"readmitted": "?"})
    found = own_records.inspect(path, HOSPITAL)
    assert found.summary.startswith("1 of 3 records; left out: column 'age': no value (record 2)")
    assert len(own_records.records(path, HOSPITAL).labels) == 1
    with pytest.raises(InputError, match=r"column 'age': no value \(record 2\)"):
        own_records.records(path, HOSPITAL, labelled=False)
    with pytest.raises(InputError, match="has no records that the schema keeps"):
        own_records.records(_hospital(tmp_path, {"age": ""}), HOSPITAL)


def test_a_table_with_a_header_alone_is_a_client_without_records(tmp_path):
    path = _hospital(tmp_path, {})
    header = Path(path).read_text().splitlines(keepends=True)[0]
    Path(path).write_text(header)
    inspection = own_records.inspect(path, HOSPITAL)
    assert (len(inspection.kept), inspection.problems) == (0, ())
    assert inspection.records.features.shape == (0, *HOSPITAL.shape)
    with pytest.raises(InputError, match="has no records; give some"):
        own_records.records(path, HOSPITAL)
