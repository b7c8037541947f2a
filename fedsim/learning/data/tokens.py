"""Texts as numbers of tokens, by the tokenizer of a local Hugging Face directory.

The directory is public and the same for all parties, who tell it from others by one SHA-256
(`fedsim.learning.training.pretrained`). Nothing of it is run, and nothing is downloaded.
"""

import json
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from adversaries.errors import InputError
from fedsim.common import reading

CONFIG, TOKENIZER = "config.json", "tokenizer.json"

EXTRA = "pip install 'transformers>=5,<6'"


def settings(directory: str) -> dict[str, Any]:
    """Return what a directory's config.json says of its network.

    directory: of Hugging Face's form.
    Raises InputError if it has none, or one that says of no padding.
    """
    path = Path(directory) / CONFIG
    try:
        found = json.loads(reading.content(path, reading.MOST_JSON))
    except (OSError, ValueError) as error:
        raise InputError(
            f"cannot read '{path}': {error}; model.weights names a directory with {CONFIG}, "
            f"{TOKENIZER} and model.safetensors, as save_pretrained of transformers writes them"
        ) from None
    if not isinstance(found, dict) or not isinstance(found.get("pad_token_id"), int):
        raise InputError(f"'{path}' has no pad_token_id; say which token fills up short texts")
    return found


def numbers(texts: Sequence[str], length: int, directory: str) -> npt.NDArray[np.float32]:
    """Return the tokens of texts, float32 [N, length], which holds whole numbers to 2^24.

    texts: [N].
    length: of each record: what is longer is cut, and what is shorter padded.
    directory: with `CONFIG` and `TOKENIZER`; "" for none.
    Raises InputError if there is no such directory, or it is damaged.
    """
    if not directory:
        raise InputError(
            "the schema is of texts, whose tokenizer lies beside the network: name its directory "
            "with model.weights (on a client's machine weights-path in node.toml)"
        )
    tokenizer, padding = _tokenizer(directory), settings(directory)["pad_token_id"]
    tokenizer.enable_truncation(length)
    found = np.full((len(texts), length), padding, dtype=np.float32)
    for row, encoded in enumerate(tokenizer.encode_batch(list(texts))):
        found[row, : len(encoded.ids)] = encoded.ids
    return found


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
        raise InputError(f"'{path}' is no tokenizer ({error}); restore it from a copy") from None
    tokenizer.no_padding()
    return tokenizer
