"""Tests whether runs differ on the same samples: means with intervals, differences and adjusted p-values."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from engine.statistics.paired_test import Difference, ScoreTable


class Comparison(NamedTuple):
    """What the console prints and the page shows."""

    lines: Sequence[str] = ()
    table: dict[str, Any] | None = None
    """`{title, runs: [index], rows: [{metric, values, differences}]}`; intervals are [value, low, high]."""
    differing: dict[str, Any] | None = None
    """`{count, heads, rows}`: the samples on which the runs differ most."""


NOT_COMPARED = Comparison()


class ScoredRuns(NamedTuple):
    """What runs reached on the same samples."""

    names: Sequence[str]
    positions: Sequence[int]  # of the runs on the page
    what: str  # `test, 3,000 users`
    classes: Sequence["NDArray[np.int64]"]  # [N] row of `table.values` of each sample, for each run
    table: "ScoreTable"
    test: str  # of significance
    prefix: str = ""  # of the metrics' names


def compare_scored(scored: ScoredRuns, remarks: Sequence[str], differing: dict[str, Any]) -> Comparison:
    """Compare each run with the first.

    Args:
        scored: at least two runs on the same samples.
        remarks: lines on runs that are not compared.
        differing: see Comparison.
    """
    import numpy as np

    from engine.statistics.bootstrap import RESAMPLES, SEED, bootstrap_means
    from engine.statistics.paired_test import compare_classes, holm

    names, size = scored.names, len(scored.table.values)
    exact = scored.test.startswith("exact")
    pairs = [compare_classes(scored.classes[0], other, scored.table, exact) for other in scored.classes[1:]]
    for metric in range(len(scored.table.names)):
        # Corrected over the compared runs, for each metric by itself.
        adjusted = holm([differences[metric].p for differences in pairs])
        for differences, p in zip(pairs, adjusted, strict=True):
            difference = differences[metric]
            differences[metric] = difference._replace(p=p, metric=scored.prefix + difference.metric)
    means = [
        # Resampling needs only the number of samples of each class.
        bootstrap_means(np.bincount(classes, minlength=size), scored.table.values, RESAMPLES, SEED)
        for classes in scored.classes
    ]
    rows = [
        {
            "metric": scored.prefix + name,
            "values": [list(intervals[metric]) for intervals in means],
            "differences": [
                None,
                *({"interval": list(pair[metric].interval), "p": pair[metric].p} for pair in pairs),
            ],
        }
        for metric, name in enumerate(scored.table.names)
    ]
    adjusts = ", p-values adjusted by Holm's method" if len(pairs) > 1 else ""
    how = f"95 % bootstrap interval, {scored.test}{adjusts}"
    lines = []
    for name, differences in zip(names[1:], pairs, strict=True):
        lines.append(f"{scored.what}: {_conclusion((names[0], name), differences)}")
        lines.append(f"{name} minus {names[0]}: {'; '.join(map(_numbers, differences))} ({how})")
    title = f"On the same samples: {scored.what}"
    note = f"Brackets are 95 % bootstrap intervals. Differences are from {names[0]}: {scored.test}{adjusts}."
    table = {"title": title, "note": note, "runs": list(scored.positions), "rows": rows}
    return Comparison([*lines, *remarks], table, differing if differing["count"] else None)


def _numbers(difference: "Difference") -> str:
    mean, low, high = difference.interval
    p = "p < 0.001" if difference.p < 0.001 else f"p = {difference.p:.3f}"
    return f"{difference.metric} {mean:+.4f} [{low:+.4f}, {high:+.4f}], {p}"


def _conclusion(names: Sequence[str], differences: Sequence["Difference"]) -> str:
    better: dict[str, list[str]] = {}
    for difference in differences:
        if difference.is_significant:
            better.setdefault(names[difference.interval.value > 0], []).append(difference.metric)
    unclear = [difference.metric for difference in differences if not difference.is_significant]
    if not better:
        return f"no significant difference between {names[0]} and {names[1]} by {_join_words(unclear)}"
    parts = [
        f"{name} is better than {names[name == names[0]]} by {_join_words(metrics)}" for name, metrics in better.items()
    ]
    if unclear:
        parts.append(f"the difference is not significant by {_join_words(unclear)}")
    return "; ".join(parts)


def _join_words(words: Sequence[str]) -> str:
    return " and ".join(filter(None, (", ".join(words[:-1]), words[-1])))
