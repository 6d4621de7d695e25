"""Tests mixtures of files: weights, order, and the identity of their content."""

import os
import pickle
import shutil
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from datamodules.vision_language import mixture
from datamodules.vision_language.mixture import Mixture
from datamodules.vision_language.row_subset import RowSubset
from datamodules.vision_language.source_config import SourceSettings, check_sources
from engine.data.epoch_order import ShuffleBlocks, global_batches
from engine.data.samplers import TrainSampler
from tests.support.data_files.vision_language_files import (
    Sample,
    colored,
    write_finevision_parquet,
    write_jsonl,
    write_llava,
    write_minimind_parquet,
    write_tar,
)


class Numbered:
    """A file of this many rows that is never read."""

    def __init__(self, rows, blocks=None):
        self.rows, self.blocks = rows, blocks

    def __len__(self):
        return self.rows


@st.composite
def files(draw):
    """(file, weight, first)"""
    lengths = np.array(draw(st.lists(st.integers(1, 9), min_size=1, max_size=8)))
    rows, blocks = int(lengths.sum()), None
    if draw(st.booleans()):
        blocks = ShuffleBlocks(np.cumsum(lengths) - lengths, lengths * 10, draw(st.integers(1, 100)))
    weight = draw(st.sampled_from([1.0, 2.0, 0.25, 0.5, 1.5, 0.01, 3.3]))
    return Numbered(rows, blocks), weight, draw(st.none() | st.integers(1, 60))


def mixed(found, seed=0, block=4):
    with pytest.MonkeyPatch.context() as patch:
        opened = iter([file for file, _, _ in found])
        patch.setattr(SourceSettings, "open", lambda self, root: next(opened))
        patch.setattr(mixture, "_BLOCK", block)
        sources = [SourceSettings("a.json", weight=weight, first=first) for _, weight, first in found]
        return Mixture(sources, "root", seed)


@settings(max_examples=60, deadline=None)
@given(st.lists(files(), min_size=1, max_size=3), st.integers(0, 50), st.integers(1, 5))
def test_rows_are_sampled_in_proportion_to_their_weight(found, begin, epochs):
    mix = mixed(found)
    seen = [Counter(mix.locate(epoch, index) for index in range(len(mix))) for epoch in range(begin, begin + epochs)]
    for source, (file, weight, first) in enumerate(found):
        rows = min(len(file), first or len(file))
        share = max(1, round(weight * rows))
        assert all(sum(count for (of, _), count in epoch.items() if of == source) == share for epoch in seen)
        counts = [sum(epoch[source, row] for epoch in seen) for row in range(rows)]
        assert max(counts) - min(counts) <= 1, "the rows are gone round"
        assert {row for epoch in seen for of, row in epoch if of == source} <= set(range(rows))


@settings(max_examples=60, deadline=None)
@given(st.lists(files(), min_size=1, max_size=3), st.integers(0, 9), st.integers(0, 3))
def test_blocks_of_a_mixture_are_those_of_its_files(found, epoch, seed):
    mix = mixed(found, seed)
    blocks = mix.blocks(epoch)
    windows = [file.blocks.window for file, _, _ in found if file.blocks is not None]
    if not windows:
        assert blocks is None
        return
    assert blocks.window == min(windows)
    assert blocks.starts[0] == 0
    assert (np.diff(blocks.starts, append=len(mix)) > 0).all()
    for start, end, size in zip(blocks.starts, [*blocks.starts[1:], len(mix)], blocks.sizes, strict=True):
        locations = [mix.locate(epoch, index) for index in range(start, end)]
        assert len({source for source, _ in locations}) == 1
        assert blocks.groups[np.searchsorted(blocks.starts, start)] == locations[0][0]
        assert [row for _, row in locations] == list(range(locations[0][1], locations[0][1] + len(locations)))
        file = found[locations[0][0]][0]
        if file.blocks is None:
            assert size == 0
        else:
            of = {int(np.searchsorted(file.blocks.starts, row, side="right")) - 1 for _, row in locations}
            assert len(of) == 1
            assert size == file.blocks.sizes[of.pop()]
    assert sorted(np.concatenate(global_batches(len(mix), 7, seed, epoch, blocks))) == list(range(len(mix)))


