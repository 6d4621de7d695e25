"""Measures LoRA beside frozen weights in bf16, NF4 and int8: tokens per second and peak memory, beside its prediction.

The model has the shape of Qwen2.5-0.5B and random weights. A turn is a step of AdamW on one row, with activation
checkpointing. Each variant has its own process with a single thread; variants alternate. Memory is resident memory
above that of the process before the model was built: at the peak of a step, and after the model was built.
"""

from benchmarks.command_line import benchmark_parser, count


def main(arguments: list[str] | None = None) -> None:
    """Parse the command line, measure, and print the table."""
    parser = benchmark_parser("qlora", __doc__, repeats=3)
    parser.add_argument("--tokens", type=count, default=256, metavar="N", help="of a step (default: 256)")
    parser.add_argument("--layers", type=count, default=24, metavar="N", help="of the model (default: 24)")
    options = parser.parse_args(arguments)

    # Imported here, so that --help and wrong options do not wait for torch.
    from benchmarks.environment import console, describe_environment, end_report
    from benchmarks.qlora import variants

    out, environment = console(), describe_environment(options.repeats)
    result = variants.measure(options.layers, options.tokens, options.repeats)
    out.print(variants.table(result))
    end_report(out, environment, [result], options.json)


if __name__ == "__main__":
    main()
