"""Descriptions of the datasets of `fedsim.learning.data`, for a reader who chooses one."""

from dataclasses import asdict, dataclass

from fedsim.learning.data import DATASETS


@dataclass(frozen=True)
class Entry:
    """A dataset, described in a line for each question."""

    what: str
    files: str
    licence: str


WITH_SCIKIT_LEARN = "none: comes with scikit-learn"
OWN = "your own"

DATASET_CARDS: dict[str, Entry] = {
    "digits": Entry(
        "1,797 handwritten digits, 8x8 grey, 10 classes", WITH_SCIKIT_LEARN, "CC BY 4.0"
    ),
    "breast-cancer": Entry(
        "569 tumours, 30 measurements, 2 classes", WITH_SCIKIT_LEARN, "CC BY 4.0"
    ),
    "mnist": Entry(
        "70,000 handwritten digits, 28x28 grey, 10 classes",
        "folder with the four IDX files",
        "not stated by its authors",
    ),
    "fashion-mnist": Entry(
        "70,000 pictures of clothes, 28x28 grey, 10 classes",
        "folder with the four IDX files",
        "MIT",
    ),
    "cifar-10": Entry(
        "60,000 photographs, 32x32 colour, 10 classes",
        "folder with the original batches",
        "not stated by its authors",
    ),
    "purchase-100": Entry(
        "197,324 shoppers, 600 binary features, 100 classes",
        "the .npz of Shokri et al. or the original CSV",
        "terms of the Kaggle competition it stems from",
    ),
    "adult": Entry(
        "45,222 people of the 1994 census, 104 features, 2 classes",
        "folder with UCI's adult.data and adult.test",
        "CC BY 4.0",
    ),
    "abalone": Entry(
        "4,177 sea snails, 10 features, 2 classes of age",
        "folder with UCI's abalone.data",
        "CC BY 4.0",
    ),
    "idx": Entry("grey images in the format of MNIST", "folder with four IDX files", OWN),
    "npz": Entry("features and labels as NumPy arrays", "an .npz file", OWN),
    "csv": Entry("a table with a column of labels", "a CSV file", OWN),
    "images": Entry("images sorted by class", "folder with a folder for each class", OWN),
    "texts": Entry(
        "texts without labels, for a decoder", "a file with one a line, or a table", OWN
    ),
    "hf": Entry(
        "a data set of Hugging Face: pictures, lists of numbers or a table",
        "what save_to_disk wrote, or a folder of Parquet files",
        "the data set's own",
    ),
}
"""Descriptions by name; an extension's dataset without a description has its name only."""

UNKNOWN = Entry("", "", "")


def listing() -> list[dict[str, str]]:
    """Return the datasets that can be loaded, with their descriptions."""
    return [{"name": name, **asdict(DATASET_CARDS.get(name, UNKNOWN))} for name in DATASETS]
