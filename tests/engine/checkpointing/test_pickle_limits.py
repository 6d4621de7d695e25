"""A file that is made to exhaust time or memory is refused before anything is unpacked or unpickled."""

import io
import pickle
import resource
import time
import zipfile

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.checkpointing import pickle_limits
from engine.checkpointing.discovery import saved_at
from engine.checkpointing.pickle_limits import find_excess
from engine.checkpointing.verification import CorruptCheckpointError, load_lazily, verify

NESTED = b"\x80\x02" + b"]" * 2_000_000 + b"a" * 1_999_999 + b"."
FLAT = b"\x80\x02" + b"](" + b"N" * 100_000 + b"e."


def archive(path, members, compression=zipfile.ZIP_STORED):
    with zipfile.ZipFile(path, "w", compression) as file:
        for name, content in members.items():
            file.writestr(f"archive/{name}", content)
    return path


def compressed_bomb(path):
    """2 GB of zeros in 2 MB."""
    with (
        zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file,
        file.open("a/data/0", "w", force_zip64=True) as member,
    ):
        for _ in range(64):
            member.write(bytes(1 << 25))
    return path


def overlapping_members(path):
    """The directory names one member a thousand times."""
    archive(path, {"data.pkl": pickle.dumps({}, 2), "data/0": bytes(1 << 20)})
    with zipfile.ZipFile(path, "a") as file:
        last = file.infolist()[-1]
        file.filelist.extend([last] * 1000)
        file.writestr("archive/version", "3")
    return path


def many_members(path):
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("archive/data.pkl", pickle.dumps({}, 2))
        member = file.infolist()[0]
        member.extra = bytes(1 << 12)
        file.filelist.extend([member] * 5000)  # a directory of 20 MB
        file.writestr("archive/version", "3")
    return path


BOMBS = {
    "nested": (lambda path: archive(path, {"data.pkl": NESTED}), "nests more than 50,000 objects"),
    "flat": (lambda path: archive(path, {"data.pkl": FLAT}), "nests more than 50,000 objects"),
    "long": (lambda path: archive(path, {"data.pkl": bytes((64 << 20) + 1)}), "expected at most 67,108,864"),
    "overlapping": (overlapping_members, "its members have 1,0.* bytes, the file has 1,"),
    "directory": (many_members, "a directory of 20,.* bytes, expected at most 16,777,216"),
}


@pytest.mark.parametrize("kind", BOMBS)
@pytest.mark.parametrize("read", [verify, load_lazily], ids=["verify", "load_lazily"])
def test_a_bomb_is_refused_in_seconds_and_little_memory(tmp_path, kind, read):
    make, message = BOMBS[kind]
    path = make(tmp_path / "last.ckpt")
    assert_refused_cheaply(read, path, message)
    assert saved_at(path) == path.stat().st_mtime


@pytest.mark.slow  # compressing 2 GB takes seconds, refusing it does not
def test_compressed_members_are_refused_unread(tmp_path):
    path = compressed_bomb(tmp_path / "last.ckpt")
    for read in (verify, load_lazily):
        assert_refused_cheaply(read, path, "data/0 is compressed .2,147,483,648 bytes unpacked., but torch.save")


def test_a_compressed_checkpoint_is_refused(tmp_path):
    path = archive(tmp_path / "last.ckpt", {"data.pkl": pickle.dumps({}, 2)}, zipfile.ZIP_DEFLATED)
    with pytest.raises(CorruptCheckpointError, match="archive/data.pkl is compressed"):
        verify(path)


def test_a_checkpoint_of_many_megabytes_beside_its_tensors_is_read(tmp_path):
    """More than a directory may have, and less than a pickle may have."""
    texts = [str(number) + "x" * 2_000_000 for number in range(10)]
    torch.save({"texts": texts}, tmp_path / "last.ckpt")
    verify(tmp_path / "last.ckpt")
    assert load_lazily(tmp_path / "last.ckpt") == {"texts": texts}


def assert_refused_cheaply(read, path, message):
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    start = time.process_time()
    with pytest.raises(CorruptCheckpointError, match=message):
        read(path)
    assert time.process_time() - start < 2
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - peak < 200_000, "kB"


def test_more_opcodes_than_the_limit_are_refused(monkeypatch):
    monkeypatch.setattr(pickle_limits, "_MAX_OPCODES", 1000)
    assert find_excess(b"\x80\x02]" + b"Na" * 400 + b".") is None
    assert find_excess(b"\x80\x02]" + b"Na" * 500 + b".") == "it has more than 1,000 opcodes"


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner) | st.tuples(inner, inner),
    max_leaves=20,
)


@settings(max_examples=50)
@given(VALUES)
def test_files_of_torch_are_within_the_limits(value):
    file = io.BytesIO()
    torch.save({"value": value, "weights": [torch.nn.Parameter(torch.ones(3)), torch.ones(2, dtype=torch.int64)]}, file)
    with zipfile.ZipFile(file) as content:
        assert find_excess(content.read("archive/data.pkl")) is None


@settings(max_examples=200)
@given(st.binary(max_size=200))
def test_no_pickle_raises_another_error(data):
    assert isinstance(find_excess(b"\x80\x02" + data), (str, type(None)))


def test_a_large_checkpoint_is_within_the_limits():
    content = {f"layer.{number}.weight": torch.ones(1) for number in range(3000)}
    file = io.BytesIO()
    torch.save({"state_dict": content, "names": [str(number) for number in range(100_000)]}, file)
    with zipfile.ZipFile(file) as archived:
        assert find_excess(archived.read("archive/data.pkl")) is None
