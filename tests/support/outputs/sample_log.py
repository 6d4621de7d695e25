"""Reads the samples that the ranks of a run trained on, and compares the records of two runs."""

from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

from tests.support.outputs.jsonl import read_jsonl

Log = dict[int, tuple[int, list[int]]]
"""{optimizer step: (epoch, samples of its global batch in ascending order)}."""


def sample_log(folder: Path) -> Log:
    """Return the samples of all ranks of a run. Steps after the checkpoint that the run resumed from do not count."""
    records = read(folder)
    begun = sorted({record["begun"] for record in records})
    log: dict[int, tuple[int, list[int]]] = {}
    samples: dict[int, list[int]] = defaultdict(list)
    for record in records:
        later = [step for step in begun if step > record["begun"]]
        if later and record["step"] >= later[0]:
            continue
        samples[record["step"]] += record["samples"]
        log[record["step"]] = record["epoch"], sorted(samples[record["step"]])
    return dict(sorted(log.items()))


def read(folder: Path, name: str = "seen") -> list[dict[str, Any]]:
    """Return the records of all ranks of a run, one for each micro-batch."""
    return [record for path in sorted((folder / name).glob("*.jsonl")) for record in read_jsonl(path)]


def differences(actual: Log, expected: Log) -> list[str]:
    """Missing samples, duplicate samples and misordered samples, a message for each epoch or step."""
    messages = []
    for epoch in sorted({epoch for epoch, _ in [*actual.values(), *expected.values()]}):
        ours, theirs = _of_epoch(actual, epoch), _of_epoch(expected, epoch)
        if missing := theirs - ours:
            messages.append(f"missing samples in epoch {epoch}: {sorted(missing.elements())}")
        if duplicates := ours - theirs:
            messages.append(f"duplicate samples in epoch {epoch}: {sorted(duplicates.elements())}")
    if not messages:
        for step in sorted({*actual, *expected}):
            if actual.get(step) != expected.get(step):
                messages.append(f"misordered samples in step {step}: {actual.get(step)}, not {expected.get(step)}")
    return messages


def _of_epoch(log: Log, epoch: int) -> Counter[int]:
    return Counter(sample for number, samples in log.values() if number == epoch for sample in samples)
