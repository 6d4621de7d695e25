"""Rows of what is done a second, in the network's own units, in floating-point operations, and as MFU."""

from collections.abc import Mapping

from benchmarks.device.clock import memory_of, take_turns
from benchmarks.device.part import Row, Setting
from benchmarks.device.peaks import peak
from benchmarks.device.reference import Side

HEADINGS = ("times the first", "TFLOP/s", "MFU", "GB above weights and AdamW")

WHOLE_ROWS = (
    "TFLOP/s and MFU count attention of each token to all of its row, as PaLM's do (arXiv 2204.02311), "
    "also to the later ones, which a causal mask leaves out"
)


def rate_rows(sides: list[Side], amount: int, flops: int, setting: Setting, absent: Mapping[str, str]) -> list[Row]:
    """A row a side, measured in turn; ratios to the first are taken within a turn.

    Args:
        amount: of what a step reads: tokens, images.
        flops: of a step, as the model needs them.
        absent: names of rows that there are not here, and why.
    """
    if not sides:
        return []
    memory = {side.name: memory_of(side.work, setting.device) for side in sides}
    turns = take_turns({side.name: side.work for side in sides}, setting.device, setting.repeats)
    first, rows = turns[sides[0].name], []
    for side in sides:
        seconds, best = turns[side.name], peak(setting, side.format)
        rows.append(
            Row(
                side.name,
                (
                    [1e3 * each for each in seconds],
                    [amount / each for each in seconds],
                    [base / each for base, each in zip(first, seconds, strict=True)],
                    [flops / each / 1e12 for each in seconds],
                    [flops / each / best for each in seconds] if best else "peak not known",
                    memory[side.name],
                ),
            )
        )
    return rows + [Row(name, (why, *[""] * 5)) for name, why in absent.items()]
