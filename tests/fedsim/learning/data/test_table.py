"""Tables of the user's own: numbers are scaled, text is one-hot, and what is wrong is named."""

import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from adversaries.errors import InputError
from fedsim.learning.data import Source, load, table
from fedsim.learning.data.cautions import cautions

PEOPLE = """\
person,age,town,income,label
17,30,Ulm,1.5,yes
17,40,"Bonn, Rhine",?,no
18,50,Ulm,-2.5,no
19,35,Aachen,0.5,maybe
"""


def written(folder, text, label="label", exclude=""):
    (folder / "own.csv").write_text(text, encoding="utf-8")
    excluded = tuple(filter(None, exclude.split(",")))
    return load("csv", str(folder / "own.csv"), label, excluded)


def test_numbers_are_scaled_and_text_is_one_hot(tmp_path):
    dataset = written(tmp_path, PEOPLE)
    assert dataset.attributes == ("person", "age", "town=Aachen", "town=Ulm", "income")
    np.testing.assert_allclose(
        dataset.train.features,
        [[0, 0, 0, 1, 1], [0.5, 1, 0, 1, 0], [1, 0.25, 1, 0, 0.75]],
    )
    np.testing.assert_array_equal(dataset.train.labels, [2, 1, 0])
    np.testing.assert_array_equal(dataset.column_of, [0, 1, 2, 2, 3])
    assert (dataset.classes, dataset.kind, dataset.dropped) == (3, "tabular", 1)
    assert dataset.categorical == {"town"}


def test_an_excluded_column_is_kept_for_keys_but_is_no_feature(tmp_path):
    dataset = written(tmp_path, PEOPLE, exclude="person,town")
    assert dataset.attributes == ("age", "income")
    assert list(dataset.columns) == ["person", "age", "town", "income"]
    assert dataset.columns["person"].tolist() == ["17", "18", "19"]
    assert dataset.columns["income"].tolist() == ["1.5", "-2.5", "0.5"]
    np.testing.assert_array_equal(dataset.column_of, [1, 3])


KEYS = {
    "zeros": ["007", "07", "7", "7.0", "1_0", "10"],
    "long": [f"10000000000000000000000{number:03}" for number in range(100)],
    "just too long": ["9007199254740992", "9007199254740993"],
}


@pytest.mark.parametrize("keys", KEYS.values(), ids=KEYS)
def test_different_names_stay_different_though_they_look_like_numbers(tmp_path, keys):
    lines = [f"{key},{row},{row % 2}" for row, key in enumerate(keys)]
    text = "\n".join(["who,age,label", *lines])
    for exclude in ("", "who"):
        dataset = written(tmp_path, text, exclude=exclude)
        assert dataset.columns["who"].tolist() == keys
        assert dataset.categorical == {"who"}
    hot = written(tmp_path, text).train.features[:, :-1]
    assert len(np.unique(hot, axis=0)) == hot.shape[1] == len(keys)


def test_a_key_that_is_a_feature_too_is_as_the_file_has_it(tmp_path):
    dataset = written(tmp_path, "who,label\n7,x\n7.0,y\n8,x\n")
    assert dataset.columns["who"].tolist() == ["7", "7.0", "8"]
    np.testing.assert_array_equal(dataset.train.features, [[0], [0], [1]])


@pytest.mark.parametrize(
    "texts",
    [["0", "-1", "+2"], ["9007199254740992", "-3"], [".5", "1.", "-0.25"], ["1e3", "2.5E-2", "7"]],
)
def test_what_is_plainly_a_number_is_one(texts):
    assert table.typed(texts).tolist() == [float(text) for text in texts]


def test_lines_of_spaces_are_blank(tmp_path):
    dataset = written(tmp_path, "a,label\n1,x\n   \n\n\t\n2,y\n  ")
    assert (len(dataset.train), dataset.dropped) == (2, 0)


def test_a_column_may_be_constant_where_it_is_no_feature(tmp_path):
    text = "a,b,label\n1,5,x\n2,5,y\n"
    with pytest.raises(InputError, match=r"'b' .* only one value, 5\. .*data.exclude = \"b\""):
        written(tmp_path, text)
    assert written(tmp_path, text, exclude="b").attributes == ("a",)


def test_numeric_classes_are_in_the_order_of_numbers(tmp_path):
    dataset = written(tmp_path, "a,label\n1,10\n2,9\n3,-1\n")
    np.testing.assert_array_equal(dataset.train.labels, [2, 1, 0])


def test_a_byte_order_mark_is_no_part_of_the_first_name(tmp_path):
    assert written(tmp_path, "\ufefflabel,a\n0,1\n1,2\n").attributes == ("a",)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "has no rows"),
        ("a,b\n1,2\n", r"no column 'label': .* first line \(a, b\), or give the file a header"),
        ("a,label\n1,x\n2\n", "line 3 of .* has 1 values separated by ',', but the first has 2"),
        ('a,label\n1,x\n"2"x,y\n', "line 3 of .* is not values separated by ','"),
        ("a,a,label\n1,2,x\n2,1,y\n", "a, a, label; give each a different name"),
        ("a,label\n?,x\n,y\n", "every row of .* has a missing value"),
        ("a,label\n1,x\n2,x\n", "the same 'label' for all 2 records"),
        ("a,label\n1,x\ninf,y\n", "column 'a' .* infinite value"),
        ("a,label\n-1.7e308,x\n1.7e308,y\n", "column 'a' .* number beyond"),
        ("label\nx\ny\n", "no feature columns besides 'label'"),
    ],
)
def test_a_wrong_table_is_refused_by_name(tmp_path, text, complaint):
    with pytest.raises(InputError, match=complaint) as refusal:
        written(tmp_path, text)
    assert "own.csv" in str(refusal.value)
    assert "\n" not in str(refusal.value)


