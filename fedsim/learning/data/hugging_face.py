"""A Hugging Face data set in a local directory: pictures, lists of numbers, or a table."""

import io
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from adversaries.errors import InputError
from fedsim.common import installation, reading
from fedsim.configuration.federation import DataConfig
from fedsim.learning.data import arrays, files, pictures, separated, table
from fedsim.learning.data.dataset import Dataset, place

if TYPE_CHECKING:
    import datasets

SAVED = ("state.json", "dataset_dict.json")
"""The files that identify a directory written by `save_to_disk`, with one split or several."""

TRAIN = "train"
"""The split that is read if there are several."""


def read(source: DataConfig) -> Dataset:
    """Return the data set of a directory that `save_to_disk` wrote, or of Parquet files.

    Without pictures or lists of numbers it is a table, whose columns except the label are features.
    Raises InputError if the library is not installed, or the directory has no such data set.
    """
    path = place(source)

    def refusal(reason: str) -> InputError:
        return InputError(f"'{path}' is damaged, or no Hugging Face data set ({reason})")

    with reading.damage(refusal):
        split = _split(path)
        features, scalars = _kinds(source, split)
        python = split.with_format("python")
        columns = {name: python[name][:] for name in scalars}
        if not features:
            return table.proposed(source, {n: files.as_text(of) for n, of in columns.items()})
        if gaps := [name for name, of in columns.items() if None in of]:
            raise InputError(
                f"a record of '{path}' has no '{gaps[0]}'; fill it in, or leave it out"
            )
        given = {name: np.asarray(of) for name, of in columns.items()}
        values = _values(split, features, source.image_size)
        return arrays.dataset_of(source, path, values, given.pop(source.label), given)


def _split(path: Path) -> "datasets.Dataset":
    """Return the only split, or the training split."""
    try:
        import datasets  # noqa: PLC0415
    except ImportError as error:
        command = installation.command("hf")
        raise InputError(
            f"data.name is 'hf', which the library datasets reads: {command} ({error})"
        ) from None
    if not path.is_dir():
        raise InputError(f"there is no folder '{path}'; name one with data.root=PATH")
    if odd := next((one for one in path.rglob("*") if not (one.is_file() or one.is_dir())), None):
        raise InputError(f"'{odd}' is neither a file nor a folder; remove it")  # such as a pipe
    if any((path / name).is_file() for name in SAVED):
        loaded = datasets.load_from_disk(str(path))
        splits = loaded if isinstance(loaded, dict) else {TRAIN: loaded}
        if TRAIN not in splits and len(splits) > 1:
            raise InputError(
                f"'{path}' has the splits {', '.join(splits)}, but no split {TRAIN}; save the "
                "wanted split by itself"
            )
        return splits[TRAIN if TRAIN in splits else next(iter(splits))]
    parts = sorted(path.rglob("*.parquet"))
    if not parts:
        raise InputError(
            f"'{path}' has neither a data set that save_to_disk wrote nor Parquet files; "
            "download one with huggingface-cli, or save one with dataset.save_to_disk(path)"
        )
    from pyarrow import concat_tables, parquet  # noqa: PLC0415  (comes with datasets)

    chosen = [file for file in parts if TRAIN in file.name] or parts
    return datasets.Dataset(concat_tables([parquet.ParquetFile(file).read() for file in chosen]))


def _kinds(source: DataConfig, split: "datasets.Dataset") -> tuple[str, list[str]]:
    """Return the name of the column of features, "" for a table, and the names of scalar columns.

    A column of words in a list, or of tables, is neither.
    """
    from datasets import ClassLabel, Value  # noqa: PLC0415

    excluded = separated(source.exclude)
    scalars = [n for n, kind in split.features.items() if isinstance(kind, ClassLabel | Value)]
    unknown = [name for name in excluded if name not in split.column_names]
    if source.label not in scalars or unknown:
        key, name = ("exclude", unknown[0]) if unknown else ("label", source.label)
        raise InputError(
            f"data.{key} names '{name}', which is no such column of '{source.root}'; its columns "
            f"are {', '.join(split.column_names)}"
        )
    aside = {*scalars, *excluded}
    features = [n for n, kind in split.features.items() if n not in aside and _is_numeric(kind)]
    if len(features) > 1:
        raise InputError(
            f"'{source.root}' has several columns of pictures or lists: {', '.join(features)}; "
            "leave out all but one with data.exclude"
        )
    return (features or [""])[0], scalars


def _is_numeric(kind: Any) -> bool:
    """Return whether a column has pictures, or lists of numbers."""
    while getattr(kind, "feature", None) is not None:  # a list of lists
        kind = kind.feature
    return not isinstance(kind, dict) and "string" not in str(getattr(kind, "dtype", ""))


def _values(split: "datasets.Dataset", name: str, size: int) -> npt.NDArray[np.number[Any]]:
    """Return pictures as uint8 [N, C, H, W], or lists as numbers [N, ...]."""
    from datasets import Image  # noqa: PLC0415

    if not isinstance(split.features[name], Image):
        return np.asarray(split.with_format("python")[name][:])
    # Decoded here, from bytes in the file: no path or address in the data set is followed.
    raw = split.cast_column(name, Image(decode=False))[name]
    names = [f"{name} of record {number}" for number in range(len(raw))]
    decoded = []
    for stored, of in zip(raw, names, strict=True):
        if not stored or not stored.get("bytes"):
            raise InputError(
                f"{of} is not in the file; save the data set again with its pictures embedded "
                "(save_to_disk and push_to_hub embed them)"
            )
        decoded.append(pictures.decode(io.BytesIO(stored["bytes"]), of, size))
    return pictures.stack(decoded, names)
