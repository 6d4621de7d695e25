"""Summarizes a set of samples as statistics."""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from datamodules.temporal.timelines.reports.leak_check import check_leaks
from datamodules.temporal.timelines.reports.sample_view import SampleView


def summarize_samples(
    samples: Sequence[SampleView], count_tokens: Callable[[str], int] | None = None
) -> dict[str, Any]:
    """Return summary statistics as plain values for JSON.

    Args:
        samples: the samples.
        count_tokens: function that returns the number of tokens of a text; None to skip token counts.
    """
    classes: dict[str, Counter[str]] = defaultdict(Counter)
    for sample in samples:
        if sample.truth_class is not None:
            classes[sample.task][sample.truth_class] += 1
    channels = _channels(samples)
    texts = {"question": [s.question for s in samples], "answer": [s.truth for s in samples]}
    lengths = {f"{name}, characters": _spread(map(len, text)) for name, text in texts.items()}
    if count_tokens is not None:
        lengths |= {f"{name}, tokens": _spread(map(count_tokens, text)) for name, text in texts.items()}
    return {
        "samples": len(samples),
        "tasks": _sort_counts(Counter(sample.task for sample in samples)),
        "classes": {task: _sort_counts(counts) for task, counts in sorted(classes.items())},
        "steps": _spread(len(sample.values) for sample in samples),
        "seconds": _spread(len(sample.values) * sample.step_ms / 1000 for sample in samples),
        "channels": channels,
        "missing": {
            "measurements": _share(sum(int((~s.present).sum()) for s in samples), sum(s.present.size for s in samples)),
            "series": _share(sum(not s.present.all() for s in samples), len(samples)),
        },
        "texts": lengths,
        "templates": {
            "question": _sort_counts(Counter(f"{s.task}: {s.template}" for s in samples if s.template)),
            "answer": _sort_counts(Counter(f"{s.task}: {s.truth_template}" for s in samples if s.truth_template)),
        },
        "violations": {
            "measurements outside 0 to the capacity": sum(channel["outside"] for channel in channels),
            "answers that do not read back as the truth": sum(not sample.reads_back for sample in samples),
        },
        "leaks": [{**leak._asdict(), "suspicious": leak.suspicious} for leak in check_leaks(samples)],
    }


def choose_examples(samples: Iterable[SampleView], count: int) -> list[SampleView]:
    """Return the first samples of each task and class in turn, sorted by number."""
    groups: dict[tuple[str, str], list[SampleView]] = defaultdict(list)
    for sample in samples:
        group = groups[sample.task, sample.truth_class or ""]
        if len(group) < count:
            group.append(sample)
    turns = ((turn, key) for turn in range(count) for key in sorted(groups) if turn < len(groups[key]))
    examples = [groups[key][turn] for (turn, key), _ in zip(turns, range(count), strict=False)]
    return sorted(examples, key=lambda sample: sample.sample)


def _channels(samples: Sequence[SampleView]) -> list[dict[str, Any]]:
    """Return statistics of each channel over the measurements that are present, in the channel's unit."""
    channels: dict[str, dict[str, Any]] = {}
    for sample in samples:
        for k, name in enumerate(sample.channels):
            present, capacity = sample.present[:, k], float(sample.capacities[k])
            entry = channels.setdefault(
                name, {"unit": sample.units[k].strip(), "shares": [], "values": [], "missing": 0}
            )
            entry.setdefault("capacities", set()).add(capacity)
            shares = sample.values[present, k].astype(np.float64)
            entry["shares"].append(shares)
            entry["values"].append(shares * capacity)
            entry["missing"] += int((~present).sum())
    return [_channel(name, entry) for name, entry in channels.items()]


def _channel(name: str, entry: dict[str, Any]) -> dict[str, Any]:
    shares, values = np.concatenate(entry["shares"]), np.concatenate(entry["values"])
    total = len(shares)
    # Rounding to float32 may exceed the bounds slightly.
    outside = ~((shares >= -1e-6) & (shares <= 1 + 1e-6))
    return {
        "channel": name,
        "unit": entry["unit"],
        "capacities": sorted(entry["capacities"]),
        "measurements": total,
        "values": _spread(values),
        "histogram": np.histogram(np.clip(np.nan_to_num(shares), 0, 1), bins=20, range=(0, 1))[0].tolist(),
        "empty": _share(int((shares <= 0).sum()), total),
        "full": _share(int((shares >= 1).sum()), total),
        "missing": _share(entry["missing"], total + entry["missing"]),
        "outside": int(outside.sum()),
    }


def _spread(numbers: Iterable[float]) -> dict[str, float | None]:
    """Return minimum, median, mean and maximum; None if there are no numbers."""
    array = np.array(list(numbers), np.float64)
    names: dict[str, Callable[[NDArray[np.float64]], Any]] = {
        "min": np.min,
        "median": np.median,
        "mean": np.mean,
        "max": np.max,
    }
    return {name: round(float(of(array)), 4) if len(array) else None for name, of in names.items()}


def _share(part: int, total: int) -> float:
    return part / total if total else 0.0


def _sort_counts(counts: Counter[str]) -> dict[str, int]:
    return dict(sorted(counts.items(), key=lambda item: (-item[1], item[0])))
