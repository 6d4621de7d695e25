"""Tests the cache of synthetic timelines: equal samples, refused caches, and interrupted writers."""

import json
import pickle

import pytest
from torch.utils.data import DataLoader

pytest.importorskip("pyarrow", reason="pyarrow comes with the extra `language`")

from datamodules.multimodal.synthetic_split import Split
from datamodules.temporal.timelines import sample_cache, sample_cache_writer  # noqa: E402
from datamodules.temporal.timelines.datamodule import ResourceTimelines  # noqa: E402
from datamodules.temporal.timelines.sample_cache import (  # noqa: E402
    CachedTimelines,
    CacheMismatchError,
    ShardRange,
    find_corrupt_file,
    verify_cache,
)
from datamodules.temporal.timelines.sample_cache_writer import write_cache  # noqa: E402
from datamodules.temporal.timelines.synthetic.synthetic_timelines import SyntheticTimelines  # noqa: E402

EXTENTS = {Split.TRAIN: ShardRange(25, 2), Split.TEST: ShardRange(7)}
FULL = SyntheticTimelines(format="full", missing_probability=0.5)


def same(first, second):
    assert (first.values == second.values).all()
    assert (first.present == second.present).all()
    assert first.values.dtype == second.values.dtype
    assert first.present.dtype == second.present.dtype
    assert first[2:] == second[2:]
    return True


@pytest.fixture
def folder(tmp_path):
    write_cache(tmp_path / "cache", FULL, EXTENTS, shard=10)
    return tmp_path / "cache"


@pytest.mark.parametrize("synthesis", [SyntheticTimelines(), FULL], ids=["tiny", "full"])
def test_kept_samples_are_the_made_ones_bit_by_bit(tmp_path, synthesis):
    write_cache(tmp_path, synthesis, EXTENTS, shard=10)
    cached = CachedTimelines(tmp_path, synthesis)
    for split, extent in EXTENTS.items():
        for epoch in range(extent.epochs):
            for index in range(extent.samples):
                assert same(cached.sample(split, epoch, index), synthesis.sample(split, epoch, index))


def test_workers_read_the_same(folder):
    cached = CachedTimelines(folder, FULL)
    cached.sample(Split.TRAIN, 0, 0)  # mapped before the workers are there

    class Rows:
        def __len__(self):
            return 25

        def __getitem__(self, index):
            return cached.sample(Split.TRAIN, 1, index)

    for index, sample in enumerate(DataLoader(Rows(), batch_size=None, num_workers=2, collate_fn=lambda row: row)):
        assert same(sample, FULL.sample(Split.TRAIN, 1, index))
    assert same(pickle.loads(pickle.dumps(cached)).sample(Split.TEST, 0, 3), FULL.sample(Split.TEST, 0, 3))


@pytest.mark.parametrize("coordinates", [(Split.TRAIN, 0, 25), (Split.TRAIN, 2, 0), (Split.VALIDATION, 0, 0)])
def test_samples_outside_the_cache_are_refused(folder, coordinates):
    with pytest.raises(IndexError, match="found . epochs of .* samples for"):
        CachedTimelines(folder, FULL).sample(*coordinates)


def test_a_cache_of_other_settings_is_refused(folder, monkeypatch):
    with pytest.raises(
        CacheMismatchError, match="noise 0.03 where 0.05 is expected, seed 0 where 1 is expected; write it"
    ):
        CachedTimelines(folder, SyntheticTimelines(format="full", missing_probability=0.5, noise=0.05, seed=1))
    monkeypatch.setattr(sample_cache, "GENERATOR_VERSION", 99)
    with pytest.raises(CacheMismatchError, match="generator_version 1 where 99 is expected"):
        CachedTimelines(folder, FULL)


def test_a_cache_that_is_not_whole_is_refused(folder):
    shard = folder / "train-00001.arrow"
    content = shard.read_bytes()
    shard.write_bytes(content[:-1])
    with pytest.raises(CacheMismatchError, match=r"train-00001\.arrow: found .* bytes, expected"):
        CachedTimelines(folder, FULL)
    shard.write_bytes(content[:300] + bytes([content[300] ^ 1]) + content[301:])
    assert find_corrupt_file(folder) == shard.name
    with pytest.raises(CacheMismatchError, match=r"train-00001\.arrow is corrupt: .* write it again with `prepare`"):
        verify_cache(folder)
    shard.write_bytes(content)
    assert find_corrupt_file(folder) is None
    verify_cache(folder)
    (folder / "manifest.json").write_text("{}")
    with pytest.raises(CacheMismatchError, match="not the manifest of a cache"):
        CachedTimelines(folder, FULL)
    write_cache(folder, FULL, {Split.TEST: ShardRange(3)}, shard=10)
    assert [path.name for path in sorted(folder.iterdir())] == [".gitignore", "manifest.json", "test-00000.arrow"]
    (folder / "manifest.json").unlink()
    with pytest.raises(FileNotFoundError, match="expected the manifest of a cache"):
        CachedTimelines(folder, FULL)


