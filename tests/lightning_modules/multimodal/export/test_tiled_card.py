"""Tests the code on the card of an export with tiles: texts, pixels and answer equal those of `predict`."""

import io
import json

import numpy as np
import pytest
import torch
from PIL import Image

from datamodules.multimodal.text.tokenizer import ChatTokenizer
from datamodules.vision_language.chat_dataset import ImageProcessor
from datamodules.vision_language.predict_questions import PredictDataset
from lightning_modules.multimodal.export.image_text_export import choose_target
from lightning_modules.multimodal.export.model_card import image_text_card
from tests.support.families.bos_tokenizers import KINDS, WITH_BOS, WITHOUT_BOS
from tests.support.families.image_text_exports import Computed, export, tiny_parts
from tests.support.outputs.model_card import run_code

NUMBERS = np.random.default_rng(0)
ALPHA = Image.fromarray(NUMBERS.integers(0, 256, (70, 40, 4), np.uint8), "RGBA")
DEEP = Image.fromarray(NUMBERS.integers(0, 65_536, (30, 90)).astype(np.uint16))
LARGE = Image.fromarray(NUMBERS.integers(0, 256, (700, 900, 3), np.uint8))  # a JPEG that is decoded at a smaller scale
PICTURES = {"alpha": (ALPHA, "PNG"), "16 bits": (DEEP, "PNG"), "large": (LARGE, "JPEG")}
QUESTION = "<image>\nWhat is shown here?"


@pytest.mark.parametrize("tiling", ["llava_next", "idefics3"])
@pytest.mark.parametrize(
    ("kind", "template", "picture"),
    [("llama 3", WITHOUT_BOS, "16 bits"), ("gemma", WITH_BOS, "large"), ("llama 2", WITH_BOS, "alpha")],
)
def test_the_card_answers_as_predict_does(tmp_path, capsys, tiling, kind, template, picture):
    published = KINDS[kind]()
    published.chat_template = template
    tokenizer = ChatTokenizer(published, kind)
    parts = tiny_parts(tokenizer, tiling, 3)
    file = io.BytesIO()
    PICTURES[picture][0].save(file, PICTURES[picture][1])
    (tmp_path / "picture.png").write_bytes(file.getvalue())
    (tmp_path / "q.jsonl").write_text(json.dumps({"question": QUESTION, "image": "picture.png"}) + "\n")
    questions = PredictDataset(tmp_path / "q.jsonl", ImageProcessor(parts.layout, 10**7))
    here = Computed(parts, tokenizer, questions.item(0, 0))
    answer = tokenizer.decode(here.answer())

    export(parts, tokenizer, tmp_path)
    card = image_text_card(choose_target(parts.layout, parts.projector), "A", parts.layout, {})
    (tmp_path / "README.md").write_text(card.usage)
    capsys.readouterr()
    (names,) = run_code(tmp_path)
    assert capsys.readouterr().out == answer + "\n"
    assert len(answer) > 1
    inputs = names["inputs"]
    own = inputs["input_ids"] < parts.placeholder
    assert torch.equal(inputs["input_ids"][own], here.tokens[own])
    torch.testing.assert_close(inputs["pixel_values"].flatten(0, 1), here.pixels, atol=1e-6, rtol=0)
    for options in ({}, {"add_special_tokens": False}, {"add_special_tokens": True}):
        tokens = names["processor"](
            images=[names["read_image"](tmp_path / "picture.png")], text=names["text"], **options
        )
        assert tokens["input_ids"][0] == inputs["input_ids"][0].tolist()
