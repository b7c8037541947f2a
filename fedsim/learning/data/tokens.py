"""Texts as numbers of tokens, by the tokenizer of a local Hugging Face directory."""

import json
import logging
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from adversaries.errors import InputError
from fedsim.common import installation, reading
from fedsim.configuration.federation import DataConfig
from fedsim.learning.data import files
from fedsim.learning.data.dataset import Dataset, Records, place

CONFIG, TOKENIZER = "config.json", "tokenizer.json"

EXTRA = installation.command("text")

LOG = logging.getLogger("fedsim.records")


def settings(directory: str) -> dict[str, Any]:
    """Return the settings in a Hugging Face directory's config.json.

    Raises InputError if the file is missing, or does not name the padding token.
    """
    path = Path(directory) / CONFIG
    try:
        config = json.loads(reading.content(path, reading.MOST_JSON))
    except (OSError, ValueError) as error:
        raise InputError(
            f"cannot read '{path}': {error}; model.weights names a directory with {CONFIG}, "
            f"{TOKENIZER} and model.safetensors, as save_pretrained of transformers writes them"
        ) from None
    if not isinstance(config, dict) or not isinstance(config.get("pad_token_id"), int):
        raise InputError(f"'{path}' has no pad_token_id; name the token that pads short texts")
    return config


def numbers(texts: Sequence[str], length: int, directory: str) -> npt.NDArray[np.float32]:
    """Return the tokens of texts [N], float32 [N, length], which holds whole numbers to 2^24.

    length: number of tokens in each record: longer texts are cut, shorter ones padded.
    directory: with `CONFIG` and `TOKENIZER`; "" if none is named.
    Raises InputError if the directory is missing or damaged.
    """
    if not directory:
        raise InputError(
            "the schema describes texts, which need the tokenizer in the network's directory; set "
            "model.weights to that directory (on a client's machine, weights-path in node.toml)"
        )
    tokenizer, padding = _tokenizer(directory), settings(directory)["pad_token_id"]
    tokenizer.enable_truncation(length)
    tokens = np.full((len(texts), length), padding, dtype=np.float32)
    for row, encoded in enumerate(tokenizer.encode_batch(list(texts))):
        tokens[row, : len(encoded.ids)] = encoded.ids
    return tokens


@lru_cache(maxsize=1)
def _tokenizer(directory: str) -> Any:
    try:
        from tokenizers import Tokenizer  # noqa: PLC0415  (an extra)
    except ImportError:
        raise InputError(f"a schema of texts needs tokenizers: {EXTRA}") from None
    path = Path(directory) / TOKENIZER
    try:
        tokenizer = Tokenizer.from_str(reading.content(path, reading.MOST_JSON).decode())
    except Exception as error:
        raise InputError(f"'{path}' is not a tokenizer ({error}); restore it from a copy") from None
    tokenizer.no_padding()
    return tokenizer


COLUMN = "text"
"""The column of a table with the texts."""


def read(source: DataConfig, tokenizer: str = "") -> Dataset:
    """Return the texts of a file as tokens, all with label 0.

    tokenizer: directory of the tokenizer.
    Raises InputError if the file has no texts, or the directory has no tokenizer.
    """
    features = read_texts(str(place(source, is_file=True)), source.length, tokenizer)
    labels = np.zeros(len(features), dtype=np.int64)
    return Dataset(source.name, Records(features, labels), None, 1, "tabular")


def read_texts(path: str, length: int, tokenizer: str) -> npt.NDArray[np.float32]:
    """Return the texts of a file as tokens, [N, length], with a warning of blank ones left out."""
    columns, _ = files.read(path)
    if COLUMN not in columns:
        raise InputError(
            f"'{path}' has no column '{COLUMN}', it has {', '.join(columns)}; rename the column of "
            f"the texts to '{COLUMN}'"
        )
    texts = [text for text in columns[COLUMN] if text.strip()]
    if not texts:
        raise InputError(f"'{path}' has no text; give one text a line")
    if blank := len(columns[COLUMN]) - len(texts):
        LOG.warning("'%s': %d blank texts are left out", path, blank)
    return numbers(texts, length, tokenizer)
