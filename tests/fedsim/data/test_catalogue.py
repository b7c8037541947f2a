"""Every dataset is described."""

from fedsim.data import DATASETS
from fedsim.data.catalogue import CATALOGUE, listing


def test_every_dataset_that_can_be_loaded_is_described() -> None:
    assert set(DATASETS) <= set(CATALOGUE)
    assert [entry["name"] for entry in listing()] == list(DATASETS)
    assert all(all(entry.values()) for entry in listing())
