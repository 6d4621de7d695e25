"""What the samples of the temporal family cost: made, as tokens in rows, and beside a step of the quickstart.

Synthesis is to cost at most 0.5 ms a sample, and 5 % of the quickstart's step with two loader processes. Everything has
one thread. Times are CPU time, but for the waiting, which holds on a quiet machine only.
"""

from benchmarks.command_line import benchmark_parser


def main(arguments: list[str] | None = None) -> None:
    """Parse the command line, measure, print the table."""
    options = benchmark_parser("temporal", __doc__, repeats=5).parse_args(arguments)

    # Imported only now, so that --help and wrong options need not wait for torch.
    from benchmarks.surroundings import closing_line, console, surroundings, write_json
    from benchmarks.temporal.samples import figures, table

    out, around = console(), surroundings(options.repeats)
    result = figures(options.repeats)
    out.print(table(result))
    out.print(closing_line(around), highlight=False)
    if options.json:
        write_json(options.json, [result], around)


if __name__ == "__main__":
    main()
