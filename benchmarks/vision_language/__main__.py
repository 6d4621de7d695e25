"""Measures the training of the vision-language family.

  packing   one chat per row, groups of similar length, and packed rows, on a mixture of lengths: packed at least 1.8
            times the tokens per second, with equal loss; a single thread
  trainers  the same model and samples in Hugging Face's Trainer, in Accelerate's loop and in a bare loop: at least as
            many tokens per second as the Trainer with one chat per row, 1.8 times as many packed; and the cost and
            saving of activation checkpointing
  step      shares of a step's time: data, forward, backward, optimizer
  parquet   opening and reading a Parquet file of a million chats (benchmarks/vision_language/parquet.py); its results
            are written to their own file, beside that of --json

Each variant runs in its own process with a single thread. The variants of packing and of trainers alternate; step and
parquet measure one variant after the other. Among the trainers, Lockstep is `train.py fit` with all guards, elsewhere
its module in Lightning's Trainer. Ratios of CPU time are reliable on a busy machine, too; wall time only on an idle
machine. On a GPU: benchmarks/gpu.py.
"""

from benchmarks.command_line import benchmark_parser

NAMES = ("packing", "trainers", "step", "parquet")


def main(arguments: list[str] | None = None) -> None:
    """Parse the command line, measure, and print the tables."""
    parser = benchmark_parser("vision_language", __doc__, repeats=5)
    parser.add_argument("--only", action="append", choices=NAMES, help="this part alone; may be given several times")
    options = parser.parse_args(arguments)

    # Imported here, so that --help and wrong options do not wait for torch.
    from benchmarks.environment import console, describe_environment, end_report
    from benchmarks.vision_language import packing, parquet, step_parts, trainers

    out, environment, results = console(), describe_environment(options.repeats), []
    for name in options.only or NAMES:
        out.print(f"measuring {name} ...", highlight=False)
        parts = {"packing": packing, "trainers": trainers, "step": step_parts}
        if name in parts:
            results.append(parts[name].measure(options.repeats))
            out.print(parts[name].table(results[-1]))
        else:
            beside = ["--json", str(options.json.with_suffix(".parquet.json"))] if options.json else []
            parquet.main(["--repeats", str(options.repeats), *beside])
    end_report(out, environment, results, options.json)


if __name__ == "__main__":
    main()
