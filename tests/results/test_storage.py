"""Model files: what goes in comes out, damage is noticed, and hostile files get one typed error."""

import io
import json
import os
import pickle
import resource
import shutil
import struct
import tracemalloc
import zipfile
from hashlib import sha256

import numpy as np
import pytest
from each import each
from effort import at_most
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from planted import edit, kills

from dpvb.errors import ModelFileError, ParameterError
from dpvb.results import model_file

ARRAYS = {
    "lambda_vk": np.arange(12.0).reshape(4, 3),
    "counts": np.array([-(2**62), 2**62]),
    "scalar": np.array(0.5),
    "empty": np.empty((0, 3), np.float32),
}
FACTS = {"words": ["naïve", "本", '"'], "epsilon": 1.5, "steps": 20, "none": None, "deep": {"a": [True, [1, 2]]}}


@pytest.fixture
def path(tmp_path):
    target = tmp_path / "model.npz"
    model_file.save(target, kind="LDA", arrays=ARRAYS, facts=FACTS)
    return target


def refused(target, match=None):
    """The loader's error is of the one type, names the file, and comes fast and with little memory."""
    with at_most(30), pytest.raises(ModelFileError, match=match) as caught:
        model_file.load(target)
    assert str(target) in str(caught.value)
    tracemalloc.start()
    with pytest.raises(ModelFileError):
        model_file.load(target)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 100e6


def sealed(content):
    """A zip's bytes with the right closing hash: what a forger can make."""
    comment_length = len(model_file._COMMENT) + 64
    assert content[-2:] == b"\0\0"
    head = content[:-2] + struct.pack("<H", comment_length) + model_file._COMMENT
    return head + sha256(head).hexdigest().encode()


def npy(array):
    out = io.BytesIO()
    np.save(out, array, allow_pickle=True)
    return out.getvalue()


def entry(array):
    return {"shape": list(array.shape), "dtype": array.dtype.str, "sha256": sha256(array.tobytes()).hexdigest()}


def manifest_of(**arrays):
    return {"format": model_file.FORMAT, "dpvb": "0.1.0", "kind": "LDA", "arrays": arrays, "facts": {}}


