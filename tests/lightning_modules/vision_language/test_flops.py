"""Tests the counts of a micro-batch: its tokens and its FLOPs."""

import pytest
import torch
from lightning.pytorch import Trainer
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from datamodules.multimodal.batch import IGNORE
from lightning_modules.multimodal.language.settings import LanguageModelSettings
from lightning_modules.multimodal.vision.settings import VisionTowerSettings
from lightning_modules.vision_language.module import VisionLanguageModel
from tests.support.families.colored_squares import LANGUAGE_MODEL, TOWER, ColoredSquares


def built(trainable="full", **data):
    """A module and a micro-batch of it."""
    tower = VisionTowerSettings(config=TOWER, trainable=trainable)
    module = VisionLanguageModel(LanguageModelSettings(config=LANGUAGE_MODEL), tower)
    squares = ColoredSquares(batch_size=6, num_samples=6, **data)
    trainer = Trainer(accelerator="cpu", logger=False, enable_checkpointing=False)
    module.trainer, trainer.datamodule = trainer, squares
    squares.image_layout = module.image_layout
    module.configure_model()
    squares.setup("fit")
    return module, next(iter(squares.train_dataloader()))


@pytest.mark.parametrize("trainable", ["none", "full"])
@pytest.mark.parametrize(
    "data",
    [
        {},
        {"images": [0, 1, 2], "packed_length": 90},
        {"images": [0, 2], "length_groups": 3},
        {"max_tiles": 2, "edge": 40},
    ],
    ids=["images", "packed", "groups", "tiles"],
)
def test_operations_are_those_that_torch_counts(trainable, data):
    module, batch = built(trainable, **data)
    counter = FlopCounterMode(display=False)
    with sdpa_kernel(SDPBackend.MATH), counter:  # torch does not count the CPU's fused attention
        module.training_loss(batch).total.backward()
    of_view = module.modality.flops_of_view(module.feature_networks)
    unseen = sum(len(part.encoder_input.pixels) == 0 for part in batch) * of_view  # black views
    assert module.throughput_counts(batch)["flops"] + unseen == pytest.approx(counter.get_total_flops(), rel=0.005)


def test_tokens_of_each_kind_are_counted():
    module, batch = built(images=[0, 1, 2], length_groups=2, max_tiles=2, edge=40)
    amounts = module.throughput_counts(batch)
    rows = [part.rows for part in batch]
    assert amounts["positions"] == sum(part.tokens.numel() for part in rows) > amounts["tokens"]
    assert amounts["supervised_tokens"] == sum(int((part.labels != IGNORE).sum()) for part in rows)
    placeholder = module.data.tokenizer.placeholder
    assert amounts["image_tokens"] == sum(int((part.tokens == placeholder).sum()) for part in rows)
    assert (
        amounts["image_tokens"]
        == sum(len(part.encoder_input.pixels) for part in batch) * module.image_layout.view_tokens
    )


def test_counts_stay_numbers_on_the_way_to_a_device():
    """A GPU needs no synchronization for numbers on the host."""
    _, batch = built()
    moved = Trainer(accelerator="cpu", logger=False).strategy.batch_to_device(batch, torch.device("meta"))
    assert moved[0].rows.tokens.is_meta
    assert moved[0].rows.counts == batch[0].rows.counts
    assert all(type(count) is int for count in moved[0].rows.counts)
