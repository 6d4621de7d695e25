"""The options that all benchmarks have, and the way of those with one table."""

import argparse
import importlib
import os
from pathlib import Path


def benchmark_parser(name: str, description: str | None, repeats: int) -> argparse.ArgumentParser:
    """Of `python -m benchmarks.NAME`: `--repeats`, of that default, and `--json`."""
    parser = argparse.ArgumentParser(
        prog=f"python -m benchmarks.{name}",
        description=description,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument(
        "--repeats", type=count, default=repeats, metavar="N", help=f"turns of each side (default: {repeats})"
    )
    parser.add_argument("--json", type=_writable, metavar="FILE", help="also write all figures to FILE")
    return parser


def count(text: str) -> int:
    """An option's whole number of 1 or more."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"expected a whole number of 1 or more, found {text!r}")
    return int(text)


def positive(text: str) -> float:
    """An option's finite number above 0."""
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not 0 < number < float("inf"):
        raise argparse.ArgumentTypeError(f"expected a number above 0, found {text!r}")
    return number


def one_table(name: str, description: str | None, repeats: int, parts: str, arguments: list[str] | None) -> None:
    """A whole benchmark of one table.

    Args:
        name, description, repeats: see ``benchmark_parser``.
        parts: a module with `figures(repeats)`, whose result has a name, and `table(result)`; imported when the options
            are known to be right, so that --help need not wait for torch.
        arguments: of the command line.
    """
    options = benchmark_parser(name, description, repeats).parse_args(arguments)
    from benchmarks.surroundings import closing_line, console, surroundings, write_json

    module, out, around = importlib.import_module(parts), console(), surroundings(options.repeats)
    result = module.figures(options.repeats)
    out.print(module.table(result))
    out.print(closing_line(around), highlight=False)
    if options.json:
        write_json(options.json, [result], around)


def _writable(text: str) -> Path:
    path = Path(text)
    folder = path.absolute().parent
    if not folder.is_dir():  # known before minutes of measuring
        raise argparse.ArgumentTypeError(f"the folder {folder} does not exist")
    if path.is_dir():
        raise argparse.ArgumentTypeError(f"{path} is a folder; expected a file")
    if not os.access(folder, os.W_OK):
        raise argparse.ArgumentTypeError(f"nothing can be written into the folder {folder}")
    return path
