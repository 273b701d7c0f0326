"""Where compiled loops are kept: numba unpickles what lies there, so nobody else may put anything there."""

from __future__ import annotations

import os
import pickle
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from planted import edit, kills

MODULE = """
from dpvb.kernels.compiled import compiled

@compiled
def more(x):
    return x + 1
"""


class Evil:
    """Code in a pickle."""

    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> tuple[object, ...]:
        return os.mkdir, (str(self.marker),)


@pytest.mark.guarantees("dependencies")
@kills("names", "a cache of compiled code that others may write")
@edit("kernels/compiled.py", "(folder == beside or _is_closed(folder)) and", "True and")
@pytest.mark.skipif(os.name != "posix", reason="owners and modes are those of POSIX")
def test_a_cache_that_others_may_write_is_not_read_and_one_that_is_made_is_closed(tmp_path: Path) -> None:
    code, cache, marker = tmp_path / "code", tmp_path / "cache", tmp_path / "ran"
    code.mkdir()
    (code / "loops.py").write_text(MODULE)
    command = [sys.executable, "-P", "-c", "import os, sys; os.umask(0); sys.path.append(sys.argv[1]); "]
    command[-1] += "import loops; print(loops.more(1))"
    command.append(str(code))

    def run() -> tuple[str, str]:
        given = {**os.environ, "NUMBA_CACHE_DIR": str(cache)}
        done = subprocess.run(command, env=given, capture_output=True, text=True, check=False)
        return done.stdout, done.stderr

    assert run() == ("2\n", "")
    [index] = cache.rglob("*.nbi")
    assert stat.S_IMODE(cache.stat().st_mode) == stat.S_IMODE(index.parent.stat().st_mode) == 0o755
    index.write_bytes(pickle.dumps(Evil(marker)))
    for opened in (index.parent, cache):
        opened.chmod(0o777)
        result, said = run()
        assert result == "2\n"
        assert "the cache of numba is not used" in said
        assert not marker.exists()
        opened.chmod(0o755)
    run()  # What lies in a closed folder is this user's own, and is read.
    assert marker.exists()


@pytest.mark.guarantees("dependencies")
@kills("names", "files of a cache of compiled code that others may write")
@edit(
    "kernels/compiled.py",
    "        with _closed_to_writers():\n            save(",
    "        if True:\n            save(",
)
@kills("names", "files of others in a cache of compiled code")
@edit("kernels/compiled.py", "and _has_closed_files(folder)", "")
@pytest.mark.skipif(os.name != "posix", reason="owners and modes are those of POSIX")
@pytest.mark.parametrize("beside", [False, True])
def test_a_file_of_a_cache_that_others_may_write_is_not_read_and_those_that_are_made_are_closed(
    tmp_path: Path, beside: bool
) -> None:
    code, cache, marker = tmp_path / "code", tmp_path / "cache", tmp_path / "ran"
    code.mkdir()
    (code / "loops.py").write_text(MODULE)
    command = [sys.executable, "-P", "-c", "import os, sys; os.umask(0); sys.path.append(sys.argv[1]); "]
    command[-1] += "import loops; print(loops.more(1))"
    command.append(str(code))
    given = {name: value for name, value in os.environ.items() if name != "NUMBA_CACHE_DIR"}
    given |= {} if beside else {"NUMBA_CACHE_DIR": str(cache)}

    def run() -> tuple[str, str]:
        done = subprocess.run(command, env=given, capture_output=True, text=True, check=False)
        return done.stdout, done.stderr

    assert run() == ("2\n", "")
    files = [*tmp_path.rglob("*.nbi"), *tmp_path.rglob("*.nbc")]
    assert [stat.S_IMODE(path.stat().st_mode) for path in files] == [0o644, 0o644]
    files[0].write_bytes(pickle.dumps(Evil(marker)))
    files[0].chmod(0o646)
    result, said = run()
    assert result == "2\n"
    assert "the cache of numba is not used" in said
    assert not marker.exists()
