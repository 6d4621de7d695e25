"""Measures what the engine and its guards cost, and the gain of a second process.

  step       a step of about 5 ms: a bare torch loop, plain Lightning, the engine, each guard alone; one process
  step-2     the same with two processes
  share      steps of about 5 and 20 ms beside those of a bare torch loop, Accelerate and plain Lightning; one and two
             processes: the engine and all guards may cost 500 us, 5 % of 20 ms, and 8 % with two processes
  profile    where the time of a step of about 5 and 20 ms goes, in the same loops, and how many functions are called
  scaling    SASRec with one process and with two, beside a plain DDP loop and Accelerate: at least 1.85 times the
             samples per second, on two idle cores
  checkpoint how long a checkpoint blocks training, by size: Lightning's, Lockstep's, Lockstep's asynchronous; MB/s
             and memory

Each variant runs in its own processes with a single thread each, and the variants alternate. CPU time includes all
processes of a variant. It is reliable on a busy machine, too; wall time only on an idle machine.
"""

from benchmarks.command_line import benchmark_parser

NAMES = ("step", "step-2", "share", "profile", "scaling", "checkpoint")

_PROFILED_STEPS = 50
"""Steps of a variant of `profile` in a turn, as in `share`."""


def main(arguments: list[str] | None = None) -> None:
    """Parse the command line, measure, and print the tables."""
    parser = benchmark_parser("engine", __doc__, repeats=7)
    parser.add_argument("--only", action="append", choices=NAMES, help="this part alone; may be given several times")
    options = parser.parse_args(arguments)

    # Imported here, so that --help and wrong options do not wait for torch.
    from benchmarks.engine import checkpoint_stall, measurements, scaling, step_profile
    from benchmarks.engine.mlp import BATCH_SIZES
    from benchmarks.environment import console, describe_environment, end_report

    out, environment, results = console(), describe_environment(options.repeats), []
    for name in options.only or NAMES:
        out.print(f"measuring {name} ...", highlight=False)
        if name == "checkpoint":
            stalls = checkpoint_stall.rows(repeats=options.repeats)
            out.print(checkpoint_stall.table(stalls))
            results.append({"name": name, "stalls": [stall._asdict() for stall in stalls]})
            continue
        if name == "profile":
            for size in BATCH_SIZES:
                profiles = step_profile.measure(_PROFILED_STEPS * options.repeats, size)
                out.print(step_profile.table(profiles, size))
                results.append(step_profile.result(profiles, size))
            continue
        if name == "scaling":
            results.append(scaling.scaling(options.repeats))
            out.print(scaling.table(results[-1]))
            continue
        result = getattr(measurements, name.replace("-", "_"))(options.repeats)
        out.print(measurements.table(result))
        results.append(result)
    end_report(out, environment, results, options.json)


if __name__ == "__main__":
    main()
