"""Measures the time until `train.py --help` prints and until the first step of the recommender's quickstart is done.

`import torch` is measured beside them as the lower bound. Each start is a process with a single thread, and the
commands alternate. CPU time is reliable on a busy machine, too; wall time only on an idle machine.
"""

from benchmarks.command_line import one_table


def main(arguments: list[str] | None = None) -> None:
    """Parse the command line, measure, and print the table."""
    one_table("start_up", __doc__, 5, "benchmarks.start_up.commands", arguments)


if __name__ == "__main__":
    main()
