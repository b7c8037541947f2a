"""Pictures of the user's own, in a folder with one subfolder for each class."""

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from adversaries.errors import InputError
from fedsim.common import reading
from fedsim.data.loaders.dataset import Dataset, Records
from fedsim.data.loaders.source import Source
from fedsim.data.loaders.validation import class_numbers

GREY = ("1", "L", "LA")
"""Pillow's modes of pictures without colour."""


def own(source: Source) -> Dataset:
    """Return the pictures of a folder as images [C, H, W] in [0, 1], C = 1 if all are grey, else 3.

    Classes are the subfolders in order, as `torchvision.datasets.ImageFolder` reads them; the
    column "file" has each picture's path within the folder.

    Args:
        source: the folder, and the side that pictures are brought to.

    Raises:
        InputError: a picture is damaged, too deep or of another size, or there are none.
    """
    from PIL import Image  # noqa: PLC0415  (only pictures need it; torchvision takes seconds)
    from torchvision.datasets import ImageFolder  # noqa: PLC0415

    root, size = source.path, source.image_size
    if not root.is_dir():
        raise InputError(f"there is no folder '{root}'; name one with data.root=PATH")
    try:
        files = ImageFolder(str(root)).samples
    except FileNotFoundError as error:
        reason = str(error).splitlines()[0]
        raise InputError(
            f"'{root}' is no folder of pictures, with a subfolder of them for each class ({reason})"
        ) from None
    pictures: list[Any] = []
    packed = unpacked = 0
    for name, _ in files:
        with reading.damage(partial(_refusal, name)):
            packed += Path(name).stat().st_size
            with Image.open(name) as picture:
                unpacked += len(picture.getbands()) * picture.width * picture.height
                if unpacked > reading.most_unpacked(packed):
                    raise ValueError("it has too many pixels for the size of its file")
                grey = picture.mode in GREY
                if picture.mode.startswith(("I", "F")):
                    raise InputError(
                        f"'{name}' has more than 8 bits a pixel; save it with 8, or give an .npz"
                    )
                pixels = picture.convert("L" if grey else "RGB")
                if size:
                    pixels = pixels.resize((size, size), Image.Resampling.BILINEAR)
                pictures.append(np.asarray(pixels))
    shapes = [picture.shape[:2] for picture in pictures]
    if other := [position for position, shape in enumerate(shapes) if shape != shapes[0]]:
        raise InputError(
            f"'{files[0][0]}' has {_size(shapes[0])} pixels and '{files[other[0]][0]}' "
            f"{_size(shapes[other[0]])}; give data.image-size, to which all are brought"
        )
    labels, classes = class_numbers(np.asarray([number for _, number in files]), root, "subfolder")
    names = [Path(name).relative_to(root).as_posix() for name, _ in files]
    columns = {"file": np.asarray(names)}
    records = Records(_stack(pictures), labels)
    return Dataset(source.name, records, None, classes, "image", columns=columns)


def _refusal(name: str, reason: str) -> InputError:
    return InputError(f"'{name}' is damaged or no picture ({reason}); mend or remove it")


def _stack(pictures: list[npt.NDArray[np.uint8]]) -> npt.NDArray[np.float32]:
    """Return grey [H, W] and colour [H, W, 3] pictures as [N, C, H, W] between 0 and 1."""
    if all(picture.ndim == 2 for picture in pictures):
        pixels = np.stack(pictures)[:, None]
    else:
        colour = [np.stack([p] * 3, axis=-1) if p.ndim == 2 else p for p in pictures]
        pixels = np.moveaxis(np.stack(colour), -1, 1)
    return np.divide(pixels, 255, dtype=np.float32)


def _size(shape: tuple[int, ...]) -> str:
    return f"{shape[1]}×{shape[0]}"
