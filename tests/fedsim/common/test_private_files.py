"""Nothing is written through what somebody else laid out, and nothing is left half-written."""

import os
import stat

import pytest

from adversaries.errors import InputError
from fedsim.common import private_files

PRECIOUS = b"a thesis without a newline"


@pytest.fixture
def victim(tmp_path):
    path = tmp_path / "victim"
    path.write_bytes(PRECIOUS)
    path.chmod(0o644)
    return path


def _written(path):
    private_files.write_private(path, b"new")


def _opened_new(path):
    private_files.opened_new(path).close()


@pytest.mark.parametrize("write", [_written, _opened_new])
@pytest.mark.parametrize("link", [os.symlink, os.link])
def test_a_link_is_replaced_and_what_it_leads_to_stays(write, link, victim, tmp_path):
    place = tmp_path / "report.json"
    link(victim, place)
    write(place)
    assert victim.read_bytes() == PRECIOUS
    assert victim.stat().st_mode & 0o777 == 0o644
    found = place.lstat()
    assert (stat.S_ISREG(found.st_mode), found.st_mode & 0o777) == (True, 0o600)
    assert place.read_bytes() in (b"new", b"")


@pytest.mark.parametrize(
    "lay", [os.symlink, os.link, lambda _, place: os.mkfifo(place)], ids=["symlink", "link", "pipe"]
)
def test_what_is_no_plain_file_of_ones_own_is_not_continued(lay, victim, tmp_path):
    place = tmp_path / "events.jsonl"
    lay(victim, place)
    with pytest.raises(InputError, match=r"events.jsonl' is .* nothing is written .*remove it"):
        private_files.append(place, b"new\n")
    assert victim.read_bytes() == PRECIOUS


def test_nothing_is_written_into_a_directory_that_a_link_leads_to(tmp_path):
    (tmp_path / "victim").mkdir()
    link = tmp_path / "figures"
    link.symlink_to(tmp_path / "victim")
    for write in (
        private_files.make_directory,
        private_files.check_writable,
        lambda path: private_files.write_private(path / "file", b""),
        lambda path: private_files.append(path / "file", b""),
    ):
        with pytest.raises(InputError, match="figures' is a symbolic link"):
            write(link)
    assert list((tmp_path / "victim").iterdir()) == []
    # What the user named himself may be anywhere.
    private_files.write_private(private_files.as_named(link / "file"), b"")
    assert (tmp_path / "victim" / "file").exists()


def test_a_block_that_fails_leaves_the_file_before_and_no_other(tmp_path):
    place = tmp_path / "facts.json"
    private_files.write_private(place, b"first")
    with pytest.raises(ZeroDivisionError), private_files.replacing(place) as file:
        file.write(b"sec")
        raise ZeroDivisionError
    assert [path.read_bytes() for path in tmp_path.iterdir()] == [b"first"]


@pytest.mark.parametrize("kind", ["file", "pipe", "folder", "link", "no folder"])
def test_a_result_replaces_nothing_that_stands_there(kind, tmp_path):
    place = tmp_path / "named"
    if kind == "file":
        place.write_text("before")
    elif kind == "pipe":
        os.mkfifo(place)
    elif kind == "folder":
        place.mkdir()
    elif kind == "link":
        place.symlink_to(tmp_path / "nowhere")
    else:
        place = tmp_path / "none" / "named"
    before = os.lstat(place) if kind != "no folder" else None
    refused = pytest.raises(InputError, match=r"named' exists; name|cannot write .*; name another")
    with refused, private_files.new_file(place) as file:
        file.write(b"after")
    if before is not None:
        assert os.lstat(place).st_ino == before.st_ino
    if kind == "file":
        assert place.read_text() == "before"


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir])
def test_what_is_no_regular_file_is_never_renamed_over(make, tmp_path):
    place = tmp_path / "named"
    make(place)
    before = os.lstat(place)
    with pytest.raises(InputError, match="is not a regular file"):
        private_files.write_private(place, b"after")
    assert os.lstat(place).st_ino == before.st_ino
    assert [path.name for path in tmp_path.iterdir()] == ["named"]
