"""Shards are looked at once; what has changed since is looked at again, or refused."""

import json
import multiprocessing
import os

import pytest

from datamodules.vision_language.shards import index as module
from datamodules.vision_language.shards import shard as shard_module
from datamodules.vision_language.shards.index import ShardIndex
from datamodules.vision_language.shards.shard import Known, Shard
from datamodules.vision_language.shards.tar_samples import tar_samples


@pytest.fixture
def opened(monkeypatch):
    """Names of the shards that are opened."""
    names, open_shard = [], module.open_shard
    for one in (module, shard_module):
        monkeypatch.setattr(one, "open_shard", lambda name: (names.append(name), open_shard(name))[1])
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
    known = [shard.known for shard in index.shards(shards)]
    assert [one.samples for one in known] == [3, 0, 5] and len({one.files for one in known}) == 3
    places = [list(shard.places()) for shard in index.shards(shards)]
    assert [len(some) for some in places] == [3, 0, 5]
    assert opened == [], "their samples are known, too"
    assert places == [list(Shard(name).places()) for name in shards]
    left = sorted(path.suffix for path in (tmp_path / "root/index").iterdir() if path.suffix != ".lock")
    assert left == [".json", ".npy", ".npy", ".npy"], "nothing is left of the writing"


def test_the_same_shard_is_found_from_another_folder(shards, tmp_path, monkeypatch):
    index = ShardIndex(tmp_path)
    index.add(shards)
    monkeypatch.chdir(tmp_path)
    assert index.shards(["0.tar"])[0].known == index.shards(shards)[0].known is not None


def test_a_shard_of_another_size_is_looked_at_again_or_refused(shards, tmp_path, write_shard, opened):
    index = ShardIndex(tmp_path)
    index.add(shards)
    before = index.shards(shards)
    write_shard("2.tar", {f"other-{n}.txt": b"y" * 600 for n in range(9)})
    with pytest.raises(ValueError, match="2.tar: found .* bytes, but .* when it was looked at"):
        list(before[2].places())
    opened.clear()
    index.add(shards)
    assert {*opened} == {shards[2]}
    assert len(list(index.shards(shards)[2].places())) == 9


def rewritten(path, files, write_shard):
    """A shard written again, and an instant later, in the same number of bytes."""
    before = os.stat(path)
    write_shard(path, files)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns + 1))
    assert os.path.getsize(path) == before.st_size, "archives are padded"


def texts(shard):
    return [contents(place) for place in shard.places()]


def contents(place):
    with open(place.shard, "rb") as file:
        file.seek(place.begin)
        [member] = next(tar_samples(file, place.shard, keep=True, begin=place.begin)).files.values()
        return member.data


def test_a_shard_that_was_rewritten_in_its_size_is_looked_at_again(tmp_path, write_shard):
    path = str(write_shard("a.tar", {"1.txt": b"first", "2.txt": b"second"}))
    index = ShardIndex(tmp_path / "root")
    index.add([path])
    rewritten(path, {"1.txt": b"first", "2.txt": b"second", "3.txt": b"new"}, write_shard)
    with pytest.raises(ValueError, match="a.tar: found 3 samples, but 2 when it was looked at"):
        list(index.shards([path])[0].places())
    index = ShardIndex(tmp_path / "root")
    index.add([path])
    assert texts(index.shards([path])[0]) == [b"first", b"second", b"new"]
    rewritten(path, {"1.txt": b"x" * 1500, "2.txt": b"y" * 700, "3.txt": b"z"}, write_shard)
    expected = [b"x" * 1500, b"y" * 700, b"z"]
    assert texts(index.shards([path])[0]) == expected, "the index is not trusted"
    index.add([path])
    assert texts(index.shards([path])[0]) == expected


