"""Every dataset is described."""

from fedsim.learning.data import DATASETS
from fedsim.learning.data.dataset_cards import DATASET_CARDS, listing


def test_every_dataset_that_can_be_loaded_is_described():
    assert set(DATASETS) <= set(DATASET_CARDS)
    assert [entry["name"] for entry in listing()] == list(DATASETS)
    assert all(all(entry.values()) for entry in listing())
