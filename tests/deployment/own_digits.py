"""Write handwritten digits in MNIST's form: some for each client alone, public ones for a server.

usage: own_digits.py PUBLIC_FOLDER CLIENT_FOLDER...
"""

import struct
import sys
from pathlib import Path

import numpy as np
from sklearn.datasets import load_digits


def write(folder: Path, images: np.ndarray, labels: np.ndarray) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    header = struct.pack(">BBBBIII", 0, 0, 8, 3, *images.shape)
    (folder / "train-images-idx3-ubyte").write_bytes(header + images.tobytes())
    header = struct.pack(">BBBBI", 0, 0, 8, 1, len(labels))
    (folder / "train-labels-idx1-ubyte").write_bytes(header + labels.tobytes())


def main(public: str, *clients: str) -> None:
    images, labels = load_digits(return_X_y=True)
    images, labels = images.reshape(-1, 8, 8).astype(np.uint8), labels.astype(np.uint8)
    write(Path(public), images[1500:], labels[1500:])
    parts = np.array_split(np.arange(1500), len(clients))
    for folder, part in zip(clients, parts, strict=True):
        write(Path(folder), images[part], labels[part])


if __name__ == "__main__":
    main(*sys.argv[1:])
