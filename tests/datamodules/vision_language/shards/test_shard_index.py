"""Tests that shards are indexed once; a changed shard is indexed again or refused."""

import json
import multiprocessing
import os
import re

import pytest

from datamodules.vision_language.shards import shard as shard_module
from datamodules.vision_language.shards import shard_index as module
from datamodules.vision_language.shards.shard import Shard, ShardInfo
from datamodules.vision_language.shards.shard_index import ShardIndex
from datamodules.vision_language.shards.webdataset_samples import iter_samples


@pytest.fixture
def opened(monkeypatch):
    """Names of the shards that are opened."""
    names, open_shard = [], module.open_shard
    for reader in (module, shard_module):
        monkeypatch.setattr(reader, "open_shard", lambda name: (names.append(name), open_shard(name))[1])
    return names


@pytest.fixture
def shards(write_shard):
    return [
        str(write_shard(f"{shard}.tar", {f"{shard}-{n}.txt": b"x" * n for n in range(size)}))
        for shard, size in enumerate((3, 0, 5))
    ]


def test_shards_are_looked_at_once(shards, tmp_path, opened):
    ShardIndex(tmp_path / "root/index").add(shards)
    assert set(opened) == set(shards)
    opened.clear()
    index = ShardIndex(tmp_path / "root/index")
    index.add(shards)
    infos = [shard.info for shard in index.shards(shards)]
    assert [shard.samples for shard in infos] == [3, 0, 5]
    assert len({shard.files for shard in infos}) == 3
    locations = [list(shard.locations()) for shard in index.shards(shards)]
    assert [len(some) for some in locations] == [3, 0, 5]
    assert opened == [], "their samples are known, too"
    assert locations == [list(Shard(name).locations()) for name in shards]
    assert (tmp_path / "root/index/.gitignore").read_text() == "*\n"
    left = sorted(path.suffix for path in (tmp_path / "root/index").glob("[!.]*"))
    assert left == [".json", ".npy", ".npy", ".npy"], "nothing is left of the writing"


def test_the_same_shard_is_found_from_another_folder(shards, tmp_path, monkeypatch):
    index = ShardIndex(tmp_path)
    index.add(shards)
    monkeypatch.chdir(tmp_path)
    assert index.shards(["0.tar"])[0].info == index.shards(shards)[0].info is not None


def test_a_shard_of_another_size_is_looked_at_again_or_refused(shards, tmp_path, write_shard, opened):
    index = ShardIndex(tmp_path)
    index.add(shards)
    before = index.shards(shards)
    write_shard("2.tar", {f"other-{n}.txt": b"y" * 600 for n in range(9)})
    with pytest.raises(ValueError, match="2.tar: found .* bytes, but .* when it was indexed"):
        list(before[2].locations())
    opened.clear()
    index.add(shards)
    assert {*opened} == {shards[2]}
    assert len(list(index.shards(shards)[2].locations())) == 9


def rewritten(path, files, write_shard):
    """A shard written again, and an instant later, in the same number of bytes."""
    before = os.stat(path)
    write_shard(path, files)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns + 1))
    assert os.path.getsize(path) == before.st_size, "archives are padded"


def texts(shard):
    return [contents(location) for location in shard.locations()]


def contents(location):
    with open(location.shard, "rb") as file:
        file.seek(location.begin)
        [member] = next(iter_samples(file, location.shard, keep=True, begin=location.begin)).files.values()
        return member.data


def test_a_shard_that_was_rewritten_in_its_size_is_looked_at_again(tmp_path, write_shard):
    path = str(write_shard("a.tar", {"1.txt": b"first", "2.txt": b"second"}))
    index = ShardIndex(tmp_path / "root")
    index.add([path])
    rewritten(path, {"1.txt": b"first", "2.txt": b"second", "3.txt": b"new"}, write_shard)
    with pytest.raises(ValueError, match="a.tar: found 3 samples, but 2 when it was indexed"):
        list(index.shards([path])[0].locations())
    index = ShardIndex(tmp_path / "root")
    index.add([path])
    assert texts(index.shards([path])[0]) == [b"first", b"second", b"new"]
    rewritten(path, {"1.txt": b"x" * 1500, "2.txt": b"y" * 700, "3.txt": b"z"}, write_shard)
    expected = [b"x" * 1500, b"y" * 700, b"z"]
    assert texts(index.shards([path])[0]) == expected, "the index is not trusted"
    index.add([path])
    assert texts(index.shards([path])[0]) == expected


def test_a_shard_that_was_replaced_with_its_time_is_looked_at_again(tmp_path, write_shard):
    path = str(write_shard("a.tar", {"1.txt": b"first", "2.txt": b"second"}))
    os.utime(path, ns=(1, 1))
    index = ShardIndex(tmp_path / "root")
    index.add([path])
    write_shard("a.tar", {"1.txt": b"x" * 600, "2.txt": b"y"})
    with open(path, "r+b") as file:
        file.truncate(index.shards([path])[0].info.size)
    os.utime(path, ns=(1, 1))
    assert texts(index.shards([path])[0]) == [b"x" * 600, b"y"], "the index is not trusted"
    index.add([path])
    assert texts(index.shards([path])[0]) == [b"x" * 600, b"y"]


@pytest.mark.parametrize("corrupt", [lambda content: content[:-8] + b"\1" + content[-7:], lambda content: content[:60]])
def test_a_corrupt_table_is_not_used(shards, tmp_path, corrupt, messages):
    index = ShardIndex(tmp_path)
    index.add(shards)
    expected = list(index.shards(shards)[2].locations())
    table = index.shards(shards)[2].table
    table.write_bytes(corrupt(table.read_bytes()))
    assert list(index.shards(shards)[2].locations()) == expected
    assert f"{table} is corrupt" in messages[-1]


