"""Batched measures agree with scikit-image and SciPy, pair by pair."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy.spatial.distance import cdist
from skimage.metrics import structural_similarity

from adversaries.errors import InputError
from adversaries.neighbours import dissimilarity
from adversaries.neighbours.dissimilarity import MEASURES, measure, ssim
from fedsim.learning.data import load

REAL_MNIST = Path(__file__).parents[3].parent / "shared" / "data" / "mnist"


def scikit_image(a, b, **options):
    """1 - SSIM of each pair of images [N, ...] by the reference, at its float64 precision."""
    a, b = a.astype(np.float64), b.astype(np.float64)
    return np.array(
        [[1 - structural_similarity(x, y, data_range=1.0, **options) for y in b] for x in a]
    )


def noise(count, *shape, seed=0):
    return np.random.default_rng(seed).random((count, *shape), dtype=np.float32)


def digits(count):
    return load("digits").train.features[:count]


@pytest.mark.parametrize("shape", [(28, 28), (8, 8), (7, 7), (10, 13), (31, 9)])
def test_ssim_is_that_of_scikit_image_on_noise(shape):
    a, b = noise(6, *shape, seed=1), noise(9, *shape, seed=2)
    np.testing.assert_allclose(ssim(a, b), scikit_image(a, b), atol=1e-12)


def test_ssim_is_that_of_scikit_image_on_real_digits():
    images = digits(30)
    np.testing.assert_allclose(
        ssim(images[:10], images), scikit_image(images[:10, 0], images[:, 0]), atol=1e-12
    )


@pytest.mark.skipif(not REAL_MNIST.is_dir(), reason="../shared/data/mnist is not there")
def test_ssim_is_that_of_scikit_image_on_the_real_mnist():
    images = load("mnist", str(REAL_MNIST)).train.features[:40]
    np.testing.assert_allclose(
        ssim(images[:10], images), scikit_image(images[:10, 0], images[:, 0]), atol=1e-12
    )


def test_ssim_is_that_of_scikit_image_on_images_that_differ_slightly():
    # Here the variances nearly cancel, which single precision would not survive.
    a = 0.9 + 1e-4 * noise(5, 28, 28)
    np.testing.assert_allclose(ssim(a, a + 1e-4), scikit_image(a, a + 1e-4), atol=1e-9)


@pytest.mark.parametrize(("shape", "window"), [((6, 9), 5), ((5, 5), 5), ((28, 4), 3), ((3, 3), 3)])
def test_ssim_of_small_images_uses_the_largest_odd_window(shape, window):
    a, b = noise(3, *shape, seed=1), noise(4, *shape, seed=2)
    np.testing.assert_allclose(ssim(a, b), scikit_image(a, b, win_size=window), atol=1e-12)


def test_ssim_averages_channels_as_scikit_image_does():
    a, b = noise(3, 3, 12, 12, seed=1), noise(4, 3, 12, 12, seed=2)
    np.testing.assert_allclose(ssim(a, b), scikit_image(a, b, channel_axis=0), atol=1e-12)


def test_ssim_does_not_depend_on_the_blocks(monkeypatch):
    images = digits(50)
    whole = ssim(images, images)
    monkeypatch.setattr(dissimilarity, "BLOCK_ROWS", 3)
    monkeypatch.setattr(dissimilarity, "BLOCK_VALUES", 7 * 3 * 4)
    np.testing.assert_allclose(ssim(images, images), whole, atol=1e-13)


@pytest.mark.parametrize("shape", [(30,), (2, 9), (1, 9, 2), (9, 1)])
def test_ssim_of_anything_but_images_is_refused(shape):
    with pytest.raises(InputError, match=r"ssim compares images.*choose another measure: hamming"):
        ssim(noise(2, *shape), noise(2, *shape))


@pytest.mark.parametrize(
    ("name", "metric"),
    [("manhattan", "cityblock"), ("euclidean", "euclidean"), ("cosine", "cosine")],
)
@pytest.mark.parametrize("shape", [(30,), (1, 8, 8)])
def test_vector_measures_are_those_of_scipy(name, metric, shape):
    a, b = noise(7, *shape, seed=1), noise(11, *shape, seed=2)
    expected = cdist(a.reshape(7, -1).astype(float), b.reshape(11, -1).astype(float), metric)
    np.testing.assert_allclose(measure(name)(a, b), expected, atol=1e-12)


def test_hamming_counts_the_features_that_differ():
    rng = np.random.default_rng(0)
    a = rng.integers(0, 2, (20, 600)).astype(np.float32)
    b = rng.integers(0, 2, (30, 600)).astype(np.float32)
    np.testing.assert_array_equal(measure("hamming")(a, b), (a[:, None] != b).sum(axis=2))


def test_hamming_of_features_that_are_not_binary_is_refused():
    binary, other = np.eye(3, dtype=np.float32), np.full((1, 3), 0.5, dtype=np.float32)
    for a, b in ((binary, other), (other, binary)):
        with pytest.raises(InputError, match=r"neither 0 nor 1.*manhattan"):
            measure("hamming")(a, b)


def test_cosine_of_a_zero_record_is_1_but_to_another_zero_record():
    records = np.array([[0.0, 0.0], [3.0, 4.0], [-3.0, -4.0]], dtype=np.float32)
    np.testing.assert_allclose(
        measure("cosine")(records, records), [[0, 1, 1], [1, 0, 2], [1, 2, 0]], atol=1e-15
    )


def test_an_unknown_measure_is_refused_with_the_nearest_name():
    with pytest.raises(InputError, match=r"'euclidian'.*did you mean 'euclidean'"):
        measure("euclidian")
    with pytest.raises(InputError, match="give one of ssim, hamming"):
        measure("zzz")


def images(name):
    """Four images that a measure can compare."""
    pixels = st.floats(0, 1, width=32, allow_subnormal=False)
    return hnp.arrays(
        np.float32, (4, 5, 6), elements=st.sampled_from([0.0, 1.0]) if name == "hamming" else pixels
    )


@pytest.mark.parametrize("name", sorted(MEASURES))
@given(data=st.data())
def test_a_measure_is_symmetric_not_negative_and_zero_on_itself(name, data):
    a, b = data.draw(images(name)), data.draw(images(name))
    distances = measure(name)(a, b)
    assert distances.dtype == np.float64
    assert distances.shape == (4, 4)
    assert (distances >= -1e-12).all()
    np.testing.assert_allclose(measure(name)(b, a), distances.T, atol=1e-12)
    np.testing.assert_allclose(np.diagonal(measure(name)(a, a)), 0, atol=1e-12)


def test_ssim_of_flat_and_of_extreme_images_is_that_of_scikit_image():
    black, grey, white = (np.full((1, 12, 12), value, np.float32) for value in (0, 0.3, 1))
    board = np.indices((12, 12)).sum(0)[None].astype(np.float32) % 2
    dots = np.zeros((1, 12, 12), np.float32)
    dots[0, 5, 5] = 1
    # The variance of a flat window is a difference of squares that nearly cancel.
    images = np.concatenate([black, grey, white, board, 1 - board, dots, grey + 1e-4 * board])
    np.testing.assert_allclose(ssim(images, images), scikit_image(images, images), atol=1e-10)


def gower_as_written(x, y, ranges):
    """Gower (1971): 1 - similarity, by the columns of two rows."""
    each = [
        abs(u - v) / span if isinstance(u, float) and isinstance(v, float) else float(u != v)
        for u, v, span in zip(x, y, ranges, strict=True)
    ]
    return sum(each) / len(each)


def test_gower_is_the_mean_over_columns_of_ranges_and_mismatches():
    rng = np.random.default_rng(0)
    age, pay = rng.uniform(17, 90, 12), rng.uniform(0, 1e5, 12)
    job, place = rng.integers(0, 20, 12), rng.integers(0, 3, 12)
    columns = np.repeat([0, 1, 2, 3], [1, 1, 20, 3])
    scaled = [((v - v.min()) / np.ptp(v))[:, None] for v in (age, pay)]
    features = np.concatenate([*scaled, np.eye(20)[job], np.eye(3)[place]], axis=1)
    rows = [
        [float(u), float(v), str(w), str(x)]
        for u, v, w, x in zip(age, pay, job, place, strict=True)
    ]
    ranges = [np.ptp(age), np.ptp(pay), 1.0, 1.0]
    expected = [[gower_as_written(x, y, ranges) for y in rows] for x in rows]
    np.testing.assert_allclose(measure("gower", columns)(features, features), expected, atol=1e-12)


def test_gower_without_columns_takes_every_feature_for_one():
    a, b = noise(4, 6, seed=1), noise(5, 6, seed=2)
    expected = cdist(a.astype(float), b.astype(float), "cityblock") / 6
    for columns in (None, np.zeros(0, dtype=np.int64)):
        np.testing.assert_allclose(measure("gower", columns)(a, b), expected, atol=1e-12)


def test_gower_of_numbers_that_are_not_scaled_is_refused():
    with pytest.raises(InputError, match=r"scaled to \[0, 1\], but a feature lies outside"):
        measure("gower")(noise(2, 3), noise(2, 3) + 1)