@pytest.mark.parametrize("processes", [2, 8])
def test_processes_get_as_many_of_each_source(processes):
    """Images (row groups) and texts are balanced; otherwise ranks would wait for a rank with images only."""
    images = ShuffleBlocks(np.arange(0, 5000, 100), np.full(50, 10**6), 8 * 10**6)
    mix = mixed([(Numbered(5000, images), 1.0, None), (Numbered(5000), 1.0, None)])
    team = [
        TrainSampler(len(mix), 64, seed=0, rank=process, world_size=processes, blocks=mix.blocks)
        for process in range(processes)
    ]
    for draws in zip(*team, strict=True):
        counts = [sum(mix.locate(0, int(index))[0] == 0 for index in draw.indices) for draw in draws]
        assert max(counts) - min(counts) <= 1


def test_a_part_of_a_file_is_a_sample_of_it():
    """The first quarter of a sorted file would be a biased sample."""
    mix = mixed([(Numbered(1000), 0.25, None)])
    assert len(mix) == 250
    first, second = ({mix.locate(epoch, index)[1] for index in range(250)} for epoch in (0, 1))
    assert len(first) == len(second) == 250
    assert not first & second
    assert all(max(rows) > 200 and min(rows) < 800 and np.std(list(rows)) > 200 for rows in (first, second))
    other = mixed([(Numbered(1000), 0.25, None)], seed=1)
    assert {other.locate(0, index)[1] for index in range(250)} != first


def test_whole_files_keep_their_order():
    mix = mixed([(Numbered(10), 1.0, None), (Numbered(5), 2.0, 3)])
    expected = [(0, row) for row in range(10)] + [(1, row) for row in (0, 1, 2) * 2]
    assert [mix.locate(3, index) for index in range(len(mix))] == expected
    with pytest.raises(IndexError, match="sample 16 of 16"):
        mix.locate(0, 16)


def test_a_large_mixture_is_small_in_every_process():
    million = ShuffleBlocks(np.arange(0, 10**6, 100), np.full(10**4, 10**6), 10**8)
    found = [(Numbered(10**6, million), 0.3, None), (Numbered(10**6), 1.0, None)]
    assert len(pickle.dumps(mixed(found, block=mixture._BLOCK)._sources)) < 1_000_000


def test_sources_of_several_formats_are_read_as_one(tmp_path):
    (tmp_path / "parquet").mkdir()
    plain = Sample([("system", "Be kind."), ("user", "Hello?"), ("assistant", "Hello.")], [])
    sources = [
        SourceSettings(str(write_llava(tmp_path / "a.json", [colored(0), colored(1), colored(2)])), first=2),
        SourceSettings(str(tmp_path / "b.txt"), "jsonl", str(tmp_path / "b"), system="Be brief."),
        SourceSettings(str(tmp_path / "parquet"), weight=2),
    ]
    write_jsonl(tmp_path / "b.txt", [plain, colored(4)], tmp_path / "b")
    write_finevision_parquet(tmp_path / "parquet/c.parquet", [colored(5)])
    mix = Mixture(sources, tmp_path)
    for copy in (mix, pickle.loads(pickle.dumps(mix))):
        chats = [copy.read(1, index) for index in range(len(copy))]
        assert [copy.name(1, index) for index in range(len(copy))] == [chat.name for chat in chats]
        prompts = [[message["content"] for message in chat.messages][:-1] for chat in chats]
        texts = {number: colored(number).turns[0][1] for number in range(6)}
        both = [["Be kind.", "Hello?"], ["Be brief.", texts[4]]]
        assert prompts == [[texts[0]], [texts[1]], *both, [texts[5]], [texts[5]]]
        assert [list(chat.images) for chat in chats] == [
            list(sample.images) for sample in (colored(0), colored(1), plain, colored(4), colored(5), colored(5))
        ]


