"""Feeds mutated inputs to the readers of user input and counts the outcomes.

A reader has to return what an independent plain reference returns, or refuse the input with one message of at most
three lines that names the file and, where there are lines, the line. An input that fails is written to
.fuzz/READER/NAME. Ends with 1 when an input failed.
"""

import argparse
import sys
from pathlib import Path

from tests.fuzz.campaign import header, replay, run
from tests.fuzz.outcome import GOOD
from tests.fuzz.readers import MODULES

_SHOWN = 400
"""Characters of a failure; `--replay` prints all of it."""


def main(arguments: list[str] | None = None) -> int:
    """Return the exit code."""
    options = _parse(arguments)
    unknown = sorted({*options.reader} - {*MODULES})
    if unknown:
        raise SystemExit(f"--reader {unknown[0]}: expected some of {', '.join(MODULES)}")
    if options.replay is not None:
        if len(options.reader) != 1:
            raise SystemExit("--replay FILE needs one --reader NAME")
        outcome = replay(options.reader[0], options.replay)
        print(f"{outcome.kind.value}: {outcome.detail} ({outcome.seconds:.2f} s, {outcome.megabytes:.0f} MB)")
        return outcome.kind not in GOOD
    print(header(), flush=True)
    tallies = []
    for name in options.reader or MODULES:
        tallies.append(run(name, options.inputs, options.seed))
        print(tallies[-1].row(), flush=True)
    failures = [(tally.name, path, outcome) for tally in tallies for path, outcome in tally.failures.values()]
    for name, path, outcome in failures:
        detail = " ".join(outcome.detail.split())[:_SHOWN]
        print(f"\n{outcome.kind.value}: {detail}\n    python -m tests.fuzz --reader {name} --replay {path}")
    return bool(failures)


def _parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--reader", nargs="+", action="extend", default=[], metavar="NAME", help=", ".join(MODULES))
    parser.add_argument("--inputs", type=int, default=1000, metavar="N", help="inputs of each reader (default: 1000)")
    parser.add_argument("--seed", type=int, default=1, help="the same inputs for the same seed (default: 1)")
    parser.add_argument("--replay", type=Path, metavar="FILE", help="read one kept input and print its outcome")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
