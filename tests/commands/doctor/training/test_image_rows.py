"""Checks the row of images with which the memory of an image-text model is predicted."""

import math

import pytest

from commands.doctor.training.image_rows import fullest_row
from datamodules.multimodal.batch import IGNORE
from datamodules.vision_language.pretrained.processor import ModelProcessor
from tests.support.families.tiny_image_text import CLASSES


@pytest.fixture
def processor(tmp_path):
    """Processor of a Qwen2.5-VL whose images have up to 64 tokens."""
    for part in CLASSES["qwen2_5_vl"]():
        part.save_pretrained(tmp_path)
    return ModelProcessor(str(tmp_path), tmp_path, {"size": {"shortest_edge": 784, "longest_edge": 224 * 224}})


def test_a_row_is_full_of_images_and_supervised_text(processor):
    row = fullest_row(processor, 256, packed_length=256)
    tokens, labels = row.rows.tokens, row.rows.labels
    is_image = tokens == processor.image_token
    assert tokens.shape == (1, 256)
    assert (row.num_images, row.image_tokens) == (2, 64)
    assert int(is_image.sum()) == 2 * 64 == len(row.images["pixel_values"]) // 4  # four patches a token
    starts = row.rows.positions == 0
    assert ((labels != IGNORE) == (~is_image & ~starts)).all()
    assert int(starts.sum()) == 3  # two chats with images, and text in the other places


def test_a_chat_in_a_packed_row_has_its_own_limit(processor):
    row = fullest_row(processor, 64, packed_length=256)
    assert row.num_images > 2
    assert row.image_tokens == fullest_row(processor, 64).image_tokens


def test_an_unpacked_row_has_one_chat(processor):
    row = fullest_row(processor, 256)
    assert row.num_images == 1
    assert (row.rows.positions[0] == row.rows.positions[0].sort().values).all()


def test_images_are_as_large_as_the_row_allows(processor):
    packed, row = fullest_row(processor, 256, packed_length=256), fullest_row(processor, 64)
    second_chat = int((packed.rows.positions[0] == 0).nonzero()[1])
    words = second_chat - packed.image_tokens
    side = math.isqrt(row.image_tokens)
    assert row.image_tokens == side**2
    assert side**2 + words <= 64 < (side + 1) ** 2 + words, "an image of one more row and column of tokens does not fit"
    with pytest.raises(ValueError, match="an image of 56 x 56 pixels takes .* tokens with its chat, and a chat has at"):
        fullest_row(processor, 8)
