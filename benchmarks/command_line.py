"""Defines the options that all benchmarks share, and the command of benchmarks with a single table."""

import argparse
import importlib
import os
from pathlib import Path


def benchmark_parser(name: str, description: str | None, repeats: int) -> argparse.ArgumentParser:
    """Return the parser of `python -m benchmarks.NAME`, with `--repeats` and `--json`."""
    parser = argparse.ArgumentParser(
        prog=f"python -m benchmarks.{name}",
        description=description,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        # An abbreviation would change its meaning, or none, when an option is added.
        allow_abbrev=False,
    )
    parser.add_argument(
        "--repeats", type=count, default=repeats, metavar="N", help=f"turns of each variant (default: {repeats})"
    )
    parser.add_argument("--json", type=writable, metavar="FILE", help="also write all measurements to FILE")
    return parser


def count(text: str) -> int:
    """Parse an integer of 1 or more."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"expected a whole number of 1 or more, found {text!r}")
    return int(text)


def positive(text: str) -> float:
    """Parse a finite number above 0."""
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not 0 < number < float("inf"):
        raise argparse.ArgumentTypeError(f"expected a number above 0, found {text!r}")
    return number


def one_table(name: str, description: str | None, repeats: int, parts: str, arguments: list[str] | None) -> None:
    """Run a benchmark that prints a single table.

    Args:
        name: see `benchmark_parser`.
        description: see `benchmark_parser`.
        repeats: see `benchmark_parser`.
        parts: module with `measure(repeats)`, whose result has a name, and `table(result)`. It is imported after the
            options are parsed, so `--help` does not wait for torch.
        arguments: arguments of the command line.
    """
    options = benchmark_parser(name, description, repeats).parse_args(arguments)
    from benchmarks.environment import console, describe_environment, end_report

    module, out, environment = importlib.import_module(parts), console(), describe_environment(options.repeats)
    result = module.measure(options.repeats)
    out.print(module.table(result))
    end_report(out, environment, [result], options.json)


def writable(text: str) -> Path:
    """Parse the path of a file that can be written."""
    path = Path(text)
    folder = path.absolute().parent
    if not folder.is_dir():  # reported before minutes of measurement
        raise argparse.ArgumentTypeError(f"the folder {folder} does not exist")
    if path.is_dir():
        raise argparse.ArgumentTypeError(f"{path} is a folder; expected a file")
    # The folder is checked: `write_json` writes a file beside the target and renames it.
    if not os.access(folder, os.W_OK):
        raise argparse.ArgumentTypeError(f"nothing can be written into the folder {folder}")
    return path
