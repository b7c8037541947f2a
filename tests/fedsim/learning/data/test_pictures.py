"""A folder of pictures with a subfolder for each class."""

import os
import struct
import zlib

import numpy as np
import pytest
from PIL import Image

from adversaries.errors import InputError
from fedsim.learning.data import load

RNG = np.random.default_rng(0)


def picture(path, shape=(5, 7)):
    """Write random pixels, without loss, and return them."""
    pixels = RNG.integers(0, 256, shape, dtype=np.uint8)
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels).save(path)
    return pixels


def test_grey_pictures_have_one_channel_and_classes_are_the_subfolders(tmp_path):
    dog = picture(tmp_path / "dog" / "1.png")
    cat = picture(tmp_path / "cat" / "b" / "2.png")
    dataset = load("images", str(tmp_path))
    np.testing.assert_array_equal(
        dataset.train.features, np.stack([cat, dog])[:, None] / np.float32(255)
    )
    np.testing.assert_array_equal(dataset.train.labels, [0, 1])
    assert dataset.columns["file"].tolist() == ["cat/b/2.png", "dog/1.png"]
    assert (dataset.classes, dataset.kind, dataset.attributes) == (2, "image", ())


def test_one_picture_in_colour_gives_all_of_them_three_channels(tmp_path):
    grey, colour = picture(tmp_path / "a" / "1.png"), picture(tmp_path / "b" / "1.png", (5, 7, 3))
    features = load("images", str(tmp_path)).train.features
    assert features.shape == (2, 3, 5, 7)
    for channel in range(3):
        np.testing.assert_array_equal(features[0, channel] * 255, grey)
        np.testing.assert_array_equal(features[1, channel] * 255, colour[:, :, channel])


def test_pictures_of_several_sizes_are_brought_to_one(tmp_path):
    picture(tmp_path / "a" / "1.png", (5, 7))
    picture(tmp_path / "b" / "1.png", (9, 8))
    with pytest.raises(InputError, match=r"1.png' has 7×5 pixels and .* 8×9; set data.image-size"):
        load("images", str(tmp_path))
    assert load("images", str(tmp_path), image_size=6).train.features.shape == (2, 1, 6, 6)


def test_a_uniform_picture_stays_uniform_when_it_is_resized(tmp_path):
    for name, grey in (("a", 51), ("b", 255)):
        (tmp_path / name).mkdir()
        Image.fromarray(np.full((5, 9), grey, dtype=np.uint8)).save(tmp_path / name / "1.png")
    features = load("images", str(tmp_path), image_size=4).train.features
    np.testing.assert_array_equal(
        features[:, 0], np.array([0.2, 1], np.float32).repeat(16).reshape(2, 4, 4)
    )


def test_a_folder_without_subfolders_of_pictures_is_refused(tmp_path):
    with pytest.raises(InputError, match="is not a folder of pictures"):
        load("images", str(tmp_path))
    (tmp_path / "empty").mkdir()
    picture(tmp_path / "a" / "1.png")
    with pytest.raises(InputError, match=r"is not a folder of pictures.*\(Found no valid file"):
        load("images", str(tmp_path))


def test_a_single_class_is_refused(tmp_path):
    picture(tmp_path / "a" / "1.png")
    with pytest.raises(InputError, match=r"'labels' of .* has 1 different values for 1 records"):
        load("images", str(tmp_path))


def _png_of(side):
    """Return a PNG of a few bytes that says that it has so many rows and columns."""
    header = b"IHDR" + struct.pack(">IIBBBBB", side, side, 8, 0, 0, 0, 0)
    blocks = [header, b"IDAT" + zlib.compress(b"\0"), b"IEND"]
    packed = [
        struct.pack(">I", len(block) - 4) + block + struct.pack(">I", zlib.crc32(block))
        for block in blocks
    ]
    return b"\x89PNG\r\n\x1a\n" + b"".join(packed)


@pytest.mark.parametrize(
    "content",
    [b"", b"\x89PNG\r\n\x1a\n", b"text", _png_of(10_000), _png_of(12_000), _png_of(60_000)],
    ids=["empty", "start", "text", "100 million", "144 million", "3600 million"],
)
def test_a_damaged_picture_is_refused_by_name(tmp_path, content):
    picture(tmp_path / "a" / "1.png")
    picture(tmp_path / "b" / "2.png")
    (tmp_path / "b" / "2.png").write_bytes(content)
    with pytest.raises(InputError, match=r"2.png' is damaged or not a picture"):
        load("images", str(tmp_path))


def test_a_pipe_is_no_picture(tmp_path):
    picture(tmp_path / "a" / "1.png")
    (tmp_path / "b").mkdir()
    os.mkfifo(tmp_path / "b" / "2.png")
    with pytest.raises(InputError, match=r"2.png' is damaged or not a picture"):
        load("images", str(tmp_path))


def test_a_truncated_picture_is_refused_by_name(tmp_path):
    picture(tmp_path / "a" / "1.png")
    picture(tmp_path / "b" / "2.png", (40, 40))
    whole = (tmp_path / "b" / "2.png").read_bytes()
    (tmp_path / "b" / "2.png").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(InputError, match=r"2.png' is damaged or not a picture"):
        load("images", str(tmp_path))


def test_pictures_of_more_than_8_bits_are_refused(tmp_path):
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        Image.fromarray(np.arange(12, dtype=np.uint16).reshape(3, 4)).save(
            tmp_path / name / "1.png"
        )
    with pytest.raises(InputError, match="more than 8 bits per pixel"):
        load("images", str(tmp_path))
