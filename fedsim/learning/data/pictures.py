"""The user's own pictures, in a folder with one subfolder for each class."""

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np
import numpy.typing as npt

from adversaries.errors import InputError
from fedsim.common import reading
from fedsim.configuration.federation import DataConfig
from fedsim.learning.data.arrays import dataset_of
from fedsim.learning.data.dataset import Dataset, place

if TYPE_CHECKING:
    from PIL import Image

CHANNELS = 3
"""Most bytes of a pixel when a picture is decoded."""

GREY = ("1", "L", "LA")
"""Pillow's modes of pictures without colour."""

Pixels = npt.NDArray[np.uint8]


def read(source: DataConfig) -> Dataset:
    """Return the pictures of a folder as images [C, H, W] in [0, 1], C = 1 if all are grey, else 3.

    Classes are the subfolders in order, as for `torchvision.datasets.ImageFolder`. The column
    "file" has each picture's path within the folder.

    Raises InputError without pictures, or if one is damaged, too deep or of another size.
    """
    path = place(source)
    images, labels, names = folder(path, source.image_size)
    return dataset_of(source, path, images, np.array(labels), {"file": np.array(names)})


def folder(
    root: Path, size: int, only: Sequence[int] | None = None
) -> tuple[Pixels, list[str], list[str]]:
    """Return the pictures of a folder, uint8 [N, C, H, W], with their subfolders and paths [N].

    size: side of the squares to which pictures are scaled; 0 keeps their size.
    only: rows and columns that every picture must have; then a class may have no pictures.
    Raises InputError without pictures, or if one is damaged, too deep or of another size.
    """
    from torchvision.datasets import ImageFolder  # noqa: PLC0415  (takes seconds)

    if not root.is_dir():
        raise InputError(f"there is no folder '{root}'; name one with data.root=PATH")
    try:
        paths = [path for path, _ in ImageFolder(str(root), allow_empty=only is not None).samples]
    except FileNotFoundError as error:
        reason = str(error).splitlines()[0]
        raise InputError(
            f"'{root}' is not a folder of pictures with a subfolder for each class ({reason})"
        ) from None
    decoded: list[Pixels] = []
    packed = unpacked = 0
    for name in paths:
        with reading.damage(partial(_damaged, f"'{name}'")):
            packed += Path(name).stat().st_size
            with reading.opened(Path(name)) as file, _opened(file) as picture:
                if only is not None and (picture.height, picture.width) != tuple(only):
                    raise InputError(
                        f"'{name}' has {picture.width}×{picture.height} pixels, but the schema's "
                        f"pictures have {only[1]}×{only[0]}; scale them to that size"
                    )
                unpacked += CHANNELS * picture.width * picture.height
                if unpacked > reading.most_unpacked(packed):
                    raise ValueError("it has too many pixels for the size of its file")
                decoded.append(_pixels(picture, name, size))
    names = [Path(name).relative_to(root).as_posix() for name in paths]
    return stack(decoded, paths), [Path(name).parts[0] for name in names], names


def decode(file: BinaryIO, name: str, size: int) -> Pixels:
    """Return one picture as uint8 [H, W] if it is grey, else [H, W, 3].

    size: side of the square to which it is scaled; 0 keeps its size.
    Raises InputError if it is damaged, or has more than 8 bits per pixel.
    """
    with reading.damage(partial(_damaged, name)), _opened(file) as picture:
        return _pixels(picture, name, size)


def stack(decoded: Sequence[Pixels], names: Sequence[str]) -> Pixels:
    """Return grey [H, W] and colour [H, W, 3] pictures of one size as [N, C, H, W]."""
    sizes = [f"{picture.shape[1]}×{picture.shape[0]}" for picture in decoded]
    if other := [place for place, size in enumerate(sizes) if size != sizes[0]]:
        raise InputError(
            f"'{names[0]}' has {sizes[0]} pixels and '{names[other[0]]}' {sizes[other[0]]}; set "
            "data.image-size, to which all pictures are scaled"
        )
    if all(picture.ndim == 2 for picture in decoded):
        return np.stack(decoded)[:, None]
    colour = [np.stack([p] * 3, axis=-1) if p.ndim == 2 else p for p in decoded]
    return np.moveaxis(np.stack(colour), -1, 1)


def _damaged(name: str, reason: str) -> InputError:
    return InputError(f"{name} is damaged or not a picture ({reason}); repair or remove it")


@contextmanager
def _opened(file: BinaryIO) -> "Iterator[Image.Image]":
    """Open a picture without decoding it.

    Raises OSError or ValueError if it is damaged, or so large that it may be meant to fill the
    memory.
    """
    from PIL import Image, UnidentifiedImageError  # noqa: PLC0415  (only pictures need it)

    with warnings.catch_warnings():
        warnings.simplefilter("error", Image.DecompressionBombWarning)
        try:
            picture = Image.open(file)
        except (Image.DecompressionBombWarning, Image.DecompressionBombError):
            raise ValueError("it has too many pixels") from None
        except UnidentifiedImageError:  # its own text shows Python's file object
            raise ValueError("it has no known format") from None
    with picture:
        yield picture


def _pixels(picture: Any, name: str, size: int) -> Pixels:
    from PIL import Image  # noqa: PLC0415

    if picture.mode.startswith(("I", "F")):
        raise InputError(f"'{name}' has more than 8 bits per pixel; save it with 8, or as .npz")
    converted = picture.convert("L" if picture.mode in GREY else "RGB")
    if size:
        converted = converted.resize((size, size), Image.Resampling.BILINEAR)
    return np.asarray(converted)
