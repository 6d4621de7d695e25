"""Measures how many images a core decodes, and how many samples loaders of 0, 1, 2, ... workers deliver.

  decoders  a JPEG in three sizes, decoded and resized to 224 x 224: Pillow as Lockstep uses it, Pillow at full size,
            and OpenCV and simplejpeg where they are installed; images per second of a core
  loaders   JPEGs of 640 x 480: the image classifier at 224 x 224, and the vision-language family with a view of 384 x
            384, alone and with up to 2 x 2 tiles; samples per second, and per CPU second of all processes

Variants alternate. CPU time is reliable on a busy machine, too; samples per second only on an idle machine.
"""

from benchmarks.command_line import benchmark_parser

NAMES = ("decoders", "loaders")


def main(arguments: list[str] | None = None) -> None:
    """Parse the command line, measure, and print the tables."""
    parser = benchmark_parser("images", __doc__, repeats=5)
    parser.add_argument("--only", action="append", choices=NAMES, help="this part alone; may be given several times")
    options = parser.parse_args(arguments)

    # Imported here, so that --help and wrong options do not wait for torch.
    from benchmarks.environment import console, describe_environment, end_report
    from benchmarks.images import decoders, loaders

    out, environment, results = console(), describe_environment(options.repeats), []
    for name in options.only or NAMES:
        if name == "decoders":
            found = decoders.measure(options.repeats)
            out.print(decoders.table(found))
            results.append({"name": name, **found})
        else:
            loaded = loaders.measure(options.repeats)
            out.print(loaders.table(loaded))
            results.append({"name": name, **loaded})
    end_report(out, environment, results, options.json)


if __name__ == "__main__":
    main()
