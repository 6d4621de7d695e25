"""Tests the samples of chat files: views of their images, and bad images and rows that are named."""

import json

import numpy as np
import pytest

from datamodules.vision_language.chat_dataset import ChatTrainDataset, ImageProcessor
from datamodules.vision_language.chat_file import ImageChat
from datamodules.vision_language.mixture import Mixture
from engine.data.errors import BadSampleError
from engine.data.samplers import PADDING_INDEX, MicroBatchRequest
from tests.support.data_files.vision_language_files import png
from tests.support.families.image_chat_files import BLUE, LAYOUT, RED, module


def test_a_sample_has_the_views_of_its_images():
    chat = ImageChat(
        "a.json, record 3",
        [{"role": "user", "content": "<image><image>same?"}, {"role": "assistant", "content": "no"}],
        [png(RED, 16), png(BLUE, 40)],
    )
    item = ImageProcessor(LAYOUT, 10_000).item(chat)
    assert item.messages == chat.messages
    assert item.counts == (4, 4)
    assert item.encoder_input.pixels[:, :, 8, 8].tolist() == [list(RED), list(BLUE)]
    split = ImageProcessor(LAYOUT._replace(max_tiles=2), 10_000).item(chat)
    assert split.counts == (5, 25)
    assert split.encoder_input.tile_positions.tolist() == [0, 0, 1, 2, 3, 4]
    assert ImageProcessor(LAYOUT, 1).item(chat._replace(images=[])).counts == ()


def test_the_corrupt_image_of_a_sample_is_reported():
    chat = ImageChat("a.json, record 3", [], [png(RED, 16), png(BLUE, 40)])
    with pytest.raises(BadSampleError, match=r"a.json, record 3, image 2 of 2: .*40 x 40 .*at most 1,000"):
        ImageProcessor(LAYOUT, 1000).item(chat)
    with pytest.raises(BadSampleError, match=r"a.json, record 3, image 1 of 2: .*expected an image"):
        ImageProcessor(LAYOUT, 10_000).item(chat._replace(images=[b"no image", png(RED)]))


def test_a_batch_has_its_samples_pixels_and_placeholders(chats):
    data = module(chats, system=None)
    data.setup("fit")
    (batch,) = data.train_set[MicroBatchRequest(0, np.array([3, 0, PADDING_INDEX]))]
    assert sorted(batch.rows.samples.tolist()) == [0, 3]
    assert batch.encoder_input.pixels.shape == (2, 3, 16, 16)
    assert (batch.rows.tokens == data.tokenizer.placeholder).sum() == 8
    assert batch.skipped == ()


def test_bad_rows_are_named_by_file_and_row(chats, tmp_path):
    for broken, output in ((3, "image 1 of 1: found 8 bytes"), (5, "special token")):
        number = f"{broken:06}"
        if broken == 3:
            (tmp_path / f"images/{number}-0.png").write_bytes(b"no image")
        else:
            records = json.loads((tmp_path / "chats.json").read_text())
            records[broken]["conversations"][1]["value"] = "<|im_end|>"
            (tmp_path / "chats.json").write_text(json.dumps(records))
        samples = ChatTrainDataset(Mixture([chats], tmp_path), ImageProcessor(LAYOUT, 10_000))
        data = module(chats, validation=[chats]).examples(samples)
        with pytest.raises(BadSampleError, match=rf"chats.json, record {broken}\b.*{output}"):
            data[MicroBatchRequest(0, np.array([broken]))]
    lenient = module(chats, validation=[chats], on_bad_sample="skip", max_bad_samples=2)
    lenient.setup("fit")
    (batch,) = lenient.train_set[MicroBatchRequest(0, np.arange(8))]
    assert [left.sample for left in batch.skipped] == [3, 5]
    assert len(batch.rows.samples) == 6
    questions = lenient.validation_set[MicroBatchRequest(0, np.arange(40))]
    assert sorted(left.sample for left in questions.skipped) == [3, 5]
    assert len(questions.rows.samples) == 38


def test_too_long_a_sample_is_named_or_dropped(chats):
    shortest = 6
    data = module(chats, max_length=shortest)
    data.setup("fit")
    with pytest.raises(ValueError, match=r"sample 0 \(.*chats.json, record \d+\): \d+ tokens \(4 of them for fea"):
        data.train_set[MicroBatchRequest(0, np.array([0]))]
    data = module(chats, max_length=shortest, too_long="drop")
    data.setup("fit")
    (batch,) = data.train_set[MicroBatchRequest(0, np.array([0]))]
    assert batch.skipped[0].reason == "too_long"
    assert "chats.json, record" in batch.skipped[0].what
