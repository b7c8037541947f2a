"""A function of one's own, released with PAC private noise from the command line."""

import json
from unittest.mock import patch

import numpy as np
import pytest

from adversaries.errors import InputError
from fedsim.learning import data
from fedsim.learning.data.dataset import Dataset, Records
from fedsim.studies.guarantees import black_box
from tests.console import run


def _data(count=400):
    features = np.random.default_rng(1).standard_normal((count, 2)).astype(np.float32)
    records = Records(features, np.arange(count) % 2)
    return Dataset("made", records, None, 2, "tabular")


def test_the_noise_of_a_mean_is_what_the_closed_form_says():
    found = black_box.privatised("mean", _data(), 0.5, 0.1, 2000, 0.95)
    # The mean of a Bernoulli(1/2) sample of n records has a variance of about 1/n a coordinate.
    least = 2 / np.sqrt(2 * 0.1 * 400)
    assert least < found.noise.size < 1.3 * least
    assert 0.5 < found.average_success < 0.52 < found.any_success < 1


def test_a_rare_subset_is_guessed_by_nobody_better_than_by_chance_and_a_little():
    found = black_box.privatised("class-means", _data(), 0.1, 0.05, 100, 0.9)
    assert found.chance == 0.9
    assert 0.9 < found.average_success < 0.91
    assert found.released.shape == (4,)


def test_the_command_releases_what_a_module_of_ones_own_makes(tmp_path, monkeypatch):
    source = "def first(features, labels, coins):\n    return features.mean(0).ravel()[2:5]\n"
    (tmp_path / "analysis_of_mine.py").write_text(source)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.path", list(__import__("sys").path))
    monkeypatch.setenv("FEDSIM_ALLOW_CODE", "")
    arguments = ["pac", "analysis_of_mine:first", "--simulations", "60", "--out", "out.npz"]
    result = run([*arguments, "--json"])
    assert result.exit_code == 0, result.output
    document = json.loads(result.stdout)
    assert document["numbers"] == 3
    with np.load(tmp_path / "out.npz", allow_pickle=False) as kept:
        assert kept["released"].shape == (3,)
        assert np.sqrt((kept["noise_std"] ** 2).sum()) == pytest.approx(document["noise"])
    again = run(arguments)
    assert (again.exit_code, "exists, or its folder does not" in again.stderr) == (2, True)


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("raise KeyError('age')", "failed on a subset of .* records: KeyError: 'age'"),
        ("return features[0, 0, 0, 0, 0]", "failed on a subset of .* records: IndexError"),
        ("return labels", "returns .* to .* numbers, depending on the data"),
        ("return labels * float('nan')", "numbers that are not finite"),
        ("return 'words'", "not an array of numbers"),
    ],
)
def test_a_function_that_fails_is_one_line(body, said):
    def own(features, labels, coins):
        made = {}
        exec(f"def own(features, labels, coins):\n    {body}", made)
        return made["own"](features, labels, coins)

    with (
        patch.dict(black_box.FUNCTIONS, {"own": own}),
        pytest.raises(InputError, match=said) as error,
    ):
        black_box.privatised("own", data.load("digits"), 0.5, 1.0, 40, 0.95)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["medean"], "the function is 'medean', which is not known"),
        (["mean", "--rate", "1"], "rate is 1.0"),
        (["mean", "--budget", "0"], "the budget of mutual information is 0.0"),
        (["mean", "--simulations", "8"], "simulations is 8; give 32 to 100,000"),
        (["mean", "--simulations", "1000000000"], "give 32 to 100,000"),
        (["mean", "--confidence", "1"], "the confidence is 1.0"),
    ],
)
def test_what_cannot_be_released_is_refused_with_its_reason(arguments, said):
    result = run(["pac", *arguments])
    assert (result.exit_code, result.stdout) == (2, "")
    assert said in result.stderr


def test_class_means_have_one_shape_where_a_subset_lacks_a_class():
    features = np.ones((60, 1), np.float32)
    records = Records(features, np.arange(60) // 59 * 9)  # one record alone has the last class
    found = black_box.privatised(
        "class-means", Dataset("made", records, None, 10, "tabular"), 0.5, 0.05, 40, 0.9
    )
    assert found.released.shape == (10,)
