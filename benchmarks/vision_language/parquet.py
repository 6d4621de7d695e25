"""Measures the cost of a Parquet file of a million chats: time to open it, memory, row groups, samples per second.

Every measurement is in a new process with a single thread. A file whose row groups are too large to be read in parts is
rewritten first, as `train.py prepare` does.
"""

import multiprocessing
import tempfile
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.command_line import benchmark_parser, count
from benchmarks.memory_peak import peak
from benchmarks.variant_process import one_thread

_SAMPLES = 5000  # number of samples to read
_BATCH = 256
_GROUP = 1000  # rows per row group, as the datasets library writes them
_LARGE_GROUP = 2**20  # as pyarrow and pandas write them


def main(arguments: list[str] | None = None) -> None:
    """Parse the command line, measure, and print the tables."""
    parser = benchmark_parser("vision_language.parquet", __doc__, repeats=3)
    parser.add_argument("--rows", type=count, default=1_000_000, metavar="N", help="of the file (default: %(default)s)")
    options = parser.parse_args(arguments)

    # Imported here, so that --help and wrong options do not wait.
    from benchmarks.environment import console, describe_environment, end_report
    from benchmarks.vision_language.many_rows import write_many_rows

    out, environment = console(), describe_environment(options.repeats)
    results = []
    with tempfile.TemporaryDirectory() as folder:
        for name, group in (("small row groups", _GROUP), ("written again", _LARGE_GROUP)):
            path = write_many_rows(Path(folder) / "train.parquet", options.rows, group)
            found = {"prepare": _alone(_prepare, path, folder)} if group == _LARGE_GROUP else {}
            for order in ("blocks", "random"):
                found[order] = [_alone(_read, path, folder, order) for _ in range(options.repeats)]
            found["groups"] = _alone(_groups_of_an_epoch, path, folder)
            results.append({"file": name, "rows": options.rows, "bytes": path.stat().st_size, **found})
            out.print(_table(results[-1]))
            path.unlink()
    end_report(out, environment, results, options.json)


def _alone(work: Any, *arguments: Any) -> Any:
    """Return the result of a function in a separate process."""
    with one_thread(), multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(work, arguments)


def _memory() -> tuple[int, int]:
    """Return the bytes of this process: resident memory (RSS), and its part that is not shared (USS)."""
    import psutil

    found = psutil.Process().memory_full_info()
    return found.rss, found.uss


def _prepare(path: Path, root: str) -> dict[str, float]:
    """Return the seconds and the additional peak memory in MiB of rewriting the file."""
    import pyarrow.parquet  # noqa: F401

    from datamodules.vision_language.files.parquet_chats import chat_columns
    from datamodules.vision_language.files.parquet_rows import prepare_rows

    before, begin = _memory()[0], time.perf_counter()
    prepare_rows(path, root, chat_columns)
    return {"seconds": time.perf_counter() - begin, "more_rss": (peak() - before) / 2**20}


def _read(path: Path, root: str, order: str) -> dict[str, float]:
    """Open the file and read samples."""
    import pyarrow.parquet  # noqa: F401  (what libraries take is not the file's)

    from datamodules.vision_language.files import parquet_row_groups
    from datamodules.vision_language.mixture import Mixture
    from datamodules.vision_language.source_config import SourceSettings

    before, begin = _memory(), time.perf_counter()
    mix = Mixture([SourceSettings(str(path))], root)
    opened, memory = time.perf_counter() - begin, _memory()
    indices = list(_indices(mix, order))
    # Only row groups that are read for samples are counted.
    parquet_row_groups.tables.misses = 0
    begin = time.perf_counter()
    for index in indices:
        mix.read(0, index)
    seconds, after = time.perf_counter() - begin, _memory()
    return {
        "open_seconds": opened,
        "open_rss": (memory[0] - before[0]) / 2**20,
        "open_uss": (memory[1] - before[1]) / 2**20,
        "read_rss": (after[0] - before[0]) / 2**20,
        "read_uss": (after[1] - before[1]) / 2**20,
        "samples_per_second": len(indices) / seconds,
        "row_groups": parquet_row_groups.tables.misses,
    }