def test_an_edited_manifest_is_refused(folder):
    """With one sample less in an epoch, each later epoch would begin with the last sample of the epoch before it."""
    path = folder / "manifest.json"
    manifest = json.loads(path.read_text())
    manifest["extents"]["TRAIN"][0] -= 1
    path.write_text(json.dumps(manifest))
    with pytest.raises(
        CacheMismatchError, match="manifest.json: .*a value has changed since it was written.*`prepare`"
    ):
        CachedTimelines(folder, FULL)
    write_cache(folder, FULL, EXTENTS, shard=10)
    assert CachedTimelines(folder, FULL).extents[Split.TRAIN] == (25, 2)
    manifest = json.loads(path.read_text())
    del manifest["checksum"]  # as in a cache of version 0.1
    path.write_text(json.dumps(manifest))
    assert CachedTimelines(folder, FULL).extents[Split.TRAIN] == (25, 2)


def test_a_writer_that_dies_leaves_no_cache(tmp_path, monkeypatch):
    """A cache of other settings is there before; half of it replaced it would be neither."""
    write_cache(tmp_path, SyntheticTimelines(), EXTENTS, shard=10)
    real, written = sample_cache_writer._write, []

    def dies(path, data):
        written.append(path)
        if len(written) == 3:
            raise OSError("no space left on device")
        real(path, data)

    monkeypatch.setattr(sample_cache_writer, "_write", dies)
    with pytest.raises(OSError, match="no space left"):
        write_cache(tmp_path, FULL, EXTENTS, shard=10)
    for synthesis in (SyntheticTimelines(), FULL):
        with pytest.raises(FileNotFoundError):
            CachedTimelines(tmp_path, synthesis)


def test_a_cache_that_is_there_is_not_written_again(folder, monkeypatch):
    monkeypatch.setattr(SyntheticTimelines, "sample", lambda *_: pytest.fail("made a sample"))
    assert json.loads(write_cache(folder, FULL, EXTENTS, shard=10).read_text())["extents"]["TRAIN"] == [25, 2]


def test_files_are_mapped_not_read(folder):
    """Mapped arrays are read-only and no copies: their memory belongs to the file."""
    sample = CachedTimelines(folder, FULL).sample(Split.TRAIN, 0, 0)
    assert not sample.values.flags.owndata
    assert not sample.values.flags.writeable


def test_a_cache_that_is_too_small_for_the_training_is_refused_before_it(folder):
    cached = CachedTimelines(folder, FULL)
    cached.require(Split.TRAIN, 25, 2)
    for what in ((Split.TRAIN, 26), (Split.TRAIN, 25, 3), (Split.VALIDATION, 1)):
        with pytest.raises(CacheMismatchError, match="found . epochs of .* samples for .*, expected"):
            cached.require(*what)


def test_a_start_refuses_a_cache_with_a_flipped_bit(tmp_path):
    """The flipped byte is in a measurement: size and settings match, and only the checksum finds the wrong sample."""
    sizes = {"num_samples": 4, "validation_size": 2, "test_size": 2, "cached_epochs": 1, "fresh_samples": False}
    data = ResourceTimelines(root=str(tmp_path), batch_size=2, **sizes)
    data.prepare_data()  # there is no cache yet
    extents = {Split.TRAIN: ShardRange(4), Split.VALIDATION: ShardRange(2), Split.TEST: ShardRange(2)}
    write_cache(tmp_path / "cache", data.synthesis, extents)
    data.prepare_data()
    shard = tmp_path / "cache/train-00000.arrow"
    content = bytearray(shard.read_bytes())
    content[content.index(data.synthesis.sample(Split.TRAIN, 0, 0).values.tobytes()) + 2] ^= 1
    shard.write_bytes(content)
    with pytest.raises(CacheMismatchError, match=r"train-00000\.arrow is corrupt"):
        data.prepare_data()
