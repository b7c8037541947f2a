"""The records of D by client and label."""

import dataclasses
import io

import numpy as np
import pytest
from rich.console import Console

from adversaries.errors import InputError
from fedsim.game import federation
from fedsim.learning import data
from fedsim.learning.data import Dataset, Records, dealing, distribution
from fedsim.learning.data.dealing import DataDistribution
from fedsim.reports import distribution_report
from fedsim.reports.document import terminal


def records(labels):
    return Records(np.zeros((len(labels), 2), np.float32), np.array(labels))


def people():
    countries = np.array(["no", "no", "fr", "pt"] * 30)
    return Dataset(
        "people", records([0, 1, 1] * 40), None, 2, "tabular", columns={"country": countries}
    )


def test_label_skew_is_the_share_of_records_with_the_wrong_label():
    # D has as many of both labels; the first client has 3 of 4 in the first: one record too many.
    held = DataDistribution(np.array([[3, 1], [1, 3]]))
    np.testing.assert_allclose(held.label_skew, [0.25, 0.25])
    np.testing.assert_array_equal(DataDistribution(np.array([[2, 4], [1, 2]])).label_skew, 0)


def test_averages_over_clients_count_records():
    # 6 of 8 records are with a client that is 1/8 off, 2 with one that is 3/8 off.
    held = DataDistribution(np.array([[3, 3], [2, 0]]))
    np.testing.assert_allclose(held.label_skew, [1 / 8, 3 / 8])
    assert held.mean_skew == pytest.approx((6 * 1 / 8 + 2 * 3 / 8) / 8)


def test_the_federation_and_the_distribution_agree(small):
    config = small({"federation.partition": "dirichlet", "federation.clients": 3})
    known = federation.load(config)
    split = dealing.draw(config.data, data.load("digits"))
    np.testing.assert_array_equal(known.split.members, split.members)
    client_of = dealing.divide(config.federation, config.data.seed, split)
    np.testing.assert_array_equal(known.client_of, client_of)
    counts = dealing.hold(split, client_of, 3).counts
    for client in range(3):
        labels = split.members_records.labels[known.owned_by(client)]
        np.testing.assert_array_equal(counts[client], np.bincount(labels, minlength=10))


def test_a_country_goes_to_one_client(small):
    config = small(
        {
            "data.records": 60,
            "federation.partition": "key",
            "federation.partition-key": "country",
        }
    )
    split = dealing.draw(config.data, people())
    client_of = dealing.divide(config.federation, config.data.seed, split)
    countries = people().columns["country"][split.members]
    assert {len(set(client_of[countries == country])) for country in ("no", "fr", "pt")} == {1}
    assert set(client_of) == {0, 1, 2}


def test_hundreds_of_columns_are_named_in_part():
    assert dealing.named(["a", "b"]) == "a, b"
    assert dealing.named(map(str, range(600))).endswith("18, 19 and 580 more")


def test_labels_are_a_column_of_every_dataset(small):
    config = small({"federation.partition": "key", "federation.partition-key": "label"})
    split = dealing.draw(config.data, data.load("digits"))
    held = dealing.hold(split, dealing.divide(config.federation, config.data.seed, split), 3)
    assert (np.count_nonzero(held.counts, axis=0) <= 1).all()


def test_a_key_that_is_both_the_labels_and_a_column_is_refused(small):
    known, printers = people(), np.arange(len(people().train)) % 5
    columns = {**known.columns, "label": printers}
    source = dataclasses.replace(known, columns=columns)
    assert dealing.columns_of(source)["label"] is source.train.labels
    config = small({"federation.partition": "key", "federation.partition-key": "label"})
    with pytest.raises(InputError, match=r"is 'label', .* people also has a column of this name"):
        dealing.divide(config.federation, config.data.seed, dealing.draw(config.data, source))
    other = small({"federation.partition": "key", "federation.partition-key": "country"})
    dealing.divide(other.federation, other.data.seed, dealing.draw(other.data, source))


@pytest.mark.parametrize(
    ("scheme", "key", "wrong"),
    [
        ("key", "city", r"is 'city', but the columns of people are label, country; name one"),
        ("key", "", r"is '', but the columns of people are label, country; name one"),
        ("iid", "country", r"federation.partition is 'iid', which does not use it"),
    ],
)
def test_a_column_that_is_not_there_or_would_be_split_is_refused(small, scheme, key, wrong):
    config = small({"federation.partition": scheme, "federation.partition-key": key})
    with pytest.raises(InputError, match=wrong):
        dealing.divide(config.federation, config.data.seed, dealing.draw(config.data, people()))


def test_many_classes_and_strange_column_names_are_shown_as_they_are(small, monkeypatch):
    labels, cities = list(range(12)) * 10, np.array(["[red]", "b"] * 60)
    source = Dataset("towns", records(labels), None, 12, "tabular", columns={"[bold]": cities})
    monkeypatch.setattr(distribution, "dataset", lambda config, weights: source)
    keyed = {"federation.partition": "key", "federation.partition-key": "[bold]"}
    report = distribution_report.assemble(small(keyed | {"federation.clients": 2}))
    console = Console(width=100, file=io.StringIO(), record=True, markup=False)  # as the terminal
    console.print(terminal.shown(*distribution_report.blocks(report)))
    shown = console.export_text()
    assert "largest" in shown and "'[bold]'" in shown
    assert "[red]: " in shown
    assert "most of" in shown
    assert "records by label" not in shown
