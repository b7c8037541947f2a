"""A record is shown as a picture, or by its most unusual attributes."""

import numpy as np
import pytest

from fedsim.game.record_display import (
    SHOWN,
    Attribute,
    digest,
    picture,
    shown,
    unusual,
)
from fedsim.learning.data import Dataset, Records, Split, load
from fedsim.learning.data.dealing import split


def people(*, as_text=False):
    """Two columns that are features, one of them one-hot, and one that is none."""
    ages = np.array([20, 60, 40, 40])
    jobs = np.array(["cook", "nurse", "cook", "judge"])
    hot = (jobs[:, None] == np.array(["cook", "judge", "nurse"])).astype(np.float32)
    features = np.column_stack([(ages - 20) / 40, hot]).astype(np.float32)
    dataset = Dataset(
        "people",
        Records(features, np.array([0, 1, 0, 1])),
        None,
        2,
        "tabular",
        columns={
            "name": np.array(["a", "b", "c", "d"]),
            "age": ages.astype(str) if as_text else ages,
            "job": jobs,
        },
        column_of=np.array([1, 2, 2, 2]),
        categorical=frozenset({"job"}),
    )
    return Split(dataset, np.array([0, 2, 3]), np.empty(0, np.int64), np.array([1]))


def test_what_is_the_same_is_not_shown():
    found = unusual(people(), 2)
    assert found == [Attribute("job", "judge", "cook", 1 / 3)]  # and of the median age


def test_a_removed_record_is_compared_with_what_is_typical_of_d():
    for as_text in (False, True):
        found = unusual(people(as_text=as_text), 0)
        assert found == [Attribute("age", "20", "40", 1 / 3)]


def test_a_category_without_majority_is_typical_all_the_same():
    jobs = np.array(["cook", "judge", "nurse", "cook", "judge", "cook", "nurse"])  # 3 of 7
    hot = (jobs[:, None] == np.unique(jobs)).astype(np.float32)
    flag = np.array([0, 1, 0, 1, 0, 1, 1])
    dataset = Dataset(
        "jobs",
        Records(np.column_stack([hot, flag]).astype(np.float32), np.zeros(7, np.int64)),
        None,
        2,
        "tabular",
        columns={"job": jobs, "flag": flag},
        column_of=np.array([0, 0, 0, 1]),
        categorical=frozenset({"job", "flag"}),
    )
    all_but_one = Split(dataset, np.arange(6), np.empty(0, np.int64), np.array([6]))
    cook, nurse = (unusual(all_but_one, i) for i in (0, 2))
    assert cook == []
    assert nurse == [Attribute("job", "nurse", "cook", 0.5)]
    flagged = unusual(all_but_one, 3)
    assert flagged == [Attribute("flag", "1", "0", 0.5)]  # of six, three have either


def test_features_without_columns_go_by_their_number():
    features = np.eye(12, dtype=np.float32)
    dataset = Dataset("bits", Records(features, np.zeros(12, np.int64)), None, 2, "tabular")
    bits = Split(dataset, np.arange(11), np.empty(0, np.int64), np.array([11]))
    assert unusual(bits, 3) == [Attribute("feature 3", "1", "0", 1 / 11)]


def test_no_more_than_a_screenful_of_attributes_is_shown():
    tumours = split(load("breast-cancer"), 20, 20, 20, 0)
    found = unusual(tumours, 0)
    assert len(found) == SHOWN
    assert found[0].name in tumours.dataset.columns


@pytest.mark.parametrize(
    ("shape", "shown"),
    [((4, 5), (4, 5)), ((1, 4, 5), (4, 5)), ((3, 4, 5), (4, 5, 3)), ((2, 4, 5), (4, 5))],
)
def test_channels_become_colours(shape, shown):
    assert picture(np.zeros(shape, np.float32)).shape == shown


def test_a_public_record_is_kept_as_grey_values_or_as_its_unusual_columns():
    numbers = people()
    ages = [one for one in shown(numbers, 0)["attributes"] if one["name"] == "age"]
    assert ages == [{"name": "age", "value": "20", "other": "40", "share": pytest.approx(1 / 3)}]
    pixels = np.array([[[0.0, 0.5], [1.0, 0.25]], [[1, 1], [0, 0]]], dtype=np.float32)
    dataset = Dataset("pixels", Records(pixels, np.array([7, 1])), None, 8, "image")
    pictures = Split(dataset, np.arange(2), np.empty(0, np.int64), np.empty(0, np.int64))
    assert shown(pictures, 0) == {"label": 7, "pixels": [[0, 128], [255, 64]]}


def test_the_digest_of_d_depends_on_its_records_alone():
    everybody = people()
    fewer = Split(everybody.dataset, everybody.members[:2], everybody.held_out, everybody.pool)
    assert digest(everybody) == digest(people())
    assert digest(everybody) != digest(fewer)
