"""Who holds what, against brute force and random deals."""

import dataclasses
import io
from collections.abc import Callable
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from adversaries.errors import InputError
from fedsim import data
from fedsim.config import Config
from fedsim.data import Dataset, Records, holdings
from fedsim.data.holdings import Holdings
from fedsim.game import federation
from fedsim.report import holdings_report

Small = Callable[..., Config]

tables = st.integers(1, 4).flatmap(
    lambda classes: st.lists(
        st.lists(st.integers(0, 20), min_size=classes, max_size=classes).filter(any),
        min_size=1,
        max_size=5,
    )
)


def records(labels: list[int]) -> Records:
    return Records(np.zeros((len(labels), 2), np.float32), np.array(labels))


def people() -> Dataset:
    countries = np.array(["no", "no", "fr", "pt"] * 30)
    return Dataset(
        "people", records([0, 1, 1] * 40), None, 2, "tabular", columns={"country": countries}
    )


def test_label_skew_is_the_share_of_records_with_the_wrong_label() -> None:
    # D has as many of both labels; the first owner has 3 of 4 in the first: one record too many.
    held = Holdings(np.array([[3, 1], [1, 3]]))
    np.testing.assert_allclose(held.label_skew, [0.25, 0.25])
    np.testing.assert_array_equal(Holdings(np.array([[2, 4], [1, 2]])).label_skew, 0)


def test_averages_over_owners_count_records() -> None:
    # 6 of 8 records are with an owner that is 1/8 off, 2 with one that is 3/8 off.
    held = Holdings(np.array([[3, 3], [2, 0]]))
    np.testing.assert_allclose(held.label_skew, [1 / 8, 3 / 8])
    assert held.mean(held.label_skew) == pytest.approx((6 * 1 / 8 + 2 * 3 / 8) / 8)
    assert held.skew_summary()["measured"] == round(1.5 / 8, 4)


def test_effective_classes_of_equal_shares_are_their_number() -> None:
    held = Holdings(np.array([[5, 0, 0], [2, 2, 0], [7, 7, 7], [1, 9, 0]]))
    np.testing.assert_allclose(held.effective_classes[:3], [1, 2, 3])
    entropy = -0.1 * np.log(0.1) - 0.9 * np.log(0.9)
    assert held.effective_classes[3] == pytest.approx(np.exp(entropy))
    np.testing.assert_array_equal(held.classes, [1, 2, 3, 2])


def test_the_skew_by_chance_is_the_mean_over_all_deals() -> None:
    labels = np.repeat([0, 1, 2], [2, 3, 4])
    overall = np.bincount(labels) / 9
    for size in range(1, 10):
        skews = [
            np.abs(np.bincount(labels[list(deal)], minlength=3) / size - overall).sum() / 2
            for deal in combinations(range(9), size)
        ]
        rest = np.array([2, 3, 4]) - (counts := np.bincount(labels[:size], minlength=3))
        held = Holdings(np.array([counts, rest]) if rest.any() else counts[None])
        assert held.chance_skew[0] == pytest.approx(np.mean(skews), rel=1e-9, abs=1e-12)


def test_iid_owners_are_as_skewed_as_chance_has_it() -> None:
    labels = np.arange(400) % 10
    skews = []
    for seed in range(200):
        owner_of = np.random.default_rng(seed).permutation(np.arange(400) % 4)
        counts = np.bincount(owner_of * 10 + labels, minlength=40).reshape(4, 10)
        held = Holdings(counts)
        skews.append(held.mean(held.label_skew))
    error = np.std(skews) / len(skews) ** 0.5
    assert abs(np.mean(skews) - held.mean(held.chance_skew)) < 5 * error


@given(tables)
def test_every_measure_stays_within_its_range(counts: list[list[int]]) -> None:
    held = Holdings(np.array(counts))
    for skew in (held.label_skew, held.chance_skew):
        assert (skew >= 0).all()
        assert (skew < 1).all()
    assert (held.effective_classes >= 1 - 1e-12).all()
    assert (held.effective_classes <= held.classes + 1e-9).all()
    assert 0 <= held.mean(held.label_skew) < 1


