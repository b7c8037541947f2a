"""A directory that somebody else laid out, with links at every name that is written."""

import shutil

import pytest

PRECIOUS = "a thesis without a newline"
FEW = ("trials.count=4", "training.rounds=1", "--quiet")


@pytest.mark.parametrize("name", ["lock", "events.jsonl", "ledger.jsonl"])
def test_a_file_that_grows_is_refused_in_one_line_where_it_is_a_link(
    name, fedsim, experiment, tmp_path
):
    (tmp_path / "precious").write_text(PRECIOUS)
    directory = tmp_path / "run"
    directory.mkdir()
    shutil.copy(experiment, directory / "config.toml")
    (directory / name).symlink_to(tmp_path / "precious")
    status, _, err = fedsim("run", directory, "--quiet")
    assert (status, err.count("\n")) == (2, 1)
    assert f"{name}' is a symbolic link" in err
    assert (tmp_path / "precious").read_text() == PRECIOUS


def test_a_link_is_no_place_for_a_run_or_a_report(fedsim, experiment, tmp_path):
    (tmp_path / "elsewhere").mkdir()
    link = tmp_path / "link"
    link.symlink_to(tmp_path / "elsewhere")
    for command in (("run", experiment, *FEW), ("sensitivity", experiment)):
        status, _, err = fedsim(*command, "--out", link)
        assert (status, err.count("\n"), "is a symbolic link" in err) == (2, 1, True)
    assert list((tmp_path / "elsewhere").iterdir()) == []


def test_other_files_take_the_place_of_links(fedsim, experiment, tmp_path):
    """Links that lead to nothing yet: whoever writes through one makes a file elsewhere."""
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    names = ["facts.json", "transcript.npz", "report.json", "report.html", "batches/000000.npz"]
    names += [f"figures/{name}.svg" for name in ("belief", "utility", "noise")]
    names += [f".{name}.partial" for name in (*names[:4], "config.toml", "writable")]
    directory = tmp_path / "run"
    for place in (directory / name for name in names):
        place.parent.mkdir(parents=True, exist_ok=True)
        place.symlink_to(elsewhere / place.name)
    shutil.copy(experiment, directory / "config.toml")
    status, _, err = fedsim("run", directory, "--quiet")
    assert (status, err) == (0, "")
    assert list(elsewhere.iterdir()) == []
    assert not (directory / "report.json").is_symlink()
