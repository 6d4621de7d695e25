"""How long it takes until `train.py --help` is there and until the first step of the recommender's quickstart is done.

Beside them `import torch`, which nothing here can make faster. Each start is a process of its own with one thread, and
the commands take turns. CPU time holds on a busy machine too, wall time only on a quiet one.
"""

from benchmarks.command_line import one_table


def main(arguments: list[str] | None = None) -> None:
    """Parse the command line, measure, print the table."""
    one_table("start_up", __doc__, 5, "benchmarks.start_up.commands", arguments)


if __name__ == "__main__":
    main()
