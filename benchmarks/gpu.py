"""Measures what a GPU can do: `python benchmarks/gpu.py`, in at most 8 minutes (--minutes).

  ceilings            copies of memory and products of large matrices, beside the data sheet
  time_attention      time-interval attention beside the naive form, both as a share of a copy of the bytes they move
  recommender         SASRec and TiSASRec at B 128, L 200: wall time per step, time with an active kernel, CUDA graph
  vision_transformer  ViT-B/16: images per second and MFU in fp32, TF32, bf16 and fp16
  language_models     the sizes of Qwen2-0.5B: tokens per second and MFU; fully trained, with adapters, frozen
  training            a vision-language model in the Trainer beside a plain torch loop: tokens per second and MFU
  compiled_step       SASRec and TiSASRec with and without model.compile_step: wall time per step, and their ratio

It needs torch, numpy, psutil and Lightning. language_models needs transformers and peft, training needs transformers
and Pillow, compiled_step needs polars. The sizes are for a GPU with 80 GB of memory.

"compiled" is the same computation with torch.compile. Each part first compares its results with float64 and is not
timed if the error is too large. The variants alternate. Times are measured with the GPU's clock, except in `training`,
which uses wall time. Each part runs in its own process: if a part fails, the others continue, and the exit code is 1.
`--device cpu --tiny` runs all parts on any machine as a test; its numbers are meaningless.
"""

import sys
import time
from pathlib import Path
from typing import Any

if not __package__:  # started as a file, whose folder contains packages with the same names as the project's
    sys.path[0] = str(Path(__file__).resolve().parents[1])

from benchmarks.command_line import benchmark_parser, positive, writable  # noqa: E402
from benchmarks.device.part import Check, Failure, ResultTable, Setting, part_results  # noqa: E402

PARTS = (
    "ceilings",
    "time_attention",
    "recommender",
    "vision_transformer",
    "language_models",
    "training",
    "compiled_step",
)


def main(arguments: list[str] | None = None) -> None:
    """Parse the command line, measure the parts, and print and store their results.

    Raises:
        SystemExit: a part was refused, failed or was stopped, or there is no GPU.
    """
    parser = benchmark_parser("gpu", __doc__, repeats=5)
    parser.add_argument("--only", action="append", choices=PARTS, help="run this part only; may be given several times")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda", help="default: cuda")
    parser.add_argument("--tiny", action="store_true", help="sizes that show that it runs; needed with --device cpu")
    parser.add_argument("--no-compile", action="store_true", help="without torch.compile, which takes half of the time")
    parser.add_argument("--minutes", type=positive, default=8, metavar="M", help="time limit (default: 8)")
    parser.add_argument("--peak-tflops", type=positive, metavar="X", help="dense peak in 16 bits; by default looked up")
    parser.add_argument("--optional", action="store_true", help="without a GPU, exit with 0")
    parser.add_argument("--junit", type=writable, metavar="FILE", help="also write each part as a test case to FILE")
    options = parser.parse_args(arguments)
    if options.device == "cpu" and not options.tiny:
        parser.error("--device cpu needs --tiny: the sizes are those of a GPU")

    import torch

    if options.device == "cuda" and not torch.cuda.is_available():
        nothing = f"gpu: torch {torch.__version__} finds no CUDA device, so nothing is measured"
        if not options.optional:
            raise SystemExit(nothing)
        print(nothing)
        return

    from benchmarks.device.junit import write_junit
    from benchmarks.device.machine import closing_line, describe_environment
    from benchmarks.environment import write_json

    setting = Setting(options.device, options.tiny, options.repeats, not options.no_compile, options.peak_tflops)
    environment, end = describe_environment(setting), time.monotonic() + 60 * options.minutes
    # All parts share the time limit, so a slow part leaves less to the parts after it.
    results = [_measured(part, setting, end) for part in options.only or PARTS]
    print(closing_line(environment))
    if options.json:
        write_json(options.json, results, environment)
    if options.junit:
        write_junit(options.junit, results)
    bad = [result["name"] for result in results if result["problems"]]
    if bad:
        raise SystemExit(f"gpu: parts failed, see FAILED above: {', '.join(bad)}")


def _measured(part: str, setting: Setting, end: float) -> dict[str, Any]:
    from benchmarks.device.tables import as_json, format_checks, format_table

    start = time.monotonic()
    result: dict[str, Any] = {"name": part, "checks": [], "sheets": [], "problems": []}
    print(f"\n== {part}", flush=True)
    # Printed as they arrive, so that a part that is stopped keeps its results so far.
    for found in part_results(part, setting, max(0.0, end - start)):
        if isinstance(found, Failure):
            problems = [found.error]
        elif isinstance(found, ResultTable):
            print(format_table(found), flush=True)
            result["sheets"].append(as_json(found))
            problems = [f"{row}: {error}" for row, error in found.failures.items()]
        else:
            print(format_checks(found), flush=True)
            result["checks"] += [check._asdict() for check in found]
            problems = _wrong(found)
        for problem in problems:
            print(f"FAILED {part}: {problem}", flush=True)
        result["problems"] += problems
    result["seconds"] = time.monotonic() - start
    print(f"({result['seconds']:.0f} s)", flush=True)
    return result


def _wrong(checks: list[Check]) -> list[str]:
    return [
        f"{check.name} is wrong: its error beside float64 is {check.error:.1e}, expected at most {check.bound:.0e}; "
        "it is not timed"
        for check in checks
        if not check.passed
    ]


if __name__ == "__main__":
    main()
