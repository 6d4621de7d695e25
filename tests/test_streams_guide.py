"""docs/streams.md: its example is a stream that does what the text asks for."""

import re

import pytest

from engine.sampling import TrainSampler
from engine.streaming import StreamBatches
from tests.conftest import REPOSITORY

GUIDE = (REPOSITORY / "docs/streams.md").read_text(encoding="utf-8")


@pytest.fixture
def lines(tmp_path, monkeypatch):
    """The guide's stream of 13 lines in 3 files: every line has a length of its own."""
    monkeypatch.setenv("PL_GLOBAL_SEED", "7")
    for number, count in enumerate((5, 2, 6)):
        text = "".join("x" * (10 * number + line) + "\n" for line in range(count))
        (tmp_path / f"{number}.txt").write_text(text)
    names = {}
    exec(re.search(r"```python\n(.*?)```", GUIDE, flags=re.DOTALL)[1], names)
    return names["Lines"](tmp_path.glob("*.txt"))


def test_the_order_is_that_of_the_epoch_and_goes_on_anywhere(lines):
    orders = {tuple(lines.records(epoch)) for epoch in range(8)}
    assert len(orders) > 1 and len({tuple(sorted(order)) for order in orders}) == 1
    assert list(lines.records_from(3, 4)) == list(lines.records(3))[4:]
    assert lines.identity == "0.txt:15 1.txt:23 2.txt:141"


@pytest.mark.parametrize("processes", [1, 2, 3])
def test_each_line_is_trained_once_on_any_number_of_processes(lines, processes):
    seen = []
    for process in range(processes):
        own = slice(process, None, processes)
        batches = StreamBatches(lines, 6, own)
        draws = iter(TrainSampler(None, 6, seed=7, process=process, processes=processes))
        while (streamed := batches[next(draws)]).count:
            lengths, weights = streamed.batch
            assert len(lengths) == len(weights)
            seen += [length for length, weight in zip(lengths, weights, strict=True) if weight]
    assert sorted(seen) == sorted(map(len, lines.records(0)))
