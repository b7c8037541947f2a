"""Pictures of the user's own, in a folder with one subfolder for each class."""

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
from fedsim.learning.data.loaders.dataset import Dataset, Records, class_numbers
from fedsim.learning.data.loaders.source import Source

if TYPE_CHECKING:
    from PIL import Image

CHANNELS = 3
"""Bytes that a pixel takes at most, when a picture is decoded."""

GREY = ("1", "L", "LA")
"""Pillow's modes of pictures without colour."""


def own(source: Source) -> Dataset:
    """Return the pictures of a folder as images [C, H, W] in [0, 1], C = 1 if all are grey, else 3.

    Classes are the subfolders in order, as `torchvision.datasets.ImageFolder` reads them; the
    column "file" has each picture's path within the folder.

    Raises InputError if a picture is damaged, too deep or of another size, or there are none.
    """
    root = source.path
    pixels, labels, names = pictures(root, source.image_size)
    numbers, classes = class_numbers(np.asarray(labels), root, "subfolder")
    columns = {"file": np.asarray(names)}
    records = Records(np.divide(pixels, 255, dtype=np.float32), numbers)
    return Dataset(source.name, records, None, classes, "image", columns=columns)


def pictures(
    root: Path, size: int, empty: bool = False, only: tuple[int, int] | None = None
) -> tuple[npt.NDArray[np.uint8], list[str], list[str]]:
    """Return the pictures of a folder, and each one's subfolder and path.

    size: the side of the squares that pictures are brought to; 0 to leave them.
    empty: whether a subfolder may have none.
    only: rows and columns that every picture must have; None for any.
    Returns: uint8 [N, C, H, W], C = 1 if all are grey, else 3; the names of subfolders [N]; and
    paths within the folder [N].
    Raises InputError if a picture is damaged, too deep or of another size, or there are none.
    """
    from torchvision.datasets import ImageFolder  # noqa: PLC0415  (takes seconds)

    if not root.is_dir():
        raise InputError(f"there is no folder '{root}'; name one with data.root=PATH")
    try:
        files = ImageFolder(str(root), allow_empty=empty).samples
    except FileNotFoundError as error:
        reason = str(error).splitlines()[0]
        raise InputError(
            f"'{root}' is no folder of pictures, with a subfolder of them for each class ({reason})"
        ) from None
    found: list[Any] = []
    packed = unpacked = 0
    for name, _ in files:
        with reading.damage(partial(_refusal, name)):
            packed += Path(name).stat().st_size
            with reading.opened(Path(name)) as file, opened(file) as picture:
                if only not in (None, (picture.height, picture.width)):
                    raise InputError(
                        f"'{name}' has {_size((picture.height, picture.width))} pixels, but the "
                        f"schema's pictures have {_size(only)}; bring them to one size"
                    )
                unpacked += CHANNELS * picture.width * picture.height
                if unpacked > reading.most_unpacked(packed):
                    raise ValueError("it has too many pixels for the size of its file")
                found.append(pixels(picture, name, size))
    names = [Path(name).relative_to(root).as_posix() for name, _ in files]
    stacked = stack(found, [name for name, _ in files])
    return stacked, [Path(name).parts[0] for name in names], names


@contextmanager
def opened(file: BinaryIO) -> "Iterator[Image.Image]":
    """Open a picture, which is not decoded yet.

    Args:
        file: with its bytes.

    Yields:
        The picture.

    Raises:
        OSError, ValueError: it is damaged, or so large that it may be meant to fill the memory.
    """
    from PIL import Image, UnidentifiedImageError  # noqa: PLC0415  (only pictures need it)

    with warnings.catch_warnings():
        warnings.simplefilter("error", Image.DecompressionBombWarning)
        try:
            picture = Image.open(file)
        except (Image.DecompressionBombWarning, Image.DecompressionBombError):
            raise ValueError("it has too many pixels") from None
        except UnidentifiedImageError:  # whose text names the file as Python holds it
            raise ValueError("it has no known format") from None
    with picture:
        yield picture


def pixels(picture: "Image.Image", name: str, size: int) -> npt.NDArray[np.uint8]:
    """Return a picture as uint8 [H, W] if it is grey, else [H, W, 3].

    size: the side of the square that it is brought to; 0 to leave it.
    Raises InputError if it has more than 8 bits a pixel.
    """
    from PIL import Image  # noqa: PLC0415

    if picture.mode.startswith(("I", "F")):
        raise InputError(f"'{name}' has more than 8 bits a pixel; save it with 8, or give an .npz")
    converted = picture.convert("L" if picture.mode in GREY else "RGB")
    if size:
        converted = converted.resize((size, size), Image.Resampling.BILINEAR)
    return np.asarray(converted)


def stack(found: Sequence[npt.NDArray[np.uint8]], names: Sequence[str]) -> npt.NDArray[np.uint8]:
    """Return grey [H, W] and colour [H, W, 3] pictures as [N, C, H, W].

    Raises InputError if they differ in size.
    """
    shapes = [picture.shape[:2] for picture in found]
    if other := [position for position, shape in enumerate(shapes) if shape != shapes[0]]:
        raise InputError(
            f"'{names[0]}' has {_size(shapes[0])} pixels and '{names[other[0]]}' "
            f"{_size(shapes[other[0]])}; give data.image-size, to which all are brought"
        )
    if all(picture.ndim == 2 for picture in found):
        return np.stack(found)[:, None]
    colour = [np.stack([p] * 3, axis=-1) if p.ndim == 2 else p for p in found]
    return np.moveaxis(np.stack(colour), -1, 1)


def _refusal(name: str, reason: str) -> InputError:
    return InputError(f"'{name}' is damaged or no picture ({reason}); mend or remove it")


def _size(shape: tuple[int, ...]) -> str:
    return f"{shape[1]}×{shape[0]}"
