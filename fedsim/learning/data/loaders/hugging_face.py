"""A Hugging Face data set in a local directory: pictures, lists of numbers, or a table."""

import io
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from adversaries.errors import InputError
from fedsim.common import installation, reading
from fedsim.learning.data.loaders import image_folder, npz, table
from fedsim.learning.data.loaders.dataset import Dataset, Source

if TYPE_CHECKING:
    import datasets

SAVED, SAVED_SPLITS = "state.json", "dataset_dict.json"
"""The files that identify a directory written by `save_to_disk`, with one split or several."""

TRAIN = "train"
"""The split that is read if there are several."""


def own(source: Source) -> Dataset:
    """Return the data set of a directory that `save_to_disk` wrote, or of Parquet files.

    Without pictures or lists of numbers it is a table, whose columns except the label are features.
    Raises InputError if the library is not installed, or the directory has no such data set.
    """
    path = source.path

    def refusal(reason: str) -> InputError:
        return InputError(f"'{path}' is damaged, or no Hugging Face data set ({reason})")

    with reading.damage(refusal):
        split = _read(path)
        features, columns = _columns(source, split)
        values = _values(split, features, path, source.image_size) if features else None
    if values is None:
        texts = [["" if value is None else str(value) for value in of] for of in columns.values()]
        rows = [list(row) for row in zip(*texts, strict=True)]
        table_columns, dropped = table.columns_of(columns, rows, path)
        return table.encode(
            source.name, path, table_columns, source.label, source.exclude, dropped, source.target
        )
    arrays = {name: np.asarray(values) for name, values in columns.items()}
    return npz.of_arrays(source.name, path, values, arrays.pop(source.label), arrays, source.target)


def _columns(source: Source, split: "datasets.Dataset") -> tuple[str, dict[str, list[Any]]]:
    """Return the name of the column of features, "" for a table, and the values of the others."""
    path = source.path
    named = ", ".join(split.column_names)
    for key, chosen in (("data.label", (source.label,)), ("data.exclude", source.exclude)):
        for column in chosen:
            if column not in split.column_names:
                raise InputError(f"{key} names '{column}', but the columns of '{path}' are {named}")
    features = [
        name
        for name, kind in split.features.items()
        if name not in {source.label, *source.exclude} and _is_array(kind)
    ]
    if len(features) > 1:
        raise InputError(
            f"'{path}' has several columns of pictures or lists: {', '.join(features)}; leave out "
            "all but one with data.exclude"
        )
    scalars = [name for name, kind in split.features.items() if _is_scalar(kind)]
    if source.label not in scalars:
        raise InputError(
            f"column '{source.label}' of '{path}' is not a label; name one in data.label"
        )
    columns = {name: split.with_format("python")[name][:] for name in scalars}
    for name, values in columns.items() if features else ():
        if None in values:
            raise InputError(
                f"record {values.index(None)} of '{path}' has no '{name}'; fill it in, or leave "
                "the record out"
            )
    return (features or [""])[0], columns


def _read(path: Path) -> "datasets.Dataset":
    """Return the only split, or the training split. Raises of `reading.DAMAGE`, or InputError."""
    try:
        import datasets  # noqa: PLC0415
        from pyarrow import concat_tables, parquet  # noqa: PLC0415
    except ImportError as error:
        command = installation.command("hf")
        raise InputError(
            f"data.name is 'hf', which the library datasets reads: {command} ({error})"
        ) from None
    if not path.is_dir():
        raise InputError(f"there is no folder '{path}'; name one with data.root=PATH")
    if odd := next((one for one in path.rglob("*") if not (one.is_file() or one.is_dir())), None):
        raise InputError(f"'{odd}' is neither a file nor a folder; remove it")  # such as a pipe
    if (path / SAVED).is_file() or (path / SAVED_SPLITS).is_file():
        return _saved(datasets.load_from_disk(str(path)), path)
    files = sorted(path.rglob("*.parquet"))
    if not files:
        raise InputError(
            f"'{path}' has neither a data set that save_to_disk wrote nor Parquet files; "
            "download one with huggingface-cli, or save one with dataset.save_to_disk(path)"
        )
    chosen = [file for file in files if TRAIN in file.name] or files
    return datasets.Dataset(concat_tables([parquet.ParquetFile(file).read() for file in chosen]))


def _saved(loaded: "datasets.Dataset | datasets.DatasetDict", path: Path) -> "datasets.Dataset":
    if not isinstance(loaded, dict):
        return loaded
    if TRAIN not in loaded and len(loaded) > 1:
        raise InputError(
            f"'{path}' has the splits {', '.join(loaded)}, but no split {TRAIN}; save the wanted "
            "split by itself"
        )
    return loaded[TRAIN] if TRAIN in loaded else next(iter(loaded.values()))


def _is_scalar(kind: Any) -> bool:
    from datasets import ClassLabel, Value  # noqa: PLC0415

    return isinstance(kind, ClassLabel | Value)


def _is_array(kind: Any) -> bool:
    from datasets import Image  # noqa: PLC0415

    inner = kind
    while getattr(inner, "feature", None) is not None:  # a list of lists
        inner = inner.feature
    words = getattr(inner, "dtype", "") in ("string", "large_string")
    return isinstance(kind, Image) or not (_is_scalar(kind) or isinstance(kind, dict) or words)


def _values(
    split: "datasets.Dataset", name: str, path: Path, size: int
) -> npt.NDArray[np.number[Any]]:
    """Return pictures as uint8 [N, C, H, W], or lists as numbers [N, ...]."""
    from datasets import Image  # noqa: PLC0415

    if isinstance(split.features[name], Image):
        # Decoded here, from bytes in the file: no path or address in the data set is followed.
        raw = split.cast_column(name, Image(decode=False))[name]
        names = [f"{name} of record {number}" for number in range(len(raw))]
        pictures = [_picture(one, of, size) for one, of in zip(raw, names, strict=True)]
        return image_folder.stack(pictures, names)
    try:
        return np.asarray(split.with_format("python")[name][:])
    except ValueError:
        raise InputError(
            f"lists of column '{name}' of '{path}' differ in length; make them equal, or leave the "
            "column out with data.exclude"
        ) from None


def _picture(stored: Any, name: str, size: int) -> npt.NDArray[np.uint8]:
    if not stored or not stored.get("bytes"):
        raise InputError(
            f"{name} is not in the file; save the data set again with its pictures embedded "
            "(save_to_disk and push_to_hub embed them)"
        )
    with (
        reading.damage(lambda reason: InputError(f"{name} is damaged ({reason}); remove it")),
        image_folder.opened(io.BytesIO(stored["bytes"])) as picture,
    ):
        return image_folder.pixels(picture, name, size)
