"""Tests that training and validation share no row, and that a part of a file keeps its blocks."""

import numpy as np
import pytest

from datamodules.vision_language.row_subset import RowSubset, validation_mask
from datamodules.vision_language.source_config import SourceSettings
from engine.data.epoch_order import ShuffleBlocks
from tests.support.families.image_chat_files import module, numbers_of


def test_training_and_validation_never_share_a_row(chats):
    data = module(chats, validation_share=0.2, validation_size=None)
    data.setup("fit")
    trained, validated = numbers_of(data.train_set.source), numbers_of(data.validation_set.source)
    assert sorted(trained + validated) == list(range(40))
    assert 0 < len(validated) < 20
    again = module(chats, validation_share=0.2, validation_size=3)
    again.setup("validate")
    some = numbers_of(again.validation_set.source)
    assert len(some) == 3
    assert set(some) < set(validated)
    assert some == sorted(some)
    smaller = module(chats, validation_share=1e-9)
    smaller.setup("validate")
    assert len(smaller.validation_set) == 1


def test_weights_are_of_the_training(chats, tmp_path):
    """Each row that is held out is validated once, however often the others are trained."""
    twice = SourceSettings(chats.path, weight=2.0)
    data = module(twice, validation_share=0.2, validation_size=None)
    data.setup("fit")
    trained, validated = numbers_of(data.train_set.source), numbers_of(data.validation_set.source)
    assert sorted(trained) == sorted(2 * sorted(set(range(40)) - set(validated)))
    assert len(set(validated)) == len(validated)


def test_a_part_of_a_file_keeps_its_blocks():
    class File:
        blocks = ShuffleBlocks(np.array([0, 4, 8]), np.array([40, 41, 42]), 100)
        identity = "a file"

        def __len__(self):
            return 10

        def name(self, row):
            return f"row {row}"

        def read(self, row):
            return row

    part = RowSubset(File(), np.array([1, 3, 8, 9]))
    assert part.blocks.starts.tolist() == [0, 2]
    assert part.blocks.sizes.tolist() == [40, 42]
    assert part.blocks.window == 100
    assert [part.read(row) for row in range(len(part))] == [1, 3, 8, 9]
    assert part.name(2) == "row 8"
    last = RowSubset(File(), np.array([8, 9])).blocks
    assert last.starts.tolist() == [0]
    assert last.sizes.tolist() == [42]
    long = type("Long", (File,), {"__len__": lambda self: 100_000})()
    held = np.flatnonzero(validation_mask(long, 0.01))
    assert 400 < len(held) < 1600
    assert len(np.unique(held // 64)) == -(-len(held) // 64)  # neighbours, read at once
    held = validation_mask(File(), 0.3)
    assert 0 < held.sum() < 10
    assert (held == validation_mask(File(), 0.3)).all()
    File.__len__ = lambda self: 1
    with pytest.raises(ValueError, match=r"1 samples \(row 0\).*set data.init_args.validation"):
        validation_mask(File(), 0.3)
