"""Write handwritten digits in MNIST's form: whole for the server, blank but for its own per client.

usage: shards.py CONFIG WHOLE_FOLDER CLIENT_FOLDER... ; prints the adversary's partition, whose
folder is whole too: it knows D, as the threat model says.
"""

import struct
import sys
from pathlib import Path

import numpy as np
from sklearn.datasets import load_digits

from fedsim import config
from fedsim.game import challenge, federation


def write(folder: Path, part: str, images: np.ndarray, labels: np.ndarray) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    header = struct.pack(">BBBBIII", 0, 0, 8, 3, *images.shape)
    (folder / f"{part}-images-idx3-ubyte").write_bytes(header + images.tobytes())
    header = struct.pack(">BBBBI", 0, 0, 8, 1, len(labels))
    (folder / f"{part}-labels-idx1-ubyte").write_bytes(header + labels.tobytes())


def main(config_file: str, whole: str, *clients: str) -> None:
    images, labels = load_digits(return_X_y=True)
    images = (images.reshape(-1, 8, 8) * 255 / 16).astype(np.uint8)
    images = np.pad(np.kron(images, np.ones((1, 3, 3), dtype=np.uint8)), ((0, 0), (2, 2), (2, 2)))
    labels = labels.astype(np.uint8)
    test = slice(1500, None)
    write(Path(whole), "train", images[:1500], labels[:1500])
    write(Path(whole), "t10k", images[test], labels[test])
    experiment = config.load(Path(config_file), {"data.root": whole})
    known, adversary = federation.load(experiment), challenge.choose(experiment).adversary
    for client, folder in enumerate(clients):
        kept = np.zeros(1500, dtype=bool)
        kept[known.split.members[known.owned_by(client)]] = True
        if client == adversary:
            kept[:] = True
        write(Path(folder), "train", images[:1500] * kept[:, None, None], labels[:1500])
        write(Path(folder), "t10k", images[test] * 0, labels[test])
    print(f"the adversary is client {adversary}")


if __name__ == "__main__":
    main(*sys.argv[1:])
