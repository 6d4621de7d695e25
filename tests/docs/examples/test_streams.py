"""Runs the examples of docs/streams.md: the stream meets the page's requirements, and shards are read as described."""

import re

import pytest
import yaml

from datamodules.multimodal.batch import ImageLayout
from datamodules.vision_language.image_chats import ImageChats
from datamodules.vision_language.source_config import SourceSettings
from engine.data.samplers import TrainSampler
from engine.data.stream import StreamBatches
from tests.docs.pages import read
from tests.support.data_files.vision_language_files import png, write_files_in_tar

GUIDE = read("docs/streams.md")


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


def test_the_order_is_that_of_the_epoch_from_any_position(lines):
    orders = {tuple(lines.records(epoch)) for epoch in range(8)}
    assert len(orders) > 1
    assert len({tuple(sorted(order)) for order in orders}) == 1
    assert list(lines.records_from(3, 4)) == list(lines.records(3))[4:]
    assert lines.identity == "0.txt:15 1.txt:23 2.txt:141"


@pytest.mark.parametrize("processes", [1, 2, 3])
def test_each_line_is_trained_once_on_any_number_of_processes(lines, processes):
    seen = []
    for process in range(processes):
        own = slice(process, None, processes)
        batches = StreamBatches(lines, 6, own)
        draws = iter(TrainSampler(None, 6, seed=7, rank=process, world_size=processes))
        while (streamed := batches[next(draws)]).records:
            lengths, weights = streamed.batch
            assert len(lengths) == len(weights)
            seen += [length for length, weight in zip(lengths, weights, strict=True) if weight]
    assert sorted(seen) == sorted(map(len, lines.records(0)))


def test_shards_as_they_are_described(tmp_path, monkeypatch):
    """A shard with the samples that the guide shows, under the names that its configuration has."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data").mkdir()
    chat = b'{"conversations": [{"from": "human", "value": "What?"}, {"from": "gpt", "value": "That."}]}'
    content = {"jpg": png((9, 9, 9), kind="JPEG"), "png": png((9, 9, 9)), "json": chat, "txt": b"a square"}
    listed = re.search(r"```text\n(.*?)```", GUIDE, flags=re.DOTALL)[1]
    files = {name: content[name.rpartition(".")[2]] for name in re.findall(r"\d{6}\.\S+", listed)}
    assert len(files) == 8
    for name in ("train-000", "train-001", "train-002", "train-003", "validation"):
        write_files_in_tar(tmp_path / f"data/{name}.tar", files)
    settings = yaml.safe_load(re.search(r"```yaml\n(.*?)```", GUIDE, flags=re.DOTALL)[1])["data"]
    assert settings["class_path"] == "ImageChats"
    init = {**settings["init_args"], "root": str(tmp_path / "root")}
    for key in ("train", "validation"):
        init[key] = [SourceSettings(**source) for source in init[key]]
    data = ImageChats(**init)
    data.image_layout = ImageLayout(8, 4)
    data.prepare_data()
    data.setup("fit")
    assert (tmp_path / "root/shards/index.json").is_file()
    items = [data.train_set.source.item(record) for record in data.train_set.records(0)]
    assert sorted(len(item.counts) for item in items) == sorted([1, 2, 0, 1] * 4)
    assert len(data.validation_set) == 4