def _indices(mix: Any, order: str) -> Iterator[int]:
    from engine.data.epoch_order import global_batches

    blocks = mix.blocks(0) if order == "blocks" else None
    batches = global_batches(len(mix), _BATCH, 0, 0, blocks)
    yield from (int(index) for batch in batches[: -(-_SAMPLES // _BATCH)] for index in batch)


def _groups_of_an_epoch(path: Path, root: str) -> dict[str, Any]:
    """Return {order: {processes: row groups that each process reads in an epoch}}, computed without reading."""
    import numpy as np

    from datamodules.vision_language.files.lru_cache import SizedLRUCache
    from datamodules.vision_language.files.parquet_row_groups import CACHE_BYTES
    from datamodules.vision_language.mixture import Mixture
    from datamodules.vision_language.source_config import SourceSettings
    from engine.data.samplers import PADDING_INDEX, TrainSampler

    mix = Mixture([SourceSettings(str(path))], root)
    blocks = mix.blocks(0)
    assert blocks is not None, "a mixture without row groups"
    found: dict[str, Any] = {"in the file": len(blocks.starts)}
    for order, tell in (("blocks", mix.blocks), ("random", lambda epoch: None)):
        found[order] = {}
        for processes in (1, 2, 4):
            read = []
            for process in range(processes):
                # The cache of the reader, filled with numbers of blocks of their true sizes: nothing is read.
                kept: SizedLRUCache[int] = SizedLRUCache(CACHE_BYTES, lambda block: int(blocks.sizes[block]))
                for draw in TrainSampler(len(mix), _BATCH, seed=0, rank=process, world_size=processes, blocks=tell):
                    indices = draw.indices[draw.indices != PADDING_INDEX]
                    for block in (np.searchsorted(blocks.starts, indices, side="right") - 1).tolist():
                        kept.get(block, partial(int, block))
                read.append(kept.misses)
            found[order][processes] = read
    return found


def _table(result: dict[str, Any]) -> Any:
    from rich.table import Table

    title = f"{result['file']}: {result['rows']:,} rows, {result['bytes'] / 1e9:.2f} GB"
    table = Table(title=title)
    for heading in ("measurement", "order of blocks", "random order"):
        table.add_column(heading, justify="left" if heading == "measurement" else "right")
    rows = (
        ("open, s", "open_seconds", "{:.3f}"),
        ("more memory when opened, MiB (RSS)", "open_rss", "{:.0f}"),
        (f"more memory after {_SAMPLES:,} samples, MiB (RSS)", "read_rss", "{:.0f}"),
        (f"more memory after {_SAMPLES:,} samples, MiB (USS)", "read_uss", "{:.0f}"),
        ("samples/s, not decoded", "samples_per_second", "{:,.0f}"),
        (f"row groups read for {_SAMPLES:,} samples", "row_groups", "{:.0f}"),
    )
    for label, name, form in rows:
        turns = [[one[name] for one in result[order]] for order in ("blocks", "random")]
        cells = [f"{form.format(median(turn))} ({form.format(min(turn))} - {form.format(max(turn))})" for turn in turns]
        table.add_row(label, *cells)
    groups = result["groups"]
    table.add_row("row groups in the file", *2 * (f"{groups['in the file']:,}",))
    for processes in groups["blocks"]:
        most = (f"{max(groups[order][processes]):,}" for order in ("blocks", "random"))
        table.add_row(f"read in an epoch by each of {processes}, at most", *most)
    if "prepare" in result:
        prepared = result["prepare"]
        table.add_row("writing again, s", f"{prepared['seconds']:.1f}", "")
        table.add_row("at most so much more memory meanwhile, MiB (RSS)", f"{prepared['more_rss']:.0f}", "")
    return table


if __name__ == "__main__":
    main()
