"""Measures the peak memory of a training step of a language model, beside the prediction of the doctor.

The model has the widths of Qwen2.5-0.5B, fewer layers and random weights. Each setting has a process of its own with
a single thread, FSDP two. Memory is resident memory of a rank above that of the process before the model was built,
at the peak of two steps of AdamW on one row of two packed chats.
"""

from benchmarks.command_line import benchmark_parser, count


def main(arguments: list[str] | None = None) -> None:
    """Parse the command line, measure, and print the table."""
    parser = benchmark_parser("memory", __doc__, repeats=1)
    parser.add_argument("--tokens", type=count, default=512, metavar="N", help="of a step (default: 512)")
    parser.add_argument("--layers", type=count, default=6, metavar="N", help="of the model (default: 6)")
    parser.add_argument("--vocabulary", type=count, default=16_000, metavar="N", help="tokens (default: 16000)")
    options = parser.parse_args(arguments)

    # Imported here, so that --help and wrong options do not wait for torch.
    from benchmarks.environment import console, describe_environment, end_report
    from benchmarks.memory import variants

    out, environment = console(), describe_environment(options.repeats)
    size = variants.Size(options.layers, options.vocabulary, options.tokens)
    result = variants.measure(size, options.repeats)
    out.print(variants.table(result))
    end_report(out, environment, [result], options.json)


if __name__ == "__main__":
    main()
