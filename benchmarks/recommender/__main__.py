"""Measures the recommender beside plain implementations of what public codes do.

  attention-50, attention-200   time-interval attention beside the naive form with [B, L, L, C] tensors
  attention-200-no-dropout      the same without dropout
  tisasrec-50, tisasrec-200     complete training steps of TiSASRec with either attention
  sasrec, sasrec-negative       training of SASRec with its loader beside rows built in Python and a plain step
  sasrec-step                   its step alone beside padded batches and all logits
  sasrec-bf16                   its step in float32 and under autocast to bfloat16
  sampler, sampler-times        construction of batches beside a loop over rows in Python
  evaluation                    ranking of held-out items beside a loop over users in Python
  waiting-sasrec, waiting-tisasrec   the share of training that waits for the loader

Each variant runs in its own process with a single thread, and the variants alternate. Ratios of CPU seconds are
reliable on a busy machine, too; wall seconds only on an idle machine. The benchmark takes about 5 minutes and at most 5
GB of memory.

Separate, with --only time-to-quality --root FOLDER: the real training on MovieLens-1M until validation NDCG@10 reaches
--target; it may take an hour.
"""

from pathlib import Path
from typing import Any

from benchmarks.command_line import benchmark_parser, positive


def main(arguments: list[str] | None = None) -> None:
    """Parse the command line, measure, and print the table."""
    parser = benchmark_parser("recommender", __doc__, repeats=5)
    parser.add_argument(
        "--only", action="append", default=[], metavar="NAME", help="this comparison alone; may be given several times"
    )
    parser.add_argument("--root", type=Path, metavar="FOLDER", help="of MovieLens-1M, for time-to-quality")
    parser.add_argument("--target", type=positive, default=0.17, help="val/ndcg@10 of time-to-quality (default: 0.17)")
    options = parser.parse_args(arguments)
    if "time-to-quality" in options.only:
        if options.only != ["time-to-quality"] or options.root is None:
            parser.error("time-to-quality is measured alone, and from --root, a folder with the files of MovieLens-1M")
        _time_to_quality(options.root, options.target, options.json)
        return

    # Imported here, so that --help and wrong options do not wait for torch.
    from benchmarks.environment import console, describe_environment, write_json
    from benchmarks.recommender.comparisons import COMPARISONS
    from benchmarks.recommender.measure import take_turns
    from benchmarks.recommender.report import summary, table

    names = [comparison.name for comparison in COMPARISONS]
    unknown = set(options.only) - set(names)
    if unknown:
        raise SystemExit(f"--only: no comparison {', '.join(sorted(unknown))}; there are {', '.join(names)}")

    out, environment, results = console(), describe_environment(options.repeats), []
    chosen = [comparison for comparison in COMPARISONS if comparison.name in (options.only or names)]
    for number, comparison in enumerate(chosen, 1):
        out.print(f"[{number}/{len(chosen)}] {comparison.title}", markup=False, highlight=False)
        results.append(summary(comparison, take_turns(comparison.variants, options.repeats)))
    out.print(table(results, environment))
    if options.json:
        write_json(options.json, results, environment)


def _time_to_quality(root: Path, target: float, json: Path | None) -> None:
    from benchmarks.environment import console, describe_environment, end_report
    from benchmarks.recommender import time_to_quality

    out, environment = console(), describe_environment(repeats=1)
    try:
        found: dict[str, Any] = time_to_quality.measure(root, target)
    except time_to_quality.Missed as missed:
        raise SystemExit(str(missed)) from None
    out.print(time_to_quality.table(found))
    end_report(out, environment, [found], json)


if __name__ == "__main__":
    main()
