"""Figures beside those of peers, taken in turns in one run. `python -m benchmarks NAME --help` says what each has."""

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
    """`python -m benchmarks NAME` is `python -m benchmarks.NAME`."""

    about: str
    minutes: int  # about, on two cores
    options: tuple[str, ...] = ()  # with which it takes so long in `all`


BENCHMARKS = {
    "start_up": Benchmark("seconds until --help and until the first step, beside `import torch`; memory", 4),
    "recommender": Benchmark("SASRec, TiSASRec, sampling and evaluation beside plain implementations", 7),
    "growth": Benchmark("how the recommender's cost grows with lengths, items, users and rows to convert", 8,
                        ("--rows", "1000000", "5000000")),
    "engine": Benchmark("what the guards cost, what a second process brings, how long a checkpoint stalls", 9,
                        ("--only", "share", "--only", "scaling", "--repeats", "3")),
    "network": Benchmark("two machines that train together, by bandwidth and delay; what follows for GPUs", 5,
                         ("--repeats", "3")),
    "temporal": Benchmark("what a sample of the temporal family costs", 2),
    "vision_language": Benchmark("tokens a second packed and not, beside Hugging Face's Trainer and Accelerate", 8,
                                 ("--only", "packing", "--only", "trainers", "--repeats", "3")),
    "document_qa": Benchmark("ingestion and retrieval of documents", 6, ("--pages", "1000")),
    "gpu": Benchmark("a GPU's tokens a second, MFU, share of its memory's speed, formats, compiling, launches", 8,
                     ("--optional",)),
    "packages": Benchmark("SASRec of RecBole and of RecTools, installed apart, beside ours", 7, ("--installed",)),
}  # fmt: skip


_INTERRUPTED = 130
"""The exit code after Ctrl-C, as shells have it."""


def main(arguments: list[str] | None = None) -> None:
    """Hands over to one benchmark, to all that take a few minutes, or says which there are."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__, allow_abbrev=False)
    parser.add_argument("name", nargs="?", choices=[*BENCHMARKS, "all"], metavar="NAME",
                        help="a benchmark; its options follow. all: each, as long as the list says")  # fmt: skip
    parser.add_argument("--json", type=Path, metavar="FOLDER", help="of all: also write NAME.json into it")
    if not given:
        Console(width=None if sys.stdout.isatty() else 120).print(_list())
        return
    try:
        if given[0] in BENCHMARKS:
            _main_of(given[0])(given[1:])
            return
        options = parser.parse_args(given)
        if options.name != "all":
            parser.error(f"NAME is missing, or not first: all, or one of {', '.join(BENCHMARKS)}")
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
        kept = ["--json", str(folder / f"{name}.json")] if folder else []
        try:
            _main_of(name)([*benchmark.options, *kept])
        except SystemExit as ended:
            if ended.code == _INTERRUPTED:
                raise
            if isinstance(ended.code, str):
                print(ended.code, file=sys.stderr)
            if ended.code:
                failed.append(name)
        except Exception as error:  # the others can be measured all the same
            traceback.print_exc()
            failed.append(f"{name} ({type(error).__name__}: {str(error).partition(chr(10))[0]})")
    if failed:
        sys.exit(f"not measured, or not all of it: {', '.join(failed)}; why stands above")


def _main_of(name: str) -> Callable[[list[str]], None]:
    module = importlib.import_module(f"benchmarks.{name}")
    if hasattr(module, "__path__"):  # a package; gpu.py is one file, which is also started as such
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