def test_mixtures_that_differ_have_other_names(tmp_path):
    path = str(write_jsonl(tmp_path / "a.jsonl", [colored(row) for row in range(8)]))
    write_finevision_parquet(tmp_path / "b.parquet", [colored(row) for row in range(8)], 4)
    parquet = str(tmp_path / "b.parquet")
    variants = [
        [SourceSettings(path)],
        [SourceSettings(path, weight=2)],
        [SourceSettings(path, first=7)],
        [SourceSettings(path, system="a")],
        [SourceSettings(path), SourceSettings(path)],
        [SourceSettings(parquet)],
    ]
    names = [Mixture(variant, tmp_path).identity for variant in variants]
    write_finevision_parquet(tmp_path / "b.parquet", [colored(row) for row in range(8)], 3)
    names.append(Mixture(variants[-1], tmp_path).identity)  # its blocks come in another order
    assert len(set(names)) == len(variants) + 1
    assert Mixture(variants[0], tmp_path).identity == names[0]


WRITERS = {"json": write_llava, "jsonl": write_jsonl, "parquet": write_minimind_parquet, "tar": write_tar}


@pytest.mark.parametrize("form", WRITERS)
@pytest.mark.parametrize("part", [False, True], ids=["all", "a part"])
def test_a_file_that_changed_has_another_identity(tmp_path, form, part):
    """A changed file is found even if its rows have equal sizes. A copy in another folder is the same."""

    def identity(folder, samples):
        (tmp_path / folder).mkdir()
        path = WRITERS[form](tmp_path / folder / f"a.{form}", samples)
        os.utime(path, ns=(len(folder), len(folder)))
        some = (lambda file: RowSubset(file, np.arange(3, 17))) if part else (lambda file: file)
        mix = Mixture([SourceSettings(str(path))], tmp_path, part=some)
        assert pickle.loads(pickle.dumps(mix)).identity == mix.identity
        return mix.identity

    samples = [colored(row) for row in range(100, 120)]
    first = identity("first", samples)
    shutil.copytree(tmp_path / "first", tmp_path / "copy")
    copy = Mixture([SourceSettings(str(tmp_path / f"first/a.{form}"))], tmp_path)
    moved = Mixture([SourceSettings(str(tmp_path / f"copy/a.{form}"))], tmp_path)
    os.utime(tmp_path / f"copy/a.{form}")
    assert copy.identity == moved.identity
    assert identity("the same", samples) == first
    others = [identity("reversed", samples[::-1]), identity("other", [colored(row) for row in range(200, 220)])]
    assert len({first, *others}) == 3


def test_other_rows_of_a_file_are_another_part(tmp_path):
    path = str(write_jsonl(tmp_path / "a.jsonl", [colored(row) for row in range(8)]))
    names = {
        Mixture([SourceSettings(path)], tmp_path, part=lambda file: RowSubset(file, rows)).identity  # noqa: B023
        for rows in (np.arange(3), np.arange(1, 4))
    }
    assert len(names) == 2


@pytest.mark.parametrize(
    ("source", "messages"),
    [
        (SourceSettings("a.json", weight=0), "train\\[1\\].weight of a.json must be more than 0 and at most 1000"),
        (SourceSettings("a.json", weight=float("nan")), "weight of a.json"),
        (SourceSettings("a.json", first=0), "train\\[1\\].first of a.json must be at least 1, got 0"),
        (SourceSettings("a.xlsx"), "a.xlsx: cannot detect the format from the suffix"),
    ],
)
def test_settings_that_cannot_be_used(source, messages):
    with pytest.raises(ValueError, match=messages):
        check_sources([SourceSettings("a.json"), source], "train")


def test_a_set_needs_samples(tmp_path):
    with pytest.raises(ValueError, match="data.init_args.train is empty"):
        check_sources([], "data.init_args.train")
    (tmp_path / "empty.jsonl").write_text("\n")
    with pytest.raises(ValueError, match="empty.jsonl: found no sample"):
        Mixture([SourceSettings(str(tmp_path / "empty.jsonl"))], tmp_path)
    with pytest.raises(FileNotFoundError):
        Mixture([SourceSettings(str(tmp_path / "absent.json"))], tmp_path)
