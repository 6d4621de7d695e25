"""Builds rows with the rate in the network's units, in floating-point operations per second, and as MFU."""

from collections.abc import Mapping

from benchmarks.device.measures.peaks import peak
from benchmarks.device.measures.reference import Variant
from benchmarks.device.measures.timing import memory_of, take_turns
from benchmarks.device.part import Row, Setting

HEADINGS = ("times the first", "TFLOP/s", "MFU", "GB above weights and AdamW")

WHOLE_ROWS = (
    "TFLOP/s and MFU count attention of each token to all of its row, as PaLM's do (arXiv 2204.02311), "
    "also to later positions, which a causal mask excludes"
)


def rate_rows(
    variants: list[Variant], amount: int, flops: int, setting: Setting, absent: Mapping[str, str]
) -> list[Row]:
    """Measure a row per variant in turns; ratios to the first variant are computed within a turn.

    Args:
        variants: variants to compare.
        amount: units that a step processes, such as tokens or images.
        flops: model FLOPs of a step.
        setting: the device, its peak, and the number of turns.
        absent: names of rows that cannot be measured, and the reasons.
    """
    if not variants:
        return []
    # Measured separately from the time, because reading the peak waits for the device.
    memory = {variant.name: memory_of(variant.work, setting.device) for variant in variants}
    turns = take_turns({variant.name: variant.work for variant in variants}, setting.device, setting.repeats)
    first, rows = turns[variants[0].name], []
    for variant in variants:
        seconds, best = turns[variant.name], peak(setting, variant.format)
        rows.append(
            Row(
                variant.name,
                (
                    [1e3 * each for each in seconds],
                    [amount / each for each in seconds],
                    # Within a turn, in which both variants had the same clock rate and temperature.
                    [base / each for base, each in zip(first, seconds, strict=True)],
                    [flops / each / 1e12 for each in seconds],
                    [flops / each / best for each in seconds] if best else "peak not known",
                    memory[variant.name],
                ),
            )
        )
    return rows + [Row(name, (why, *[""] * 5)) for name, why in absent.items()]
