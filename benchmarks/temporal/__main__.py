"""Measures samples of the temporal family: their synthesis, their tokens in rows, and a step of the quickstart.

Synthesis may cost at most 0.5 ms per sample, and 5 % of the quickstart's step with two loader processes. Everything has
a single thread. Times are CPU times, except waiting, which is reliable on an idle machine only.
"""

from benchmarks.command_line import one_table


def main(arguments: list[str] | None = None) -> None:
    """Parse the command line, measure, and print the table."""
    one_table("temporal", __doc__, 5, "benchmarks.temporal.samples", arguments)


if __name__ == "__main__":
    main()
