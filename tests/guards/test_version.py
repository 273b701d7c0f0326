"""The version of a package: each build has a later one than the builds before it, and its commit is known."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import package_version
import pytest
from packaging.version import Version

from dpvb.guards import version


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A repository with one commit."""
    home = tmp_path / "tree" / "src" / "dpvb" / "guards"
    home.mkdir(parents=True)
    shutil.copy(version.__file__, home)
    git(tmp_path / "tree", "init", "-q", "-b", "main")
    commit(tmp_path / "tree")
    return tmp_path / "tree"


def git(tree: Path, *words: str) -> str:
    who = ["-c", "user.name=a", "-c", "user.email=a@example.org"]
    return subprocess.run(["git", "-C", tree, *who, *words], check=True, capture_output=True, text=True).stdout.strip()


def commit(tree: Path) -> str:
    git(tree, "add", ".")
    git(tree, "commit", "-q", "--allow-empty", "-m", "x")
    return git(tree, "rev-parse", "HEAD")


def test_each_commit_has_a_later_version_and_a_release_the_last_one(tree: Path) -> None:
    found = ["0.2.0"]
    for _ in range(11):
        found.append(package_version.package_version(tree))
        digest = commit(tree)
    git(tree, "tag", "vnone")
    found.append(package_version.package_version(tree))
    assert found[-1] == f"{version.NEXT}.dev12+g{digest[:12]}"
    git(tree, "tag", f"v{version.NEXT}")
    found.append(package_version.package_version(tree))
    assert found[-1] == version.NEXT
    assert sorted(found, key=Version) == found
    assert len(set(map(Version, found))) == len(found)


def test_a_tree_without_git_has_the_version_that_it_states(tree: Path) -> None:
    shutil.rmtree(tree / ".git")
    assert package_version.package_version(tree) == f"{version.NEXT}.dev0"
    (tree / "PKG-INFO").write_text("Metadata-Version: 2.4\nName: dpvb\nVersion: 0.3.0.dev7+gabc\n\nVersion: none\n")
    assert package_version.package_version(tree) == "0.3.0.dev7+gabc"


@pytest.mark.parametrize("place", ["branch", "packed", "detached", "worktree", "none", "damaged"])
def test_the_commit_of_a_source_tree(tree: Path, place: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    digest = git(tree, "rev-parse", "HEAD")
    if place == "packed":
        git(tree, "pack-refs", "--all")
        assert not (tree / ".git" / "refs" / "heads" / "main").exists()
    elif place == "detached":
        git(tree, "checkout", "-q", "--detach")
    elif place == "worktree":
        git(tree, "worktree", "add", "-q", tmp_path / "other")
        tree = tmp_path / "other"
    elif place == "none":
        shutil.rmtree(tree / ".git")
    elif place == "damaged":
        (tree / ".git" / "HEAD").write_bytes(b"\xff")
    monkeypatch.setattr(version, "_HERE", tree / "src" / "dpvb" / "guards" / "version.py")
    is_known = place not in ("none", "damaged")
    assert version.version_with_commit() == version.__version__ + f"+g{digest[:12]}" * is_known


def test_a_wheel_keeps_its_version(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here = tree / "src" / "dpvb" / "guards"
    (here / "built.txt").write_text("0.3.0.dev9+g0123\n")
    monkeypatch.setattr(version, "_HERE", here / "version.py")
    assert version.version_with_commit() == "0.3.0.dev9+g0123"
    assert version._built().partition("+")[0] == "0.3.0.dev9"
