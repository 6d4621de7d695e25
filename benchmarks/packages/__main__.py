"""Measures SASRec of the installed packages RecBole and RecTools beside Lockstep's.

  learn      whether each learns with the compared settings
  train      targets and rows per CPU second, memory
  evaluate   users per CPU second, ranked against all items

Each package has its own environment, created at the first use: about 1.5 GB each from the package index, in .benchmarks
beside the code. All variants train on the same generated interactions with the same sizes, each with its own Trainer
and loader in a process with a single thread, and alternate. A package that cannot be installed is skipped.
"""

import sys
from pathlib import Path

from benchmarks.command_line import benchmark_parser, count


def main(arguments: list[str] | None = None) -> None:
    """Parse the command line, install missing packages, measure, and print a table for each part."""
    parser = benchmark_parser("packages", __doc__, repeats=3)
    parser.add_argument(
        "--only",
        action="append",
        default=[],
        metavar="PART",
        choices=("learn", "train", "evaluate"),
        help="this part alone; may be given several times",
    )
    parser.add_argument(
        "--package",
        action="append",
        default=[],
        metavar="NAME",
        choices=("recbole", "rectools"),
        help="this package alone, recbole or rectools",
    )
    parser.add_argument("--users", type=count, default=1024, metavar="N", help="of the interactions (default: 1024)")
    parser.add_argument("--environments", type=Path, metavar="FOLDER", help="where the packages are installed")
    parser.add_argument("--installed", action="store_true", help="install nothing; end if no package is installed")
    options = parser.parse_args(arguments)

    # Imported here, so that --help and wrong options do not wait for torch.
    from benchmarks.environment import console, describe_environment, end_report, goals_reached
    from benchmarks.packages.environments import ENVIRONMENTS, NotInstalled, python_of
    from benchmarks.packages.parts import PARTS, Started
    from benchmarks.packages.report import table
    from benchmarks.packages.variants import VARIANTS

    out, environment, results = console(), describe_environment(options.repeats), []
    environments = (options.environments or ENVIRONMENTS).absolute()
    started: Started = {}
    for variant in VARIANTS:
        if variant.package and options.package and variant.package not in options.package:
            continue
        if variant.package and options.installed and python_of(variant.package, environments) is None:
            print(f"skipped: {variant.package} is not installed in {environments}", file=sys.stderr)
            continue
        try:
            started[variant] = variant.command(environments)
        except NotInstalled as error:
            print(f"skipped: {error}", file=sys.stderr)
    peers = [variant for variant in started if variant.package]
    if not peers and options.installed:
        out.print("no package is installed; `python -m benchmarks packages` installs them", highlight=False)
        return
    if not peers:
        raise SystemExit("no package could be installed: there is nothing to compare with")

    compared: set[str] = set()
    failed: set[str] = set()
    for name in options.only or PARTS:
        result = PARTS[name](started, options.repeats, options.users)
        results.append(result)
        out.print(table(result))
        if result["goals"]:
            out.print(goals_reached(result["goals"]))
        for variant, reason in result["failed"].items():
            print(f"skipped in {name}: {variant}: {reason}", file=sys.stderr)
        failed |= set(result["failed"])
        compared |= {variant["name"] for variant in result["sides"]}
    end_report(out, environment, results, options.json)
    if not compared & {variant.name for variant in peers}:
        raise SystemExit("every package failed: see above")
    if "ours" in failed:
        raise SystemExit("ours failed: see above")


if __name__ == "__main__":
    main()
