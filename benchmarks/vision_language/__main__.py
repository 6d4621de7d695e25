"""How fast the vision-language family trains.

  packing   one chat a row, groups of similar length, packed rows, on a mixture of lengths: at least 1.8 times the
            tokens a second when packed, with equal loss; one thread
  trainers  the same model and samples in Hugging Face's Trainer, in Accelerate's loop and in a bare one: at least as
            many tokens a second as the Trainer with a chat a row, 1.8 times as many packed; and what activation
            checkpointing costs and saves
  step      where a step's time goes: data, forward, backward, optimizer
  parquet   opening and reading a Parquet file of a million chats (benchmarks/vision_language/parquet.py); its figures
            go to a file of their own, beside that of --json

Each side runs in a process of its own with one thread. The sides of packing and of trainers take turns; step and
parquet measure one after the other. Lockstep among the trainers is `train.py fit` with all its guards, elsewhere its
module in Lightning's Trainer. Ratios of CPU time hold on a busy machine too, wall time only on a quiet one. On a GPU:
benchmarks/gpu.py.
"""

from benchmarks.command_line import benchmark_parser

NAMES = ("packing", "trainers", "step", "parquet")


def main(arguments: list[str] | None = None) -> None:
    """Parse the command line, measure, print the tables."""
    parser = benchmark_parser("vision_language", __doc__, repeats=5)
    parser.add_argument("--only", action="append", choices=NAMES, help="this part alone; may be given several times")
    options = parser.parse_args(arguments)

    # Imported only now, so that --help and wrong options need not wait for torch.
    from benchmarks.surroundings import closing_line, console, surroundings, write_json
    from benchmarks.vision_language import packing, parquet, step_parts, trainers

    out, around, results = console(), surroundings(options.repeats), []
    for name in options.only or NAMES:
        out.print(f"measuring {name} ...", highlight=False)
        parts = {"packing": packing, "trainers": trainers, "step": step_parts}
        if name in parts:
            results.append(parts[name].figures(options.repeats))
            out.print(parts[name].table(results[-1]))
        else:
            beside = ["--json", str(options.json.with_suffix(".parquet.json"))] if options.json else []
            parquet.main(["--repeats", str(options.repeats), *beside])
    out.print(closing_line(around), highlight=False)
    if options.json:
        write_json(options.json, results, around)


if __name__ == "__main__":
    main()