def test_text_that_is_not_utf8_is_refused_by_name(tmp_path):
    (tmp_path / "own.csv").write_bytes(b"a,label\n\x81,x\n")
    with pytest.raises(InputError, match=r"own.csv' is not UTF-8"):
        load("csv", str(tmp_path / "own.csv"))


def test_a_column_to_exclude_must_be_a_feature(tmp_path):
    for name in ("who", "label"):
        with pytest.raises(InputError, match=rf"data.exclude names '{name}'.*columns are a, label"):
            written(tmp_path, "a,label\n1,x\n2,y\n", exclude=name)


def test_names_are_no_categories_and_measurements_no_classes(tmp_path):
    lines = [f"{number % 2},n{number},{number / 7}" for number in range(1500)]
    text = "\n".join(["label,name,value", *lines])
    with pytest.raises(InputError, match=r"'name' .* 1,500 different values, .* plain numbers"):
        written(tmp_path, text)
    with pytest.raises(InputError, match=r"'value' of .* 1500 different values, more than 1000"):
        written(tmp_path, text, label="value")


values = st.floats(-1e6, 1e6).map(lambda value: round(value, 3))


@given(
    numbers=st.lists(values, min_size=2, max_size=20).filter(lambda some: len(set(some)) > 1),
    words=st.lists(st.sampled_from("abcde"), min_size=20, max_size=20),
)
def test_features_are_a_function_of_each_column_alone(numbers, words):
    words = ["a", "b", *words][: len(numbers)]
    labels = np.arange(len(numbers)) % 2
    texts = {"x": map(str, numbers), "w": words, "label": map(str, labels)}
    columns = {name: list(values) for name, values in texts.items()}
    dataset = table.encode(Source("own"), Path("own.csv"), columns)
    scaled = dataset.train.features[:, 0]
    assert (scaled.min(), scaled.max()) == (0, 1)
    assert (np.diff(scaled[np.argsort(numbers, kind="stable")]) >= 0).all()
    hot = dataset.train.features[:, dataset.column_of == 1]
    np.testing.assert_array_equal(hot.sum(axis=1), np.ones(len(numbers)))
    assert [sorted(set(words))[place] for place in hot.argmax(axis=1)] == words


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
def test_a_table_means_the_same_however_its_file_is_written(tmp_path, form):
    separator, mark, encoding = form
    (tmp_path / "own.csv").write_bytes(in_form(separator, mark).encode(encoding))
    dataset = load("csv", str(tmp_path / "own.csv"))
    plain = written(tmp_path, in_form(",", "."))
    assert dataset.attributes == plain.attributes == ("größe", "ort=Köln", "ort=Ulm")
    np.testing.assert_array_equal(dataset.train.features, plain.train.features)
    (said,) = cautions(dataset)
    assert said.startswith(f"the file was read as values separated by {separator!r}, decimal ")


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("a,b;label\n1,2;0\n3,4;1\n", "seems to be separated by ',' or ';'"),
        (
            "a;b;label\n1,5;2.5;0\n",
            "commas in column 'a', and decimal points in column 'b'",
        ),
        ("a;label\n1,234;0\n2,345;1\n", "three digits after every comma, as in column 'a'"),
        ("a;label\n1,5;0\n" + "2,5;1\n" * 1000 + "7.5;1\n", "number with a decimal point"),
        ("a;label\n1,5;0\n2,5;1;3\n", "line 3 of .* has 3 values separated by ';', but the first"),
    ],
)
def test_a_form_that_is_not_clear_is_refused_without_a_value(tmp_path, text, complaint):
    with pytest.raises(InputError, match=complaint) as refusal:
        written(tmp_path, text)
    assert not {"1,5", "2.5", "7.5", "1,234"} & set(re.split(r"[ '():]+", str(refusal.value)))


def test_a_thousand_in_quotes_is_no_decimal(tmp_path):
    dataset = written(tmp_path, 'a,label\n"1,234",0\n"2,345",1\n')
    assert dataset.attributes == ("a=1,234", "a=2,345")


def test_all_columns_that_are_no_features_are_named_in_one_line(tmp_path):
    rows = "".join(f"n{number},5,{number},{number % 2}\n" for number in range(1500))
    with pytest.raises(InputError, match=r'data.exclude = "name,same"') as refusal:
        written(tmp_path, "name,same,age,label\n" + rows)
    assert "\n" not in str(refusal.value)
    assert written(tmp_path, "name,same,age,label\n" + rows, exclude="name,same").gaps == {}
