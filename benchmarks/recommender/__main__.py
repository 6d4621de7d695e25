"""Measure the recommender against plain implementations of what the public codes do.

  attention-50, attention-200   time-interval attention against the naive form with [B, L, L, C] tensors
  attention-200-no-dropout      the same without dropout
  tisasrec-50, tisasrec-200     whole training steps of TiSASRec with either attention
  sasrec                        training of SASRec against padded batches and all logits
  sampler, sampler-times        putting batches together against a row at a time in Python
  evaluation                    ranking held-out items against a user at a time in Python
  waiting-sasrec, waiting-tisasrec   the share of training that waits for the loader

Each side runs in a process of its own with one thread, and the sides take turns. The ratios of CPU seconds hold on a
busy machine too; wall seconds only on a quiet one. All of it takes about 5 minutes and at most 5 GB of memory.
"""

import argparse
from pathlib import Path


def main(arguments: list[str] | None = None) -> None:
    """Parse the command line, measure, print the table."""
    options = _parser().parse_args(arguments)

    # Imported only now, so that --help and wrong options need not wait for torch.
    from benchmarks.recommender.comparisons import COMPARISONS
    from benchmarks.recommender.measure import take_turns
    from benchmarks.recommender.report import summary, table
    from benchmarks.surroundings import console, surroundings, write_json

    names = [comparison.name for comparison in COMPARISONS]
    unknown = set(options.only) - set(names)
    if unknown:
        raise SystemExit(f"--only: no comparison {', '.join(sorted(unknown))}; there are {', '.join(names)}")
    if options.json and not options.json.absolute().parent.is_dir():
        raise SystemExit(f"--json: the folder {options.json.absolute().parent} does not exist")

    out, around, results = console(), surroundings(options.repeats), []
    chosen = [comparison for comparison in COMPARISONS if comparison.name in (options.only or names)]
    for number, comparison in enumerate(chosen, 1):
        out.print(f"[{number}/{len(chosen)}] {comparison.title}", markup=False, highlight=False)
        results.append(summary(comparison, take_turns(comparison.sides, options.repeats)))
    out.print(table(results, around))
    if options.json:
        write_json(options.json, results, around)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.recommender",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--repeats", type=_positive, default=5, metavar="N", help="turns of each side (default: 5)")
    parser.add_argument(
        "--only", action="append", default=[], metavar="NAME", help="this comparison alone; may be given several times"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write all figures to FILE")
    return parser


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"expected 1 or more, got {number}")
    return number


if __name__ == "__main__":
    main()
