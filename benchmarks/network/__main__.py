"""Measures training on two machines by the bandwidth and delay between them, and predicts larger clusters.

  bandwidth  the engine on two machines of one core: step, efficiency, bytes sent; t = compute + bytes / bandwidth, less
             what does not lengthen the step, fitted to some bandwidths and tested on others
  delay      the same with a delay; the model counts how often a step waits for it
  settings   DDP's settings for slow networks: compression of the gradients, buckets, static graph
  predicted  no measurement: the arithmetic for 4, 8 and 16 GPUs and 2 and 4 nodes beside the guides' results

The machines are network namespaces of this machine (Linux, root, iproute2), which are removed afterwards. `predicted`
needs none.
"""

import sys

from benchmarks.command_line import benchmark_parser, positive

NAMES = ("bandwidth", "delay", "settings", "predicted")


def main(arguments: list[str] | None = None) -> None:
    """Parse the command line, measure, and print the tables."""
    parser = benchmark_parser("network", __doc__, repeats=7)
    parser.add_argument("--only", action="append", choices=NAMES, help="this part alone; may be given several times")
    group = parser.add_argument_group("of another cluster, for predicted")
    group.add_argument("--step", type=positive, metavar="SECONDS", help="of a step on one GPU")
    group.add_argument("--gradients", type=positive, action="append", metavar="MB", help="4 bytes a trained parameter")
    group.add_argument("--inside", type=positive, metavar="GBIT", help="per second, between two GPUs of a node")
    group.add_argument("--between", type=positive, action="append", metavar="GBIT", help="per second, between nodes")
    options = parser.parse_args(arguments)

    # Imported here, so that --help and wrong options do not wait for torch.
    from benchmarks.environment import closing_line, console, describe_environment, write_json
    from benchmarks.network import measurements, prediction, tables
    from benchmarks.network.machines import UnsupportedMachineError

    given = {
        "compute": options.step,
        "gradients": options.gradients and tuple(1e6 * size for size in options.gradients),
        "inside": options.inside and 1e9 * options.inside,
        "between": options.between and tuple(1e9 * link for link in options.between),
    }
    assumed = prediction.Assumptions(**{name: value for name, value in given.items() if value})
    out, environment, results = console(), describe_environment(options.repeats), []
    impossible: dict[str, list[str]] = {}  # the reason, and the parts
    try:
        for name in options.only or NAMES:
            if name == "predicted":
                results.append(prediction.predicted(assumed))
                out.print(prediction.table(results[-1]))
                out.print(prediction.shards_table(results[-1]))
                continue
            out.print(f"measuring {name} ...", highlight=False)
            try:
                results.append(getattr(measurements, name)(options.repeats))
                out.print(tables.table(results[-1]))
            except UnsupportedMachineError as error:
                impossible.setdefault(str(error), []).append(name)
    except KeyboardInterrupt:
        print("interrupted; the machines and their processes are removed", file=sys.stderr)
        sys.exit(130)
    if any(result["name"] != "predicted" for result in results):
        out.print(closing_line(environment), highlight=False)
    if options.json and results:
        write_json(options.json, results, environment)
    if impossible:
        reasons = "; ".join(f"{', '.join(parts)}: {why}" for why, parts in impossible.items())
        sys.exit(f"not measured: {reasons}. python -m benchmarks network --only predicted needs none of it.")


if __name__ == "__main__":
    main()