def test_an_index_that_does_not_tell_when_is_made_again(shards, tmp_path, opened):
    ShardIndex(tmp_path).add(shards)
    path = tmp_path / "index.json"
    old = json.loads(path.read_text())
    for entry in old["shards"].values():
        del entry["modified"]
    path.write_text(json.dumps(old))
    opened.clear()
    index = ShardIndex(tmp_path)
    index.add(shards)
    assert {*opened} == {*shards}
    assert all(shard.known.modified for shard in ShardIndex(tmp_path).shards(shards))


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
    assert [shard.known.samples for shard in ShardIndex(tmp_path / "root").shards(shards)] == [3, 0, 5]


def test_what_others_looked_at_meanwhile_is_kept(shards, tmp_path):
    first, second = ShardIndex(tmp_path), ShardIndex(tmp_path)
    first.add(shards[:1])
    second.add(shards[2:])
    assert [shard.known is not None for shard in ShardIndex(tmp_path).shards(shards)] == [True, False, True]


def test_other_files_have_another_hash_whatever_the_archive_is_called(write_shard, tmp_path):
    index = ShardIndex(tmp_path)
    files = {"1.txt": b"abc", "2.txt": b"de"}
    others = [files, files, {"1.txt": b"ab", "2.txt": b"cde"}, {"1.txt": b"abc", "3.txt": b"de"}]
    names = [str(write_shard(f"{number}/x.tar", one)) for number, one in enumerate(others)]
    index.add(names)
    first, same, *rest = (shard.known.files for shard in index.shards(names))
    assert first == same and len({first, *rest}) == 3


def test_another_number_of_samples_than_known_is_refused(shards):
    for name in (shards[0], f"file://{shards[0]}"):
        with pytest.raises(ValueError, match="0.tar: found 3 samples, but 4 when it was looked at"):
            list(Shard(name, Known(None, 4, "")).places())


def test_a_damaged_shard_is_not_entered(shards, tmp_path):
    with open(shards[2], "r+b") as file:
        file.truncate(1000)
    with pytest.raises(ValueError, match="2.tar: the archive ends"):
        ShardIndex(tmp_path).add(shards)
    assert not (tmp_path / "index.json").exists()


def test_what_is_not_among_the_files_is_known_without_its_place(shards, tmp_path):
    index = ShardIndex(tmp_path)
    index.add([f"file://{shards[2]}"])
    [shard] = ShardIndex(tmp_path).shards([f"file://{shards[2]}"])
    assert shard.known.samples == 5
    assert [place.kept.files["txt"].data for place in shard.places()] == [b"x" * n for n in range(5)]


def test_a_table_that_is_lost_is_made_again(shards, tmp_path):
    index = ShardIndex(tmp_path)
    index.add(shards)
    for table in tmp_path.glob("*.npy"):
        table.unlink()
    with pytest.raises(FileNotFoundError, match=".npy"):
        list(index.shards(shards)[0].places())
    index.add(shards)
    assert len(list(index.shards(shards)[0].places())) == 3


def test_what_is_known_is_kept_when_looking_is_interrupted(shards, tmp_path, monkeypatch):
    monkeypatch.setattr(module, "_SAID", 1)
    with pytest.raises(ValueError, match="damaged.tar"):
        (tmp_path / "damaged.tar").write_bytes(b"?" * 600)
        ShardIndex(tmp_path).add([*shards, str(tmp_path / "damaged.tar")])
    assert [shard.known is not None for shard in ShardIndex(tmp_path).shards(shards)] == [True] * 3


@pytest.mark.parametrize("text", ["{", "[]", '{"shards": {"a": {}}}', '{"shards": {"a": {"size": "x"}}}'])
def test_another_file_is_no_index(tmp_path, text):
    (tmp_path / "index.json").write_text(text)
    with pytest.raises(ValueError, match="index.json: not an index of shards .*delete it"):
        ShardIndex(tmp_path)


def test_the_index_can_be_read(shards, tmp_path):
    ShardIndex(tmp_path).add(shards[:1])
    entries = json.loads((tmp_path / "index.json").read_text())["shards"]
    assert list(entries) == shards[:1] and entries[shards[0]].keys() == {"size", "samples", "files", "modified"}