def test_an_edited_index_is_refused(shards, tmp_path):
    ShardIndex(tmp_path).add(shards)
    path = tmp_path / "index.json"
    path.write_text(
        re.sub(r'"samples": (\d+)', lambda match: f'"samples": {int(match[1]) + 1}', path.read_text(), count=1)
    )
    with pytest.raises(ValueError, match=r"index.json: not an index .*a value has changed .*delete it to rebuild it"):
        ShardIndex(tmp_path)


@pytest.mark.parametrize("lacks", [("modified", "changed", "crc32"), ("changed", "crc32")])
def test_an_index_that_does_not_tell_when_is_made_again(shards, tmp_path, opened, lacks):
    ShardIndex(tmp_path).add(shards)
    path = tmp_path / "index.json"
    old = json.loads(path.read_text())
    del old["checksum"]
    for entry in old["shards"].values():
        for key in lacks:
            del entry[key]
    path.write_text(json.dumps(old))
    opened.clear()
    index = ShardIndex(tmp_path)
    index.add(shards)
    assert {*opened} == {*shards}
    assert all(shard.info.modified and shard.info.changed for shard in ShardIndex(tmp_path).shards(shards))


def _add(root, shard, barrier, done):
    index = ShardIndex(root)
    barrier.wait(60)
    index.add([shard])
    done.put(shard)


def test_several_processes_keep_each_others_entries(shards, tmp_path):
    processes = multiprocessing.get_context("spawn")
    barrier, done = processes.Barrier(len(shards)), processes.Queue()
    team = [processes.Process(target=_add, args=(tmp_path / "root", shard, barrier, done)) for shard in shards]
    for process in team:
        process.start()
    assert sorted(done.get(timeout=90) for _ in team) == sorted(shards)
    for process in team:
        process.join(30)
    assert [shard.info.samples for shard in ShardIndex(tmp_path / "root").shards(shards)] == [3, 0, 5]


def test_entries_of_other_processes_are_kept(shards, tmp_path):
    first, second = ShardIndex(tmp_path), ShardIndex(tmp_path)
    first.add(shards[:1])
    second.add(shards[2:])
    assert [shard.info is not None for shard in ShardIndex(tmp_path).shards(shards)] == [True, False, True]


def test_other_files_have_another_hash_whatever_the_archive_is_called(write_shard, tmp_path):
    index = ShardIndex(tmp_path)
    files = {"1.txt": b"abc", "2.txt": b"de"}
    others = [files, files, {"1.txt": b"ab", "2.txt": b"cde"}, {"1.txt": b"abc", "3.txt": b"de"}]
    names = [str(write_shard(f"{number}/x.tar", samples)) for number, samples in enumerate(others)]
    index.add(names)
    first, same, *rest = (shard.info.files for shard in index.shards(names))
    assert first == same
    assert len({first, *rest}) == 3


def test_another_number_of_samples_than_known_is_refused(shards):
    for name in (shards[0], f"file://{shards[0]}"):
        with pytest.raises(ValueError, match="0.tar: found 3 samples, but 4 when it was indexed"):
            list(Shard(name, ShardInfo(None, 4, "")).locations())


def test_a_corrupt_shard_is_not_indexed(shards, tmp_path):
    with open(shards[2], "r+b") as file:
        file.truncate(1000)
    with pytest.raises(ValueError, match="2.tar: the archive ends"):
        ShardIndex(tmp_path).add(shards)
    assert not (tmp_path / "index.json").exists()


def test_a_shard_given_by_url_is_indexed_without_offsets(shards, tmp_path):
    index = ShardIndex(tmp_path)
    index.add([f"file://{shards[2]}"])
    [shard] = ShardIndex(tmp_path).shards([f"file://{shards[2]}"])
    assert shard.info.samples == 5
    assert [location.sample.files["txt"].data for location in shard.locations()] == [b"x" * n for n in range(5)]


def test_a_table_that_is_lost_is_made_again(shards, tmp_path):
    index = ShardIndex(tmp_path)
    index.add(shards)
    for table in tmp_path.glob("*.npy"):
        table.unlink()
    assert len(list(index.shards(shards)[0].locations())) == 3, "the shard itself is read"
    index.add(shards)
    assert len(list(index.shards(shards)[0].locations())) == 3


def test_an_interrupted_scan_keeps_its_entries(shards, tmp_path, monkeypatch):
    monkeypatch.setattr(module, "_SAVE_INTERVAL", 1)
    with pytest.raises(ValueError, match="corrupt.tar"):
        (tmp_path / "corrupt.tar").write_bytes(b"?" * 600)
        ShardIndex(tmp_path).add([*shards, str(tmp_path / "corrupt.tar")])
    assert [shard.info is not None for shard in ShardIndex(tmp_path).shards(shards)] == [True] * 3


@pytest.mark.parametrize("text", ["{", "[]", '{"shards": {"a": {}}}', '{"shards": {"a": {"size": "x"}}}'])
def test_another_file_is_no_index(tmp_path, text):
    (tmp_path / "index.json").write_text(text)
    with pytest.raises(ValueError, match="index.json: not an index of shards .*delete it"):
        ShardIndex(tmp_path)


def test_the_index_can_be_read(shards, tmp_path):
    ShardIndex(tmp_path).add(shards[:1])
    entries = json.loads((tmp_path / "index.json").read_text())["shards"]
    assert list(entries) == shards[:1]
    assert entries[shards[0]].keys() == {"size", "samples", "files", "modified", "changed", "crc32"}
