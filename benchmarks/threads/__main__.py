"""Measures samples per second of CPU trainings by their number of threads, on idle cores and beside a busy process.

  before      one thread per core, with the spin of the OpenMP library
  one thread  OMP_NUM_THREADS=1
  default     train.py without settings: a bounded spin, and --threads auto, which chooses by timing

Each value is a separate training of digits, the recommender's quickstart or the temporal quickstart; the variants
alternate. Wall time is measured, so the machine must be idle otherwise.
"""

from benchmarks.command_line import benchmark_parser, positive

NAMES = ("digits", "recommender", "temporal")


def main(arguments: list[str] | None = None) -> None:
    """Parse the command line, measure, and print the table."""
    parser = benchmark_parser("threads", __doc__, repeats=3)
    parser.add_argument(
        "--only", action="append", choices=NAMES, help="this training alone; may be given several times"
    )
    parser.add_argument("--seconds", type=positive, default=5.0, help="of each training that are measured (default: 5)")
    options = parser.parse_args(arguments)

    # Imported here, so that --help and wrong options do not wait for torch.
    from benchmarks.environment import console, describe_environment, end_report
    from benchmarks.threads import trainings

    out, environment = console(), describe_environment(options.repeats) | {"threads": "by variant"}
    result = trainings.measure(options.repeats, options.only or NAMES, options.seconds)
    out.print(trainings.table(result))
    end_report(out, environment, [result], options.json)


if __name__ == "__main__":
    main()
