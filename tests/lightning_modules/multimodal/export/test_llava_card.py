"""Tests the code on a Llava's model card: the tokens, pixels and answer equal those of `predict`."""

import numpy as np
import pytest
import torch

from datamodules.vision_language.chat_dataset import ImageProcessor
from datamodules.vision_language.chat_file import ImageChat
from tests.support.data_files.picture_forms import NOISE, PICTURES
from tests.support.families.bos_tokenizers import KINDS, WITH_BOS, WITHOUT_BOS
from tests.support.families.exported_llava import LAYOUT, export, predicted
from tests.support.outputs.model_card import run_code


def test_the_card_answers_as_predict_does_on_every_picture(tmp_path, capsys):
    parts, tokenizer = export(tmp_path, "llama 3", WITH_BOS)
    (tmp_path / "picture.png").write_bytes(PICTURES["transparent"])
    tokens, pixels, answer = predicted(parts, tokenizer, tmp_path)
    capsys.readouterr()
    (names,) = run_code(tmp_path)
    assert capsys.readouterr().out == answer + "\n"
    assert len(answer) > 1
    assert torch.equal(names["inputs"]["input_ids"], tokens)
    torch.testing.assert_close(names["inputs"]["pixel_values"], pixels, atol=1e-6, rtol=0)
    processor = ImageProcessor(LAYOUT, 10**7)
    for name, data in PICTURES.items():  # the code once is enough: what differs is read_image
        (tmp_path / "picture.png").write_bytes(data)
        read = names["read_image"](tmp_path / "picture.png")
        (expected,) = processor.decode_images(ImageChat(name, [], [data]))
        assert read.size == expected.size, name
        assert read.tobytes() == expected.tobytes(), name


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("template", [WITH_BOS, WITHOUT_BOS], ids=["with BOS", "without BOS"])
def test_every_way_of_calling_the_processor_gives_the_tokens_of_training(tmp_path, kind, template):
    from transformers import AutoProcessor

    parts, tokenizer = export(tmp_path, kind, template)
    (tmp_path / "picture.png").write_bytes(PICTURES["plain"])
    expected = predicted(parts, tokenizer, tmp_path)[0][0].tolist()
    processor, image = AutoProcessor.from_pretrained(tmp_path), NOISE.convert("RGB")
    for content in (
        "<image>\nWhat is shown here?",
        [{"type": "image", "image": image}, {"type": "text", "text": "\nWhat is shown here?"}],
    ):
        chat = [{"role": "user", "content": content}]
        text = processor.apply_chat_template(chat, add_generation_prompt=True)
        for options in ({}, {"add_special_tokens": False}, {"add_special_tokens": True}):
            assert processor(images=[image], text=text, **options)["input_ids"][0] == expected
        if not isinstance(content, str):  # of a text, transformers does not know the image
            one_step = processor.apply_chat_template(chat, add_generation_prompt=True, tokenize=True, return_dict=True)
            assert np.ravel(one_step["input_ids"]).tolist() == expected
