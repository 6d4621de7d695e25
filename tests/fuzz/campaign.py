"""A campaign: the inputs of a seed, the counted outcomes, and the inputs that failed, each in a file."""

import hashlib
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from tests.fuzz.outcome import GOOD, Outcome, OutcomeKind
from tests.fuzz.pool import Worker
from tests.fuzz.reader import Input
from tests.fuzz.readers import reader

_SIGNED = 90
"""Characters of a detail that distinguish failures."""

KEPT = Path(".fuzz")
"""Folder of the inputs that failed: READER/NAME."""

CASES = Path(__file__).with_name("cases")
"""Inputs that failed once, in the same form; the fast tier replays them."""

COLUMNS = ("inputs", *(kind.value for kind in OutcomeKind), "slowest (s)", "peak (MB)")


@dataclass
class Tally:
    """Counted outcomes of a reader."""

    name: str
    counts: Counter[OutcomeKind] = field(default_factory=Counter)
    slowest: float = 0.0
    peak: float = 0.0
    failures: dict[str, tuple[Path, Outcome]] = field(default_factory=dict)
    """The first input of each kind of failure."""

    def row(self) -> str:
        """Return the row of the table."""
        counts = [self.counts.total(), *(self.counts[kind] for kind in OutcomeKind)]
        return (
            f"{self.name:22}"
            + "".join(f"{number:>11,}" for number in counts)
            + f"{self.slowest:>13.2f}{self.peak:>11.0f}"
        )


def header() -> str:
    """Return the header of the table."""
    *counts, slowest, peak = COLUMNS
    return f"{'reader':22}" + "".join(f"{name:>11}" for name in counts) + f"{slowest:>13}{peak:>11}"


def inputs(name: str, number: int, seed: int) -> Iterator[Input]:
    """Yield the seeds of a reader, then mutations of them; the n-th input of a seed is the same in each run."""
    chosen = reader(name)
    seeds = chosen.seeds()
    yield from seeds[:number]
    for index in range(len(seeds), number):
        random = Random(f"{seed} {name} {index}")
        yield chosen.mutate(random, random.choice(seeds))


def run(name: str, number: int, seed: int, kept: Path = KEPT) -> Tally:
    """Read inputs and return the counted outcomes; an input that failed is written to `kept`/READER."""
    tally, number_of_seeds = Tally(name), len(reader(name).seeds())
    with Worker(name) as worker:
        for index, mutated in enumerate(inputs(name, number, seed)):
            outcome = worker.read(mutated)
            if index < number_of_seeds and outcome.kind is not OutcomeKind.RIGHT:
                raise RuntimeError(
                    f"{name}: the seed {mutated.path} is valid, but {outcome.kind.value}: {outcome.detail}"
                )
            tally.counts[outcome.kind] += 1
            tally.slowest, tally.peak = max(tally.slowest, outcome.seconds), max(tally.peak, outcome.megabytes)
            if outcome.kind not in GOOD and signature(outcome) not in tally.failures:
                tally.failures[signature(outcome)] = keep(mutated, name, outcome, kept), outcome
    return tally


def signature(outcome: Outcome) -> str:
    """Return the outcome without what differs from input to input: numbers, values and paths."""
    text = re.sub(r"/\S+|'[^']*'|`[^`]*`|\"[^\"]*\"|\d[\d,.]*", "_", outcome.detail.split(";")[0])
    return f"{outcome.kind.value} {text[:_SIGNED]}"


def keep(mutated: Input, name: str, outcome: Outcome, kept: Path) -> Path:
    """Write an input that failed; return its path."""
    folder = kept / name
    folder.mkdir(parents=True, exist_ok=True)
    digest = hashlib.sha256(mutated.data).hexdigest()[:10]
    path = folder / f"{outcome.kind.value}-{digest}@{mutated.file_name}"
    path.write_bytes(mutated.data)
    return path


def load(path: Path) -> Input:
    """Return the input in a file that `keep` has written, or of a case: NAME@PATH, with ~ for each / of the path.

    Raises:
        ValueError: the file has another name.
    """
    _, mark, name = path.name.partition("@")
    if not mark:
        raise ValueError(f"{path}: expected a file named NAME@PATH, as .fuzz/READER has them")
    return Input(name.replace("~", "/"), path.read_bytes())


def replay(name: str, path: Path) -> Outcome:
    """Return the outcome of a kept input."""
    with Worker(name) as worker:
        return worker.read(load(path))
