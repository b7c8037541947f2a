"""Some classes of a dataset are a dataset."""

import numpy as np
import pytest

from adversaries.errors import InputError
from fedsim.learning.data import load


def test_the_records_of_the_classes_alone_are_kept_and_numbered_in_their_order():
    every, some = load("digits"), load("digits", classes="7,2")
    assert some.classes == 2
    for number, label in enumerate((7, 2)):
        np.testing.assert_array_equal(
            some.train.features[some.train.labels == number],
            every.train.features[every.train.labels == label],
        )


def test_the_columns_of_a_table_go_with_its_records():
    every, some = load("breast-cancer"), load("breast-cancer", classes="1,0")
    (name, *_) = every.columns
    np.testing.assert_array_equal(some.columns[name], every.columns[name])
    np.testing.assert_array_equal(some.train.labels, 1 - every.train.labels)


@pytest.mark.parametrize(
    ("classes", "message"),
    [
        ("1", "two or more"),
        ("1,1", "two or more"),
        ("0,10", "different labels of digits, 0 to 9"),
    ],
)
def test_classes_that_are_not_there_are_refused(classes, message):
    with pytest.raises(InputError, match=message):
        load("digits", classes=classes)
