"""Measures how the recommender's cost grows with events of a history, items, users and rows to convert.

  length      a training step of SASRec and TiSASRec by the length of the histories, 50 to 1,000 events
  items       a training step by the number of items, 3,000 to 10,000,000: sampled softmax and scores of all items
  ranking     ranks among all items and the best 10, by the number of items, 30,000 to 10,000,000 (3 GB of memory)
  users       start-up until the first batch, training and evaluation by the number of users, 6,000 to 1,000,000
  conversion  conversion of a Parquet file of so many interactions into a store

Each size runs in its own process with a single thread, and the sizes alternate. CPU time is reliable on a busy machine.
"""

from benchmarks.command_line import benchmark_parser, count

NAMES = ("length", "items", "ranking", "users", "conversion")


def main(arguments: list[str] | None = None) -> None:
    """Parse the command line, measure, and print the tables."""
    parser = benchmark_parser("growth", __doc__, repeats=3)
    parser.add_argument("--only", action="append", choices=NAMES, help="this part alone; may be given several times")
    parser.add_argument(
        "--rows",
        type=count,
        nargs="+",
        default=[1_000_000, 5_000_000, 25_000_000],
        metavar="N",
        help="interactions to convert (default: 1, 5 and 25 million)",
    )
    options = parser.parse_args(arguments)
    if min(options.rows) < 1000:
        parser.error("--rows must be at least 1000")

    # Imported here, so that --help and wrong options do not wait for torch.
    from benchmarks.environment import console, describe_environment, end_report
    from benchmarks.growth import sizes

    out, environment, results = console(), describe_environment(options.repeats), []
    for name in options.only or NAMES:
        out.print(f"measuring {name} ...", highlight=False)
        results.append(sizes.measure(name, options.repeats, options.rows))
        out.print(sizes.table(results[-1]))
    end_report(out, environment, results, options.json)


if __name__ == "__main__":
    main()
