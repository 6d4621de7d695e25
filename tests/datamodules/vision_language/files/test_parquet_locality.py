"""Tests on twenty thousand rows how many row groups are read, and how much of them is cached."""

import multiprocessing

import numpy as np
import pyarrow
import pytest

from benchmarks.vision_language.many_rows import write_many_rows
from datamodules.vision_language.files import parquet_row_groups, parquet_rows
from datamodules.vision_language.files.lru_cache import SizedLRUCache
from datamodules.vision_language.files.parquet_rewrite import _copy
from datamodules.vision_language.files.parquet_row_groups import read_footer
from datamodules.vision_language.mixture import Mixture
from datamodules.vision_language.source_config import SourceSettings
from engine.data.samplers import PADDING_INDEX, TrainSampler

ROWS, GROUP = 20_000, 200
WINDOW = 2 * 2**20  # a row group has about 180 kB


@pytest.fixture(scope="module")
def large(tmp_path_factory):
    return write_many_rows(tmp_path_factory.mktemp("large") / "train.parquet", ROWS, GROUP)


@pytest.fixture
def small_memory(monkeypatch):
    """A process with a small cache; the ratio of window and cache is unchanged."""
    monkeypatch.setattr(parquet_rows, "WINDOW", WINDOW)
    cache = SizedLRUCache(3 * WINDOW, lambda table: table.nbytes)
    monkeypatch.setattr(parquet_row_groups, "tables", cache)
    return cache


def epoch_of(mix, process, processes, local=True):
    blocks = mix.blocks if local else lambda epoch: None
    for draw in TrainSampler(len(mix), 64, seed=3, rank=process, world_size=processes, blocks=blocks):
        yield from draw.indices[draw.indices != PADDING_INDEX].tolist()


def test_an_epoch_reads_every_row_group_once(large, small_memory):
    mix = Mixture([SourceSettings(str(large))], "root")
    small_memory.misses = 0
    before, most = pyarrow.total_allocated_bytes(), 0
    seen = []
    for position, index in enumerate(epoch_of(mix, 0, 1)):
        seen.append(mix.read(0, index).name)
        if position % 100 == 0:
            most = max(most, pyarrow.total_allocated_bytes() - before)
    assert sorted(seen) == sorted(f"{large}, row {row}" for row in range(1, ROWS + 1))
    assert small_memory.misses <= ROWS // GROUP
    assert 0 < most <= 3 * WINDOW + 2**20


def test_processes_read_row_groups_of_their_own(large, small_memory):
    """About as many reads as row groups; a random order would read a group for almost every sample."""
    mix = Mixture([SourceSettings(str(large))], "root")
    groups, blocks = ROWS // GROUP, mix.blocks(0)

    def read_by(process, processes, local):
        cache = SizedLRUCache(3 * WINDOW, lambda block: int(blocks.sizes[block]))
        for index in epoch_of(mix, process, processes, local):
            cache.get(int(np.searchsorted(blocks.starts, index, side="right")), lambda: 0)
        return cache.misses

    for processes, bound in ((1, 1), (2, 1.6), (4, 2.5)):
        assert sum(read_by(process, processes, True) for process in range(processes)) <= bound * groups
    assert read_by(0, 1, False) > ROWS / 2


class _Watched:
    """Writes to a file that is discarded and tracks Arrow's peak memory."""

    closed, most = False, 0

    def write(self, data):
        self.most = max(self.most, pyarrow.total_allocated_bytes())
        return len(data)

    def flush(self):
        pass


def test_a_file_is_written_again_in_little_memory(tmp_path):
    path = write_many_rows(tmp_path / "train.parquet", 50_000, 2**20)
    before, target = pyarrow.total_allocated_bytes(), _Watched()
    _copy(path, target, ["conversations", "image_bytes"])
    assert path.stat().st_size > 38 * 2**20
    assert 0 < target.most - before < 16 * 2**20


def _memory_of_reading(path, out):
    import psutil

    before = psutil.Process().memory_info().rss
    mix = Mixture([SourceSettings(str(path))], "root")
    for index in range(0, len(mix), 7):
        mix.read(0, index)
    out.put(psutil.Process().memory_info().rss - before)


@pytest.mark.slow
def test_pages_that_were_read_do_not_stay_in_memory(tmp_path, monkeypatch):
    """Neither as the process's own nor as a mapped file's: or each loader would seem to hold the file."""
    path = write_many_rows(tmp_path / "train.parquet", 200_000, 1000)
    size = sum(group.total_byte_size for group in map(read_footer(path).row_group, range(200)))
    monkeypatch.setattr(parquet_row_groups.tables, "budget", 8 * 2**20)
    processes = multiprocessing.get_context("fork")
    out = processes.Queue()
    reader = processes.Process(target=_memory_of_reading, args=(path, out))
    reader.start()
    grown = out.get(timeout=120)
    reader.join(30)
    assert size > 160 * 2**20
    assert grown < 60 * 2**20
