"""What the engine and its guards cost, and what a second process brings.

  step       a step of about 5 ms: a bare torch loop, plain Lightning, the engine, each guard apart; one process
  step-2     the same on two processes
  share      a step of about 20 ms: all guards on must cost at most 3 % of the engine's step; one process and two
  scaling    SASRec on one process and on two, beside a DDP loop by hand and Accelerate: at least 1.85 times the
             samples per second, on two idle cores
  checkpoint how long a checkpoint stops the training, by its size: Lightning's, ours, ours in the
             background; MB/s and memory

Each side runs in processes of its own with one thread each, and the sides take turns. CPU time is that of all processes
of a side; it holds on a busy machine too, wall time only on a quiet one.
"""

from benchmarks.command_line import benchmark_parser

NAMES = ("step", "step-2", "share", "scaling", "checkpoint")


def main(arguments: list[str] | None = None) -> None:
    """Parse the command line, measure, print the tables."""
    parser = benchmark_parser("engine", __doc__, repeats=7)
    parser.add_argument("--only", action="append", choices=NAMES, help="this part alone; may be given several times")
    options = parser.parse_args(arguments)

    # Imported only now, so that --help and wrong options need not wait for torch.
    from benchmarks.engine import checkpoint_stall, measurements, scaling
    from benchmarks.surroundings import closing_line, console, surroundings, write_json

    out, around, results = console(), surroundings(options.repeats), []
    for name in options.only or NAMES:
        out.print(f"measuring {name} ...", highlight=False)
        if name == "checkpoint":
            stalls = checkpoint_stall.rows(repeats=options.repeats)
            out.print(checkpoint_stall.table(stalls))
            results.append({"name": name, "stalls": [stall._asdict() for stall in stalls]})
            continue
        if name == "scaling":
            results.append(scaling.scaling(options.repeats))
            out.print(scaling.table(results[-1]))
            continue
        result = getattr(measurements, name.replace("-", "_"))(options.repeats)
        out.print(measurements.table(result))
        results.append(result)
    out.print(closing_line(around), highlight=False)
    if options.json:
        write_json(options.json, results, around)


if __name__ == "__main__":
    main()
