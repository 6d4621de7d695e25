"""The options that all benchmarks have."""

import argparse
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
        "--repeats", type=_positive, default=repeats, metavar="N", help=f"turns of each side (default: {repeats})"
    )
    parser.add_argument("--json", type=_writable, metavar="FILE", help="also write all figures to FILE")
    return parser


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"expected 1 or more, got {number}")
    return number


def _writable(text: str) -> Path:
    folder = Path(text).absolute().parent
    if not folder.is_dir():  # known before minutes of measuring
        raise argparse.ArgumentTypeError(f"the folder {folder} does not exist")
    return Path(text)
