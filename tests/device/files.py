"""Writes small data for the cases: pictures.npz, table.csv, texts.csv and a decoder of texts.

python files.py
"""

import csv
from pathlib import Path

import numpy as np

WORDS = [f"w{number}" for number in range(15)]


def main():
    """Write everything to the working directory."""
    draw = np.random.default_rng(0)
    pictures = draw.random((80, 3, 28, 28), dtype=np.float32)
    labels = np.arange(80) % 2
    np.savez("pictures.npz", features=pictures, labels=labels)
    rows = draw.standard_normal((80, 6)).round(3)
    _table("table.csv", [*"abcdef", "y"], [[*row, row.sum().round(3)] for row in rows])
    texts = [[" ".join(draw.choice(WORDS, 6))] for _ in range(80)]
    _table("texts.csv", ["text"], texts)
    _decoder(Path("decoder"))


def _table(path, head, rows):
    with Path(path).open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([head, *rows])


def _decoder(place):
    import torch  # noqa: PLC0415
    from tokenizers import Tokenizer  # noqa: PLC0415
    from tokenizers.models import WordLevel  # noqa: PLC0415
    from tokenizers.pre_tokenizers import Whitespace  # noqa: PLC0415
    from transformers import GPT2Config, GPT2LMHeadModel  # noqa: PLC0415

    names = ["[PAD]", "[UNK]", *WORDS]
    place.mkdir()
    tokens = WordLevel({word: at for at, word in enumerate(names)}, unk_token="[UNK]")
    tokenizer = Tokenizer(tokens)
    tokenizer.pre_tokenizer = Whitespace()
    tokenizer.save(str(place / "tokenizer.json"))
    torch.manual_seed(0)
    size = {"n_embd": 8, "n_layer": 1, "n_head": 2, "n_positions": 8, "vocab_size": len(names)}
    GPT2LMHeadModel(GPT2Config(**size, pad_token_id=0)).save_pretrained(place)


if __name__ == "__main__":
    main()
