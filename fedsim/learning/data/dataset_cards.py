"""Descriptions of the datasets of `fedsim.learning.data`, for a reader who chooses one."""

from fedsim.learning.data import DATASETS

KEYS = ("what", "files", "licence")

WITH_SCIKIT_LEARN = ("none: comes with scikit-learn", "CC BY 4.0")
IDX, UNKNOWN, OWN = "folder with the four IDX files", "not stated by its authors", "your own"

DATASET_CARDS: dict[str, tuple[str, str, str]] = {
    "digits": ("1,797 handwritten digits, 8x8 grey, 10 classes", *WITH_SCIKIT_LEARN),
    "breast-cancer": ("569 tumours, 30 measurements, 2 classes", *WITH_SCIKIT_LEARN),
    "mnist": ("70,000 handwritten digits, 28x28 grey, 10 classes", IDX, UNKNOWN),
    "fashion-mnist": ("70,000 pictures of clothes, 28x28 grey, 10 classes", IDX, "MIT"),
    "cifar-10": (
        "60,000 photographs, 32x32 colour, 10 classes",
        "folder with torchvision's batches",
        UNKNOWN,
    ),
    "purchase-100": (
        "197,324 shoppers, 600 binary features, 100 classes",
        "the file dataset_purchase of Shokri et al.",
        "terms of the Kaggle competition it stems from",
    ),
    "adult": (
        "45,222 people of the 1994 census, 104 features, 2 classes",
        "folder with UCI's adult.data and adult.test",
        "CC BY 4.0",
    ),
    "abalone": (
        "4,177 sea snails, 10 features, 2 classes of age",
        "folder with UCI's abalone.data",
        "CC BY 4.0",
    ),
    "idx": ("grey images in the format of MNIST", "folder with four IDX files", OWN),
    "npz": ("features and labels as NumPy arrays", "an .npz file", OWN),
    "csv": ("a table with a column of labels", "a CSV, TSV or Parquet file", OWN),
    "images": ("images sorted by class", "folder with a folder for each class", OWN),
    "texts": ("texts without labels, for a decoder", "a file with one a line, or a table", OWN),
    "hf": (
        "a data set of Hugging Face: pictures, lists of numbers or a table",
        "what save_to_disk wrote, or a folder of Parquet files",
        "the data set's own",
    ),
}
"""What each is, its files, and its licence; an extension's dataset has its name only."""


def listing() -> list[dict[str, str]]:
    """Return the datasets that can be loaded, with their descriptions."""
    return [
        {"name": name, **dict(zip(KEYS, DATASET_CARDS.get(name, ("", "", "")), strict=True))}
        for name in DATASETS
    ]
