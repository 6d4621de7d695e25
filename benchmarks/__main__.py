"""Measures Lockstep and its peers in alternating turns. `python -m benchmarks NAME --help` describes a benchmark."""

import argparse
import importlib
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from rich import box
from rich.console import Console
from rich.table import Table


class Benchmark(NamedTuple):
    """Describes the benchmark that `python -m benchmarks NAME` runs."""

    about: str
    minutes: int  # estimated, on two cores
    options: tuple[str, ...] = ()  # options in `all`, for which `minutes` is estimated


BENCHMARKS = {
    "start_up": Benchmark("seconds until --help and until the first step, beside `import torch`; memory", 4),
    "threads": Benchmark("CPU training by number of threads, on idle cores and beside a busy process", 12),
    "recommender": Benchmark("SASRec, TiSASRec, sampling and evaluation beside plain implementations", 7),
    "growth": Benchmark(
        "cost of the recommender by lengths, items, users and rows to convert", 10, ("--rows", "1000000", "5000000")
    ),
    "engine": Benchmark(
        "cost of the guards, gain of a second process, time that a checkpoint blocks training",
        9,
        ("--only", "share", "--only", "scaling", "--repeats", "3"),
    ),
    "network": Benchmark("training on two machines by bandwidth and delay; prediction for GPUs", 5, ("--repeats", "3")),
    "temporal": Benchmark("cost of a sample of the temporal family", 2),
    "vision_language": Benchmark(
        "packing; tokens per second beside Hugging Face's Trainer and Accelerate",
        8,
        ("--only", "packing", "--only", "trainers", "--repeats", "3"),
    ),
    "document_qa": Benchmark("ingestion and retrieval of documents", 6, ("--pages", "1000")),
    "qlora": Benchmark("LoRA beside weights in bf16, NF4 and int8: tokens per second, memory, its prediction", 8),
    "memory": Benchmark("peak memory of a language model's training step in six settings, beside its prediction", 6),
    "gpu": Benchmark(
        "tokens per second, MFU, memory bandwidth, number formats, torch.compile, launches on a GPU", 8, ("--optional",)
    ),
    "images": Benchmark("images that a core decodes, samples that loaders of 0, 1, 2, ... workers deliver", 3),
    "packages": Benchmark("SASRec of RecBole and of RecTools beside ours", 7, ("--installed",)),
}


_INTERRUPTED = 130
"""Exit code after Ctrl-C, as in shells."""


def main(arguments: list[str] | None = None) -> None:
    """Run a benchmark, run all of them, or list them."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__, allow_abbrev=False)
    parser.add_argument(
        "name",
        nargs="?",
        choices=[*BENCHMARKS, "all"],
        metavar="NAME",
        help="a benchmark; its options follow. all: every benchmark",
    )
    parser.add_argument("--json", type=Path, metavar="FOLDER", help="of all: also write NAME.json into it")
    if not words:
        Console(width=None if sys.stdout.isatty() else 120).print(_list())
        return
    try:
        if words[0] in BENCHMARKS:
            _main_of(words[0])(words[1:])
            return
        options = parser.parse_args(words)
        if options.name != "all":
            parser.error(f"NAME must be the first argument: all, {', '.join(BENCHMARKS)}")
        _all(options.json)
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        sys.exit(_INTERRUPTED)


def _all(folder: Path | None) -> None:
    if folder:
        folder.mkdir(parents=True, exist_ok=True)
    failed = []
    for name, benchmark in BENCHMARKS.items():
        print(f"\npython -m benchmarks {' '.join([name, *benchmark.options])}", flush=True)
        json_options = ["--json", str(folder / f"{name}.json")] if folder else []
        try:
            _main_of(name)([*benchmark.options, *json_options])
        except SystemExit as ended:
            # Ctrl-C ends `all`, and not only the benchmark that is running.
            if ended.code == _INTERRUPTED:
                raise
            if isinstance(ended.code, str):
                print(ended.code, file=sys.stderr)
            if ended.code:
                failed.append(name)
        except Exception as error:  # the other benchmarks still run
            traceback.print_exc()
            failed.append(f"{name} ({type(error).__name__}: {str(error).partition(chr(10))[0]})")
    if failed:
        sys.exit(f"failed: {', '.join(failed)}; see the errors above")


def _main_of(name: str) -> Callable[[list[str]], None]:
    module = importlib.import_module(f"benchmarks.{name}")
    if hasattr(module, "__path__"):  # gpu.py is not a package, because it is also started as a file
        module = importlib.import_module(f"benchmarks.{name}.__main__")
    main: Callable[[list[str]], None] = module.main
    return main


def _list() -> Table:
    sheet = Table(box=box.SIMPLE_HEAD, caption="python -m benchmarks NAME [--help]", caption_justify="left")
    sheet.add_column("NAME", no_wrap=True)
    sheet.add_column("what is measured")
    sheet.add_column("minutes", justify="right")
    sheet.add_column("with", no_wrap=True)
    for name, benchmark in BENCHMARKS.items():
        sheet.add_row(name, benchmark.about, str(benchmark.minutes), " ".join(benchmark.options))
    return sheet


if __name__ == "__main__":
    main()