def test_the_federation_and_the_holdings_agree(small: Small) -> None:
    config = small({"federation.partition": "dirichlet", "federation.owners": 3})
    known = federation.load(config)
    split = holdings.draw(config, data.load("digits"))
    np.testing.assert_array_equal(known.split.members, split.members)
    owner_of = holdings.divide(config, split)
    np.testing.assert_array_equal(known.owner_of, owner_of)
    counts = holdings.hold(split, owner_of, 3).counts
    for owner in range(3):
        labels = split.members_records.labels[known.owned_by(owner)]
        np.testing.assert_array_equal(counts[owner], np.bincount(labels, minlength=10))


def test_a_country_goes_to_one_owner(small: Small) -> None:
    config = small(
        {
            "data.records": 60,
            "federation.partition": "key",
            "federation.partition-key": "country",
        }
    )
    split = holdings.draw(config, people())
    owner_of = holdings.divide(config, split)
    countries = people().columns["country"][split.members]
    assert {len(set(owner_of[countries == country])) for country in ("no", "fr", "pt")} == {1}
    assert set(owner_of) == {0, 1, 2}


def test_hundreds_of_columns_are_named_in_part() -> None:
    assert holdings.named(["a", "b"]) == "a, b"
    assert holdings.named(map(str, range(600))).endswith("18, 19 and 580 more")


def test_labels_are_a_column_of_every_dataset(small: Small) -> None:
    config = small({"federation.partition": "key", "federation.partition-key": "label"})
    split = holdings.draw(config, data.load("digits"))
    held = holdings.hold(split, holdings.divide(config, split), 3)
    assert (np.count_nonzero(held.counts, axis=0) <= 1).all()


def test_a_key_that_is_both_the_labels_and_a_column_is_refused(small: Small) -> None:
    known, printers = people(), np.arange(len(people().train)) % 5
    columns = {**known.columns, "label": printers}
    source = dataclasses.replace(known, columns=columns)
    assert holdings.columns_of(source)["label"] is source.train.labels
    config = small({"federation.partition": "key", "federation.partition-key": "label"})
    with pytest.raises(InputError, match=r"is 'label', .* people also has a column of that name"):
        holdings.divide(config, holdings.draw(config, source))
    other = small({"federation.partition": "key", "federation.partition-key": "country"})
    holdings.divide(other, holdings.draw(other, source))


@pytest.mark.parametrize(
    ("scheme", "key", "wrong"),
    [
        ("key", "city", r"is 'city', but the columns of people are label, country; name one"),
        ("key", "", r"is '', but the columns of people are label, country; name one"),
        ("iid", "country", r"federation.partition is 'iid', which splits it"),
    ],
)
def test_a_column_that_is_not_there_or_would_be_split_is_refused(
    small: Small, scheme: str, key: str, wrong: str
) -> None:
    config = small({"federation.partition": scheme, "federation.partition-key": key})
    with pytest.raises(InputError, match=wrong):
        holdings.divide(config, holdings.draw(config, people()))


def test_many_classes_and_strange_column_names_are_shown_as_they_are(
    small: Small, monkeypatch: pytest.MonkeyPatch
) -> None:
    labels, cities = list(range(12)) * 10, np.array(["[red]", "b"] * 60)
    source = Dataset("towns", records(labels), None, 12, "tabular", columns={"[bold]": cities})
    monkeypatch.setattr(holdings, "dataset", lambda config: source)
    keyed = {"federation.partition": "key", "federation.partition-key": "[bold]"}
    report = holdings_report.assemble(small(keyed | {"federation.owners": 2}))
    console = Console(width=100, file=io.StringIO(), record=True, markup=False)  # as the terminal
    console.print(holdings_report.summary(report))
    shown = console.export_text()
    assert "values of '[bold]'" in shown
    assert "[red]: " in shown
    assert "most of" in shown
    assert "records by label" not in shown
    assert "[red]: " in holdings_report.render_html(report)
