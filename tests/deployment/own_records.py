"""Write records that each machine alone has: handwritten digits as pictures, tumours as a table.

usage: own_records.py PUBLIC_FOLDER CLIENT_FOLDER...

In every folder digits.npz holds pictures, and tumours.csv a table with a header. Both data sets
are scikit-learn's (UCI: Optical Recognition of Handwritten Digits; Breast Cancer Wisconsin).
"""

import csv
import sys
from pathlib import Path

import numpy as np
from sklearn.datasets import load_breast_cancer, load_digits

PUBLIC_DIGITS, PUBLIC_TUMOURS = 297, 119


def write_table(path, names, rows, labels):
    with path.open("w", newline="") as file:
        written = csv.writer(file)
        written.writerow([*names, "diagnosis"])
        written.writerows([*row, label] for row, label in zip(rows, labels, strict=True))


def main(public, *clients):
    images, digits = load_digits(return_X_y=True)
    images, digits = images.reshape(-1, 8, 8).astype(np.uint8), digits.astype(np.uint8)
    tumours = load_breast_cancer()
    names = [str(name).replace(" ", "-") for name in tumours.feature_names]
    labels = [str(tumours.target_names[label]) for label in tumours.target]
    shares = (
        np.split(np.arange(len(digits)), [len(digits) - PUBLIC_DIGITS]),
        np.split(np.arange(len(labels)), [len(labels) - PUBLIC_TUMOURS]),
    )
    (private_digits, public_digits), (private_tumours, public_tumours) = shares
    parts = zip(
        (Path(folder) for folder in (public, *clients)),
        (public_digits, *np.array_split(private_digits, len(clients))),
        (public_tumours, *np.array_split(private_tumours, len(clients))),
        strict=True,
    )
    for folder, pictures, patients in parts:
        folder.mkdir(parents=True, exist_ok=True)
        np.savez(folder / "digits.npz", features=images[pictures], labels=digits[pictures])
        rows = tumours.data[patients]
        write_table(folder / "tumours.csv", names, rows, [labels[each] for each in patients])


if __name__ == "__main__":
    main(*sys.argv[1:])
