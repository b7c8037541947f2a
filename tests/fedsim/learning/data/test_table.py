"""A table without a schema is read by the one that it proposes, and what is wrong is named."""

import re

import numpy as np
import pytest

from adversaries.errors import InputError
from fedsim.learning.data import load, schema_proposal, table

PEOPLE = "person,age,town,income,label\n" + "".join(
    f"p{n},{n % 50},{'Ulm' if n % 3 else 'Bonn'},{'?' if n % 20 == 7 else n % 5},{10 - n % 2}\n"
    for n in range(60)
)


def written(folder, text, label="label", exclude="", name="own.csv"):
    (folder / name).write_text(text, encoding="utf-8")
    return load("csv", str(folder / name), label=label, exclude=exclude)


def test_it_is_what_its_own_schema_makes_of_it(tmp_path, caplog):
    dataset = written(tmp_path, PEOPLE)
    text, _ = schema_proposal.of_table(str(tmp_path / "own.csv"), "label")
    again = table.by_schema(text, str(tmp_path / "own.csv"))
    np.testing.assert_array_equal(dataset.train.features, again.train.features)
    towns = "town=Bonn", "town=Ulm", "town=other"
    assert dataset.attributes == ("age", *towns, "income", "income=missing")
    np.testing.assert_array_equal(dataset.column_of, [1, 2, 2, 2, 3, 3])
    assert (dataset.classes, dataset.kind, dataset.categorical) == (2, "tabular", {"town"})
    # Numbers as classes are in their order; those of a column are what the schema made of them.
    assert dataset.train.labels[:2].tolist() == [1, 0]
    assert dataset.columns["person"][:2].tolist() == ["p0", "p1"]
    assert dataset.columns["age"][:3] == pytest.approx([0, 1, 2], abs=1e-5)
    assert "no features: person; gaps in income are a feature" in caplog.text


def test_an_excluded_column_divides_records_and_is_no_feature(tmp_path):
    dataset = written(tmp_path, PEOPLE, exclude="town,income")
    assert dataset.attributes == ("age",)
    assert dataset.columns["town"][:3].tolist() == ["Bonn", "Ulm", "Ulm"]


@pytest.mark.parametrize(
    "keys",
    [["007", "07", "7", "7.0", "1_0"], [f"1000000000000000{n:03}" for n in range(5)]],
    ids=["zeros", "long"],
)
def test_different_names_stay_different_though_they_look_like_numbers(tmp_path, keys):
    lines = [f"{keys[row % 5]},{row % 3},{row % 2}" for row in range(60)]
    dataset = written(tmp_path, "\n".join(["who,age,label", *lines]))
    hot = dataset.train.features[:, :5]
    assert dataset.attributes[:5] == tuple(f"who={key}" for key in sorted(keys))
    assert len(np.unique(hot, axis=0)) == 5


def test_lines_of_spaces_and_a_byte_order_mark_are_no_content(tmp_path):
    dataset = written(tmp_path, "\ufeffa,label\n1,x\n   \n\n\t\n2,y\n  ")
    assert (len(dataset.train), dataset.attributes) == (2, ("a",))


@pytest.mark.parametrize("name", ["own.tsv", "own.csv.gz"])
def test_other_endings_are_tables_too(tmp_path, name):
    import gzip  # noqa: PLC0415

    text = PEOPLE.replace(",", "\t") if name == "own.tsv" else PEOPLE
    path = tmp_path / name
    path.write_bytes(gzip.compress(text.encode()) if name == "own.csv.gz" else text.encode())
    read = load("csv", str(path))
    np.testing.assert_array_equal(read.train.features, written(tmp_path, PEOPLE).train.features)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "has no rows"),
        ("a,b\n1,2\n", r"no column 'label'; set --label, or data.label, to .*: a, b"),
        ("a,label\n1,x\n2\n", "line 3 of .* has 1 values separated by ',', but the first has 2"),
        ('a,label\n1,x\n"2"x,y\n', "line 3 of .* is not values separated by ','"),
        ("a,a,label\n1,2,x\n2,1,y\n", "a, a, label; give each a different name"),
        ("a,label\n?,x\n,y\n", "no column that can be a feature"),
        ("a,label\n1,x\n2,x\n", "has 1 different labels"),
        ("label\nx\ny\n", "no column that can be a feature besides 'label'"),
        ("a,label\n" + "".join(f"1,{n}.5\n" for n in range(1001)), "has 1001 different labels"),
        ("a,b;label\n1,2;0\n3,4;1\n", "seems to be separated by ',' or ';'"),
        ("a;b;label\n1,5;2.5;0\n", "commas in column 'a', and decimal points in column 'b'"),
        ("a;label\n1,234;0\n2,345;1\n", "three digits after every comma, as in column 'a'"),
        ("a;label\n1,5;0\n" + "2,5;1\n" * 1000 + "7.5;1\n", "number with a decimal point"),
        ("a;label\n1,5;0\n2,5;1;3\n", "line 3 of .* has 3 values separated by ';', but the first"),
    ],
)
def test_a_wrong_table_is_refused_by_name_and_without_a_value(tmp_path, text, complaint):
    with pytest.raises(InputError, match=complaint) as refusal:
        written(tmp_path, text)
    assert "own.csv" in str(refusal.value)
    assert "\n" not in str(refusal.value)
    assert not {"1,5", "2.5", "7.5", "1,234"} & set(re.split(r"[ '():]+", str(refusal.value)))


def test_text_that_is_not_utf8_is_refused_by_name(tmp_path):
    (tmp_path / "own.csv").write_bytes(b"a,label\n\x81,x\n")
    with pytest.raises(InputError, match=r"own.csv' is not UTF-8"):
        load("csv", str(tmp_path / "own.csv"))


def test_a_column_to_exclude_must_be_a_feature(tmp_path):
    for name in ("who", "label"):
        with pytest.raises(InputError, match=rf"data.exclude names '{name}'.*columns are a, label"):
            written(tmp_path, "a,label\n1,x\n2,y\n", exclude=name)


FORMS = {
    "semicolons, commas and latin-1": (";", ",", "latin-1"),
    "tabs and a byte order mark": ("\t", ".", "utf-8-sig"),
    "bars": ("|", ".", "utf-8"),
    "tabs in UTF-16": ("\t", ",", "utf-16"),
}


def in_form(separator, mark, rows=40):
    """Return a table whose numbers have this decimal mark."""
    lines = ["größe,ort,label"]
    lines += [
        f"{number}.{number % 7}5,{'Köln' if number % 3 else 'Ulm'},{number % 2}"
        for number in range(rows)
    ]
    return "\n".join(lines).replace(",", separator).replace(".", mark)


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_a_table_means_the_same_however_its_file_is_written(tmp_path, form, caplog):
    separator, mark, encoding = form
    (tmp_path / "own.csv").write_bytes(in_form(separator, mark).encode(encoding))
    dataset = load("csv", str(tmp_path / "own.csv"))
    assert f"the file was read as values separated by {separator!r}, decimal " in caplog.text
    plain = written(tmp_path, in_form(",", "."), name="plain.csv")
    assert dataset.attributes == ("größe", "ort=Köln", "ort=Ulm", "ort=other")
    np.testing.assert_array_equal(dataset.train.features, plain.train.features)


def test_a_thousand_in_quotes_is_no_decimal(tmp_path):
    rows = '"1,234",0\n"2,345",1\n' * 10
    assert written(tmp_path, "a,label\n" + rows).attributes[:2] == ("a=1,234", "a=2,345")
