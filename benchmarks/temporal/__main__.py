"""What the samples of the temporal family cost: made, as tokens in rows, and beside a step of the quickstart.

Synthesis is to cost at most 0.5 ms a sample, and 5 % of the quickstart's step with two loader processes. Everything has
one thread. Times are CPU time, but for the waiting, which holds on a quiet machine only.
"""

from benchmarks.command_line import one_table


def main(arguments: list[str] | None = None) -> None:
    """Parse the command line, measure, print the table."""
    one_table("temporal", __doc__, 5, "benchmarks.temporal.samples", arguments)


if __name__ == "__main__":
    main()