def forge(target, manifest, members, compression=zipfile.ZIP_STORED):
    """Write a sealed file of any manifest and members: (name, bytes) pairs."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", compression) as archive:
        text = manifest if isinstance(manifest, (bytes, str)) else json.dumps(manifest)
        for name, content in [("manifest.json", text), *members]:
            archive.writestr(name, content)
    target.write_bytes(sealed(out.getvalue()))


def same(stored):
    return (
        stored.kind == "LDA"
        and stored.facts == FACTS
        and stored.arrays.keys() == ARRAYS.keys()
        and all(
            a.dtype == ARRAYS[n].dtype and a.shape == ARRAYS[n].shape and a.tobytes() == ARRAYS[n].tobytes()
            for n, a in stored.arrays.items()
        )
    )


# Round trips


def test_round_trip(path):
    assert same(model_file.load(path))
    assert same(model_file.load(str(path), kind="LDA"))


@settings(max_examples=60, deadline=None)
@given(
    hnp.arrays(
        st.sampled_from(["<f8", ">f8", "<f4", "<i8", ">i4", "u1"]),
        hnp.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=5),
        elements={"allow_nan": False, "allow_infinity": False},
    ),
    st.booleans(),
    st.dictionaries(st.text(), st.integers() | st.text() | st.floats(allow_nan=False, allow_infinity=False)),
)
def test_round_trip_of_any_plain_content(tmp_path_factory, array, fortran, facts):
    path = tmp_path_factory.getbasetemp() / "any.npz"
    array = np.asfortranarray(array) if fortran else array
    model_file.save(path, kind="X", arrays={"a": array}, facts=facts)
    stored = model_file.load(path)
    assert stored.facts == facts
    assert stored.arrays["a"].shape == array.shape
    assert stored.arrays["a"].dtype == array.dtype.newbyteorder("<")
    assert stored.arrays["a"].tobytes() == array.astype(array.dtype.newbyteorder("<")).tobytes()


def test_other_programs_can_read_it(path):
    with np.load(path, allow_pickle=False) as loaded:
        assert set(loaded.files) == {"manifest.json", *ARRAYS}
        for name, array in ARRAYS.items():
            np.testing.assert_array_equal(loaded[name], array, strict=True)
    with zipfile.ZipFile(path) as archive:
        assert archive.testzip() is None
        manifest = json.loads(archive.read("manifest.json"))
    for name, array in ARRAYS.items():
        assert manifest["arrays"][name]["sha256"] == sha256(array.tobytes()).hexdigest()


def test_equal_contents_give_equal_files(path, tmp_path):
    model_file.save(tmp_path / "twin", kind="LDA", arrays=ARRAYS, facts=FACTS)
    assert path.read_bytes() == (tmp_path / "twin").read_bytes()


def test_a_long_vocabulary_comes_with_large_arrays(tmp_path):
    words = [f"word-number-{n:07d}" for n in range(300_000)]
    facts = {"words": words}
    with pytest.raises(ParameterError, match="facts"):
        model_file.save(tmp_path / "m", kind="LDA", arrays={}, facts=facts)
    model_file.save(tmp_path / "m", kind="LDA", arrays={"x": np.ones((300_000, 10))}, facts=facts)
    assert model_file.load(tmp_path / "m").facts["words"] == words


# Damage


def test_every_flipped_bit_is_noticed(path):
    content = path.read_bytes()
    rng = np.random.default_rng(0)
    for bit in rng.choice(8 * len(content), 600, replace=False):
        damaged = bytearray(content)
        damaged[bit // 8] ^= 1 << (bit % 8)
        path.write_bytes(damaged)
        with pytest.raises(ModelFileError):
            model_file.load(path)


def test_every_truncation_is_noticed(path):
    content = path.read_bytes()
    for length in range(len(content)):
        path.write_bytes(content[:length])
        with pytest.raises(ModelFileError):
            model_file.load(path)


def test_truncation_of_a_larger_file_at_every_kilobyte(tmp_path):
    target = tmp_path / "m"
    model_file.save(target, kind="LDA", arrays={"x": np.random.default_rng(1).normal(size=(300, 100))}, facts={})
    for length in range(0, target.stat().st_size, 1024)[::-1]:
        os.truncate(target, length)
        with pytest.raises(ModelFileError):
            model_file.load(target)


@pytest.mark.parametrize("extra", [b"\0", b"PK\x05\x06" + b"\0" * 18])
def test_appended_bytes_are_noticed(path, extra):
    path.write_bytes(path.read_bytes() + extra)
    refused(path)


# Forged files: the closing hash is right, as a forger would make it


def test_the_forger_of_these_tests_writes_valid_files(tmp_path):
    x = np.arange(6.0).reshape(2, 3)
    forge(tmp_path / "m", manifest_of(x=entry(x)), [("x.npy", npy(x))])
    np.testing.assert_array_equal(model_file.load(tmp_path / "m").arrays["x"], x)


class Exploit:
    def __reduce__(self):
        return os.mkdir, ("code-was-run",)


@pytest.mark.guarantees("model files")
@kills("code", "arrays of a model file unpickled")
@edit(
    "results/model_file.py",
    '    shape, dtype = tuple(entry["shape"]), entry["dtype"]\n',
    "    with archive.open(info) as member:\n        return np.load(member, allow_pickle=True)\n"
    '    shape, dtype = tuple(entry["shape"]), entry["dtype"]\n',
)
@pytest.mark.parametrize("listed", [{"shape": [1], "dtype": "|O"}, {"shape": [1], "dtype": "<f8"}])
def test_pickled_objects_are_never_run(tmp_path, monkeypatch, listed):
    monkeypatch.chdir(tmp_path)
    objects = np.array([Exploit()], dtype=object)
    forge(tmp_path / "m", manifest_of(x={**listed, "sha256": "0"}), [("x.npy", npy(objects))])
    refused(tmp_path / "m")
    (tmp_path / "p").write_bytes(pickle.dumps(Exploit()))
    refused(tmp_path / "p", "not a dpvb model file")
    (tmp_path / "q").write_bytes(sealed(pickle.dumps(Exploit()) + b"\0\0"))
    refused(tmp_path / "q")
    assert not (tmp_path / "code-was-run").exists()


def test_compressed_bomb(tmp_path):
    zeros = np.zeros(20_000_000)
    forge(tmp_path / "m", manifest_of(x=entry(zeros)), [("x.npy", npy(zeros))], zipfile.ZIP_DEFLATED)
    assert (tmp_path / "m").stat().st_size < 1e6
    refused(tmp_path / "m", "compresses")


@pytest.mark.parametrize(
    "shape", [[10**9], [10**9, 10**9], [0, 10**18, 10**18], [10**300], [-1], [1.5], [True], "9", 7]
)
def test_shapes_beyond_the_member(tmp_path, shape):
    x = np.ones(3)
    forge(tmp_path / "m", manifest_of(x={**entry(x), "shape": shape}), [("x.npy", npy(x))])
    refused(tmp_path / "m")


def test_header_that_claims_a_billion_elements(tmp_path):
    x = np.ones(8)
    content = npy(x).replace(b"(8,), }         ", b"(1000000000,), }")
    forge(tmp_path / "m", manifest_of(x=entry(x)), [("x.npy", content)])
    refused(tmp_path / "m", "header")
    forge(tmp_path / "m", manifest_of(x={**entry(x), "shape": [10**9]}), [("x.npy", content)])
    refused(tmp_path / "m", "size")


def test_directory_that_claims_a_larger_member(tmp_path):
    x = np.ones(8)
    forge(tmp_path / "m", manifest_of(x=entry(x)), [("x.npy", npy(x))])
    size = struct.pack("<2I", len(npy(x)), len(npy(x)))
    claim = struct.pack("<2I", 2**30, 2**30)
    content = (tmp_path / "m").read_bytes()[: -len(model_file._COMMENT) - 64 - 2] + b"\0\0"
    (tmp_path / "m").write_bytes(sealed(content.replace(size, claim)))
    refused(tmp_path / "m", "more bytes than it has")


def test_many_members_over_the_same_bytes(tmp_path):
    x = np.ones(100_000)
    names = [f"x{n}" for n in range(900)]
    forge(tmp_path / "m", manifest_of(**{n: entry(x) for n in names}), [("x0.npy", npy(x))])
    content = bytearray((tmp_path / "m").read_bytes()[: -len(model_file._COMMENT) - 64 - 22])
    start = content.rindex(b"PK\x01\x02")
    record = bytes(content[start:])
    assert record.endswith(b"x0.npy")
    for name in names[1:]:
        padded = f"{name}.npy".encode()
        content += record[:28] + struct.pack("<H", len(padded)) + record[30:46] + padded
    directory = content.index(b"PK\x01\x02")
    end = struct.pack("<4s4H2IH", b"PK\5\6", 0, 0, 901, 901, len(content) - directory, directory, 0)
    (tmp_path / "m").write_bytes(sealed(bytes(content) + end))
    refused(tmp_path / "m", "more bytes than it has")


def test_directory_of_a_million_members(tmp_path):
    record = struct.pack("<4s6H3I5H2I", b"PK\1\2", 20, 20, 0, 0, 0, 33, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0) + b"a"
    directory = record * 1_000_000
    for count, size in [(65535, len(directory)), (1, len(directory))]:
        end = struct.pack("<4s4H2IH", b"PK\5\6", 0, 0, count, count, size, 0, 0)
        (tmp_path / "m").write_bytes(sealed(directory + end))
        refused(tmp_path / "m", "directory")
    wide = struct.pack("<4sQ2H2I4Q", b"PK\6\6", 44, 45, 45, 0, 0, 10**6, 10**6, len(directory), 0)
    locator = struct.pack("<4sIQI", b"PK\6\7", 0, len(directory), 1)
    (tmp_path / "m").write_bytes(sealed(directory + wide + locator + struct.pack("<4s4H2IH", b"PK\5\6", *[0] * 7)))
    refused(tmp_path / "m", "directory")


@pytest.mark.parametrize(
    "name", ["../../etc/x.npy", "/x.npy", "C:\\x.npy", "x.npy/", "y.npy", "x", "manifest.json.npy"]
)
def test_members_outside_the_manifest(tmp_path, name):
    x = np.ones(3)
    forge(tmp_path / "m", manifest_of(x=entry(x)), [("x.npy", npy(x)), (name, npy(x))])
    refused(tmp_path / "m")


@pytest.mark.parametrize("name", ["../x", "/etc/x", "..", "", "x.npy", "x y", "x" * 75, "é"])
def test_names_that_are_paths(tmp_path, name):
    x = np.ones(3)
    forge(tmp_path / "m", manifest_of(**{name: entry(x)}), [(f"{name}.npy", npy(x))])
    refused(tmp_path / "m", "names")


def test_duplicate_members(tmp_path):
    x = np.ones(3)
    with pytest.warns(UserWarning, match="Duplicate"):
        forge(tmp_path / "m", manifest_of(x=entry(x)), [("x.npy", npy(x)), ("x.npy", npy(2 * x))])
    refused(tmp_path / "m", "twice")


def test_missing_members_and_manifest(tmp_path):
    x = np.ones(3)
    forge(tmp_path / "m", manifest_of(x=entry(x), y=entry(x)), [("x.npy", npy(x))])
    refused(tmp_path / "m", "lists")
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        archive.writestr("x.npy", npy(x))
    (tmp_path / "m").write_bytes(sealed(out.getvalue()))
    refused(tmp_path / "m", "manifest")


@pytest.mark.parametrize("dtype", ["O", "S3", "U3", "V8", ">f8", "<f2", "<c16", "<M8[s]", "?", "<u8", [("a", "<f8")]])
def test_dtypes_that_are_not_written(tmp_path, dtype):
    x = np.zeros(3, dtype)
    listed = {"shape": [3], "dtype": x.dtype.str, "sha256": sha256(x.tobytes()).hexdigest()}
    forge(tmp_path / "m", manifest_of(x=listed), [("x.npy", npy(x))])
    refused(tmp_path / "m", "dtype")


@pytest.mark.parametrize("member", [np.ones(3, ">f8"), np.ones(6, "<f4"), np.ones((3, 1)), np.ones((1, 3))])
def test_members_of_another_dtype_or_shape(tmp_path, member):
    forge(tmp_path / "m", manifest_of(x=entry(np.ones(3))), [("x.npy", npy(member))])
    refused(tmp_path / "m", "header")


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_arrays_that_are_not_finite(tmp_path, value):
    x = np.array([1.0, value])
    forge(tmp_path / "m", manifest_of(x=entry(x)), [("x.npy", npy(x))])
    refused(tmp_path / "m", "finite")
    with pytest.raises(ParameterError, match="finite"):
        model_file.save(tmp_path / "n", kind="LDA", arrays={"x": x}, facts={})


def test_array_against_its_hash(tmp_path):
    x = np.ones(3)
    forge(tmp_path / "m", manifest_of(x=entry(2 * x)), [("x.npy", npy(x))])
    refused(tmp_path / "m", "hash")


@pytest.mark.parametrize("number", range(1, model_file.FORMAT))
def test_a_file_of_an_earlier_format_names_the_way_out(tmp_path, number):
    forge(tmp_path / "m", {**manifest_of(), "format": number}, [])
    refused(tmp_path / "m", "earlier dpvb.*with the version of dpvb that wrote it")


def test_file_of_a_newer_format(tmp_path):
    future = {"format": model_file.FORMAT + 1, "anything": "else"}
    forge(tmp_path / "m", future, [("weights.bin", b"new")])
    refused(tmp_path / "m", "newer dpvb.*Upgrade")


@pytest.mark.guarantees("model files")
@each(
    "text",
    [
        b"",
        b"\xff\xfe",
        b"{",
        b"[]",
        b"7",
        b"{}",
        b'{"format": "1"}',
        b'{"format": true}',
        b'{"format": 0}',
        b'{"format": NaN}',
        b'{"format": 4, "kind": "LDA", "arrays": {}, "facts": {"x": NaN}}',
        b'{"format": 4, "kind": "LDA", "arrays": {}, "facts": {"x": 1e999}}',
        b'{"format": 4, "kind": "LDA", "arrays": {}, "facts": {"x": -Infinity}}',
        b'{"format": 4, "kind": "LDA", "arrays": {}, "facts": []}',
        b'{"format": 4, "kind": "LDA", "arrays": [], "facts": {}}',
        b'{"format": 4, "kind": "LDA", "arrays": {"x": 1}, "facts": {}}',
        b'{"format": 4, "kind": ["LDA"], "arrays": {}, "facts": {}}',
        b'{"format": 4, "kind": "../LDA", "arrays": {}, "facts": {}}',
        b'{"format": ' + b"1" * 100_000 + b"}",
        b"[" * 90_000,
        b"[" * 4_000_000,
        b'{"a":' * 90_000,
        b"[" + b'{"":0},' * 590_000 + b"0]",
        b"[" + b'"ab",' * 830_000 + b"0]",
        b"[" + b"1e1," * 1_000_000 + b"0]",
        b" " * 4_300_000,
    ],
    ids=lambda text: f"{text[:20]!r}-{len(text)}",
)
def test_hostile_manifests(tmp_path, text):
    forge(tmp_path / "m", text, [])
    refused(tmp_path / "m")


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_changed_and_resealed_bytes_never_escape_the_one_error(tmp_path_factory, data):
    base = tmp_path_factory.getbasetemp()
    model_file.save(base / "clean", kind="LDA", arrays=ARRAYS, facts=FACTS)
    content = bytearray((base / "clean").read_bytes()[: -len(model_file._COMMENT) - 64])
    for _ in range(data.draw(st.integers(1, 4))):
        content[data.draw(st.integers(0, len(content) - 3))] = data.draw(st.integers(0, 255))
    content[-2:] = b"\0\0"
    (base / "forged").write_bytes(sealed(bytes(content)))
    try:
        stored = model_file.load(base / "forged")
    except ModelFileError:
        return
    for name, array in stored.arrays.items():
        assert sha256(array.tobytes()).hexdigest() == entry(ARRAYS[name])["sha256"]


# Things that are no model files


def test_no_such_file_and_no_file(tmp_path):
    refused(tmp_path / "missing", "no such file")
    refused(tmp_path, "regular file")
    os.mkfifo(tmp_path / "pipe")
    refused(tmp_path / "pipe", "regular file")
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    refused(tmp_path / "loop")
    for odd in [None, 5, b"x"]:
        with pytest.raises(ParameterError, match="path"):
            model_file.load(odd)


def test_files_of_others(tmp_path):
    np.save(tmp_path / "a.npy", np.ones(3))
    np.savez(tmp_path / "b.npz", x=np.ones(3))
    (tmp_path / "c.txt").write_text("text " * 100)
    (tmp_path / "d").write_bytes(b"")
    for name in ["a.npy", "b.npz", "c.txt", "d"]:
        refused(tmp_path / name, "not a dpvb model file")


def test_another_kind(path):
    with pytest.raises(ModelFileError, match="'LDA', not 'Mixture'"):
        model_file.load(path, kind="Mixture")


# Saving: whole or not at all


def test_what_cannot_be_stored(tmp_path):
    target = tmp_path / "m"
    for arrays in [
        {"x": np.array(["a"])},
        {"x": np.array([None])},
        {"x": np.array([1j])},
        {"../x": np.ones(1)},
        {"x.npy": np.ones(1)},
        {f"x{n}": np.ones(1) for n in range(10_001)},
    ]:
        with pytest.raises(ParameterError):
            model_file.save(target, kind="LDA", arrays=arrays, facts={})
    loop = []
    loop.append(loop)
    for facts in [{"x": np.nan}, {"x": np.inf}, {"x": np.ones(1)}, {"x": {1, 2}}, {"x": b"x"}, {"x": loop}]:
        with pytest.raises(ParameterError, match="facts"):
            model_file.save(target, kind="LDA", arrays={}, facts=facts)
    with pytest.raises(ParameterError, match="kind"):
        model_file.save(target, kind="a/b", arrays={}, facts={})
    with pytest.raises(ParameterError, match="1610612736 bytes"):
        model_file.save(target, kind="LDA", arrays={"x": np.broadcast_to(np.uint8(1), 2**31)}, facts={})
    assert os.listdir(tmp_path) == []


def test_a_full_disk_leaves_the_old_file(path):
    before = path.read_bytes()
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    for limit in [0, 100, 5000, 70_000]:
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, hard))
        try:
            with pytest.raises(ModelFileError, match="nothing was changed"):
                model_file.save(path, kind="LDA", arrays={"x": np.ones(10_000)}, facts={})
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        assert path.read_bytes() == before
        assert os.listdir(path.parent) == [path.name]


def test_an_interrupt_leaves_the_old_file(path, monkeypatch):
    before = path.read_bytes()

    def interrupt(descriptor):
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "fsync", interrupt)
    with pytest.raises(KeyboardInterrupt):
        model_file.save(path, kind="LDA", arrays={}, facts={})
    assert path.read_bytes() == before
    assert os.listdir(path.parent) == [path.name]


def test_places_that_cannot_be_written(tmp_path):
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").write_text("x")
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    for target in [
        tmp_path / "missing" / "m",
        tmp_path / "folder",
        tmp_path / "file" / "m",
        tmp_path / "pipe",
        tmp_path / "loop",
        "/proc/m",
        "/dev/null",
    ]:
        with pytest.raises(ModelFileError):
            model_file.save(target, kind="LDA", arrays={}, facts={})
    for odd in [None, 5, b"x", tmp_path / ("x" * 300), "a\0b"]:
        with pytest.raises(ParameterError, match="path"):
            model_file.save(odd, kind="LDA", arrays={}, facts={})
    assert sorted(os.listdir(tmp_path)) == ["file", "folder", "loop", "pipe"]
    assert not os.listdir(tmp_path / "folder")


def test_unwritable_folder():
    with pytest.raises(ModelFileError, match="cannot be written"):
        model_file.save("/proc/model.dpvb", kind="LDA", arrays={}, facts={})  # not even root may


def test_overwriting_and_links(path, tmp_path):
    link = tmp_path / "link"
    link.symlink_to(path)
    model_file.save(link, kind="Mixture", arrays={}, facts={})
    assert link.is_symlink()
    assert model_file.load(path).kind == "Mixture"


def test_permissions_are_those_of_any_new_file(path, tmp_path):
    (tmp_path / "other").write_text("")
    assert path.stat().st_mode == (tmp_path / "other").stat().st_mode


def test_memory_of_a_round_trip_is_that_of_the_arrays(tmp_path):
    x = np.random.default_rng(2).normal(size=4_000_000)
    tracemalloc.start()
    model_file.save(tmp_path / "m", kind="LDA", arrays={"x": x}, facts={})
    _, saving = tracemalloc.get_traced_memory()
    tracemalloc.reset_peak()
    model_file.load(tmp_path / "m")
    _, loading = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    shutil.rmtree(tmp_path)
    assert saving < 12e6
    assert loading < x.nbytes + 12e6
