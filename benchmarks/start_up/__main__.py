"""How long it takes until `train.py --help` is there and until the first step of the recommender's quickstart is done.

Beside them `import torch`, which nothing here can make faster. Each start is a process of its own with one thread, and
the commands take turns. CPU time holds on a busy machine too, wall time only on a quiet one.
"""

from benchmarks.command_line import benchmark_parser


def main(arguments: list[str] | None = None) -> None:
    """Parse the command line, measure, print the table."""
    options = benchmark_parser("start_up", __doc__, repeats=5).parse_args(arguments)

    from benchmarks.start_up.commands import figures, table
    from benchmarks.surroundings import closing_line, console, surroundings, write_json

    out, around = console(), surroundings(options.repeats)
    result = figures(options.repeats)
    out.print(table(result))
    out.print(closing_line(around), highlight=False)
    if options.json:
        write_json(options.json, [result], around)


if __name__ == "__main__":
    main()
