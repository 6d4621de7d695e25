"""Plants one bug after another in a copy of the working tree and reports which test of the fast tier finds it.

Ends with 1 when a bug survives.
"""

import argparse
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

from tests.planted_bugs import BUGS
from tests.planted_bugs.bug import Bug
from tests.planted_bugs.planting import Copy


class Result(NamedTuple):
    """Outcome of a planted bug."""

    bug: Bug
    found: str | None
    seconds: float


def main(arguments: list[str] | None = None) -> int:
    """Returns the exit code."""
    options = _parse(arguments)
    chosen = [
        bug for number, bug in enumerate(BUGS, 1) if not options.only or {str(number), bug.name} & {*options.only}
    ]
    if not chosen:
        raise SystemExit(
            f"--only {' '.join(options.only)}: expected a number from 1 to {len(BUGS)}, or a name; see --list"
        )
    if options.list:
        for number, bug in enumerate(BUGS, 1):
            print(f"{number:2} {bug.name:34} {bug.file}: {bug.sentence}")
        return 0
    results = []
    with tempfile.TemporaryDirectory(prefix="planted-bugs-") as folder:
        copy = Copy(Path(folder))
        for bug in chosen:
            copy.plant(bug)
            result = _looked_for(copy, bug, options)
            results.append(result)
            print(_row(result), flush=True)
    survivors = [result.bug.name for result in results if result.found is None]
    print(f"\nfound {len(results) - len(survivors)} of {len(results)}; survivors: {', '.join(survivors) or 'none'}")
    return 1 if survivors else 0


def _parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.planted_bugs", description=__doc__)
    parser.add_argument("--only", metavar="N", action="append", default=[], help="this bug, by its number or name")
    parser.add_argument("--list", action="store_true", help="print the bugs and plant none")
    parser.add_argument(
        "--all-tests", action="store_true", help="run the whole fast tier for a bug that its likely tests do not find"
    )
    parser.add_argument("--timeout", type=float, default=600, help="seconds for a file of likely tests (default: 600)")
    parser.add_argument(
        "--tier-timeout", type=float, default=3600, help="seconds for the whole fast tier (default: 3600)"
    )
    parser.add_argument("--numprocesses", type=int, default=0, help="workers of pytest in the whole fast tier")
    return parser.parse_args(arguments)


def _looked_for(copy: Copy, bug: Bug, given: argparse.Namespace) -> Result:
    """Runs the likely tests, then perhaps all. What fails has to pass without the bug.

    Raises:
        RuntimeError: it fails without the bug, too, so it does not find the bug.
    """
    seconds = 0.0
    rest: list[tuple[tuple[str, ...], float, int]] = [((test,), given.timeout, 0) for test in bug.tests]
    if given.all_tests:
        rest.append(((), given.tier_timeout, given.numprocesses))
    for tests, timeout, processes in rest:  # file by file, as pytest would begin with the longest
        outcome = copy.test(tests, timeout, processes)
        seconds += outcome.seconds
        if outcome.found is not None:
            break
    copy.remove(bug)
    if outcome.found is None:
        return Result(bug, None, seconds)
    found, failed = outcome.found, outcome.found
    if "::" in found:
        tests, processes = (found,), 0
    else:  # it was killed, or took too long, and could not name the case
        failed = f"{' '.join(tests) or 'the fast tier'}: {found}"
    without = copy.test(tests, timeout, processes)
    if without.found is not None:
        raise RuntimeError(f"{failed} also without {bug.name}:\n{without.output[-3000:]}")
    return Result(bug, failed, seconds)


def _row(result: Result) -> str:
    number = BUGS.index(result.bug) + 1
    return f"{number:2} {result.bug.name:34} {result.seconds:6.1f} s  {result.found or 'SURVIVES'}"


if __name__ == "__main__":
    sys.exit(main())
