"""Prints test metrics of runs for the users of MovieLens-1M whose time stamps are official.

For an ML-1M file in which rating 0 marks a filled-in time stamp. A user's held-out item is read from the run's
ranks-test.npz, which `train.py test` writes, and joined with the last event of the user in the file.
"""

import argparse
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from benchmarks.recommender.official_stamps.user_stamps import UserStamps, read_user_stamps, stamp_groups
from engine.health.exit_codes import ExitCode
from lightning_modules.recommender.item_ranks.rank_file import rank_file, read_ranks
from lightning_modules.recommender.item_ranks.rank_metrics import gains, metric_intervals

_PROGRAM = "python -m benchmarks.recommender.official_stamps"
_CUTOFF = 10
_METRICS = (f"ndcg@{_CUTOFF}", f"hr@{_CUTOFF}")


def main(arguments: Sequence[str] | None = None) -> None:
    """Parse the command line and print a table for each run.

    Raises:
        SystemExit: with code 2 and a message if the ratings or a run's ranks cannot be read, or do not belong together.
    """
    parser = argparse.ArgumentParser(
        prog=_PROGRAM, description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    parser.add_argument("--ratings", type=Path, required=True, metavar="FILE", help="ratings.dat of the runs")
    parser.add_argument("runs", type=Path, nargs="+", metavar="RUN", help="directory of a run, such as runs/NAME")
    options = parser.parse_args(arguments)
    try:
        try:
            stamps = read_user_stamps(options.ratings)
        except ValueError as error:
            raise ValueError(f"{options.ratings}: expected the ratings.dat of the runs' data.root; {error}") from error
        for folder in options.runs:
            print("\n".join(run_lines(folder, stamps)), end="\n\n")
    except (OSError, ValueError) as error:
        print(f"{_PROGRAM}: {error}", file=sys.stderr)
        raise SystemExit(ExitCode.USER_ERROR) from error


def run_lines(folder: Path, stamps: Mapping[str, UserStamps]) -> list[str]:
    """Return the table of a run as rows of Markdown, whose titles are the metric names of the run with its protocol.

    Raises:
        ValueError: the ranks are corrupt, or of other users or items than the ratings.
        OSError: the ranks cannot be read.
    """
    path = rank_file(folder, "test")
    if not path.is_file():
        raise FileNotFoundError(f"{path}: not found; expected the ranks of a test, which `train.py test` writes")
    ranks = read_ranks(path)
    try:
        groups = stamp_groups(ranks, stamps)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error
    titles = [f"{ranks.header.prefix}{name}, 95 % interval" for name in _METRICS]
    lines = [f"| {' | '.join((folder.name, 'users', *titles))} |", "|---|" + "---|" * (len(titles) + 1)]
    for group in groups:
        cells = [group.name, f"{len(group.rows):,}"]
        if len(group.rows):
            intervals = metric_intervals(ranks.rank[group.rows], gains((_CUTOFF,)))
            cells += ["{:.4f} [{:.4f}, {:.4f}]".format(*intervals[name]) for name in _METRICS]
        else:
            cells += [""] * len(titles)
        lines.append(f"| {' | '.join(cells)} |")
    return lines


if __name__ == "__main__":
    main()
