"""Files and folders that are this user's alone: what strangers can read, write or place is refused."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from planted import edit, kills

from dpvb.errors import CheckpointError
from dpvb.guards.file_ownership import (
    check_closed_folder,
    check_own_folder,
    locked,
    new_own,
    open_own,
    read_own,
    write_own,
)

HOLDER = """
import sys, time
from dpvb.guards.file_ownership import locked
file = locked(sys.argv[1])
print("held", flush=True)
time.sleep(60)
"""

posix = pytest.mark.skipif(os.name != "posix", reason="owners and modes are those of POSIX")
root = pytest.mark.skipif(os.name != "posix" or os.geteuid() != 0, reason="only root gives files away")


def test_what_is_written_is_this_users_alone_and_is_read_again(tmp_path: Path) -> None:
    path = tmp_path / "kept"
    before = os.umask(0)
    try:
        write_own(path, b"first")
        write_own(path, b"second")
    finally:
        os.umask(before)
    assert read_own(path) == b"second"
    assert os.listdir(tmp_path) == ["kept"]
    if os.name == "posix":
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    with pytest.raises(FileExistsError):
        write_own(path, b"third", new=True)
    assert read_own(path) == b"second"
    assert os.listdir(tmp_path) == ["kept"]


def test_a_file_is_written_whole_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "kept"
    write_own(path, b"old")
    with pytest.raises(TypeError), new_own(path) as file:
        file.writelines([b"half", "no bytes"])  # type: ignore[list-item]
    assert read_own(path) == b"old"
    assert os.listdir(tmp_path) == ["kept"]
    with pytest.raises(FileNotFoundError):
        write_own(tmp_path / "nowhere" / "kept", b"")


def test_writing_replaces_a_link_and_leaves_what_it_leads_to(tmp_path: Path) -> None:
    (tmp_path / "victim").write_bytes(b"mine")
    (tmp_path / "kept").symlink_to(tmp_path / "victim")
    write_own(tmp_path / "kept", b"new")
    assert (tmp_path / "victim").read_bytes() == b"mine"
    assert read_own(tmp_path / "kept") == b"new"


@pytest.mark.guarantees("own files")
@kills("names", "a file of mine that others can write")
@edit("guards/file_ownership.py", '0o077 if secret else 0o022, "a file"', '0o007 if secret else 0o002, "a file"')
@posix
@pytest.mark.parametrize("bit", [0o040, 0o020, 0o010, 0o004, 0o002, 0o001])
def test_a_file_with_access_for_others_is_refused(tmp_path: Path, bit: int) -> None:
    path = tmp_path / "kept"
    write_own(path, b"")
    path.chmod(0o600 | bit)
    for read in (read_own, open_own):
        with pytest.raises(CheckpointError, match="others may read or write it"):
            read(path)
        if bit & 0o022:
            with pytest.raises(CheckpointError, match="others may write to it"):
                read(path, secret=False)
    if not bit & 0o022:
        assert read_own(path, secret=False) == b""


@pytest.mark.guarantees("own files")
@kills("names", "a link that somebody laid")
@edit("guards/file_ownership.py", "if os.path.islink(path):", "if not path:")
@posix
def test_only_regular_files_that_are_no_links_are_read(tmp_path: Path) -> None:
    write_own(tmp_path / "kept", b"")
    (tmp_path / "link").symlink_to(tmp_path / "kept")
    (tmp_path / "dangling").symlink_to(tmp_path / "nowhere")
    (tmp_path / "folder").mkdir(0o700)
    os.mkfifo(tmp_path / "pipe", 0o600)
    for name in ("link", "dangling", "folder", "pipe"):
        for secret in (True, False):
            with pytest.raises(CheckpointError, match=f"{name}: is "):
                read_own(tmp_path / name, secret=secret)
        with pytest.raises((CheckpointError, IsADirectoryError)):
            locked(tmp_path / name)
    with pytest.raises(FileNotFoundError):
        read_own(tmp_path / "nowhere")
    assert not (tmp_path / "nowhere").exists()


@posix
@pytest.mark.parametrize("bit", [0o020, 0o002])
def test_a_folder_that_others_may_write_is_refused(tmp_path: Path, bit: int) -> None:
    folder = tmp_path / "kept"
    folder.mkdir()
    folder.chmod(0o755)
    check_own_folder(folder)
    folder.chmod(0o755 | bit)
    with pytest.raises(CheckpointError, match="others may write to it"):
        check_own_folder(folder)


@posix
def test_only_folders_that_are_no_links_are_taken(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir(0o700)
    (tmp_path / "link").symlink_to(tmp_path / "folder")
    write_own(tmp_path / "file", b"")
    for name in ("link", "file"):
        with pytest.raises(CheckpointError, match=f"{name}: is not a folder"):
            check_own_folder(tmp_path / name)
    with pytest.raises(FileNotFoundError):
        check_own_folder(tmp_path / "nowhere")


@pytest.mark.guarantees("own files")
@kills("names", "a file of somebody else's that root believes")
@edit(
    "guards/file_ownership.py", "if found.st_uid != os.geteuid():", "if found.st_uid != os.geteuid() and os.geteuid():"
)
@root
def test_what_belongs_to_somebody_else_is_refused_even_to_root(tmp_path: Path) -> None:
    write_own(tmp_path / "file", b"")
    (tmp_path / "folder").mkdir(0o700)
    for name in ("file", "folder"):
        os.chown(tmp_path / name, 65534, 65534)
    for check, name in ((read_own, "file"), (locked, "file"), (check_own_folder, "folder")):
        with pytest.raises(CheckpointError, match="belongs to user 65534, and this process runs as user 0"):
            check(tmp_path / name)


def test_one_process_holds_a_lock_until_it_closes_it_or_dies(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    held = locked(path)
    with pytest.raises(BlockingIOError):
        locked(path)
    held.close()
    with subprocess.Popen([sys.executable, "-c", HOLDER, path], stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == b"held\n"
        with pytest.raises(BlockingIOError):
            locked(path)
        other.kill()
    locked(path).close()


@posix
def test_a_folder_is_closed_if_nobody_else_can_put_anything_into_it_or_in_its_place(tmp_path: Path) -> None:
    folder = tmp_path / "above" / "folder"
    folder.mkdir(parents=True)
    (tmp_path / "link").symlink_to(folder)
    for place in (folder, tmp_path / "link"):
        check_closed_folder(place)
    for bits in (0o020, 0o002):
        for open_ in (folder, folder.parent):
            open_.chmod(0o755 | bits)
            for place in (folder, tmp_path / "link"):
                with pytest.raises(CheckpointError, match="others may write"):
                    check_closed_folder(place)
            open_.chmod(0o755)
    folder.parent.chmod(0o1777)  # Sticky: what is not theirs stays where it is.
    check_closed_folder(folder)
    folder.chmod(0o1777)
    with pytest.raises(CheckpointError, match="others may write"):
        check_closed_folder(folder)
    (tmp_path / "circle").symlink_to(tmp_path / "circle")
    for nowhere in ("circle", "missing"):
        with pytest.raises(CheckpointError, match="cannot be looked at"):
            check_closed_folder(tmp_path / nowhere)


@root
def test_a_folder_below_or_behind_that_of_another_user_is_not_closed(tmp_path: Path) -> None:
    theirs = tmp_path / "theirs"
    (theirs / "folder").mkdir(parents=True)
    (tmp_path / "link").symlink_to(theirs)
    os.chown(theirs, 12345, -1)
    for place in (theirs, theirs / "folder", tmp_path / "link" / "folder"):
        with pytest.raises(CheckpointError, match="belongs to user 12345"):
            check_closed_folder(place)
    (tmp_path / "mine").mkdir()
    (tmp_path / "their link").symlink_to(tmp_path / "mine")
    os.lchown(tmp_path / "their link", 12345, -1)
    with pytest.raises(CheckpointError, match="belongs to user 12345"):
        check_closed_folder(tmp_path / "their link")
