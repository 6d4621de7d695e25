"""Tests which questions an evaluation asks, in which order, and that it decodes each image once."""

from types import SimpleNamespace

import numpy as np
import pytest

from datamodules.vision_language.evaluation_dataset import select_samples
from datamodules.vision_language.mixture import Mixture
from datamodules.vision_language.source_config import SourceSettings
from engine.data.samplers import MicroBatchRequest
from tests.support.data_files.vision_language_files import Sample, png, write_llava
from tests.support.fake_trainer import fake_trainer
from tests.support.families.image_chat_files import LAYOUT, RED, module


@pytest.mark.parametrize(("samples", "size"), [(40, 3), (100_000, 1000), (1000, 999), (5, 5), (5, 50)])
def test_an_evaluation_takes_short_stretches_from_everywhere(samples, size):
    indices = select_samples(samples, size)
    assert len(np.unique(indices)) == min(samples, size)
    assert (np.diff(indices) > 0).all()
    assert indices.min() >= 0
    assert indices.max() < samples
    if samples == 100_000:
        assert 32 <= (np.diff(indices) > 1).sum() + 1 <= 64
        assert (np.histogram(indices, 4, (0, samples))[0] > 100).all()


def test_questions_are_ordered_without_decoding_an_image(chats, tmp_path, monkeypatch):
    """Lengths follow from texts and headers, and an evaluation reads each text once."""
    samples = [
        Sample([("user", "<image>\n" + "word " * length), ("assistant", f"{length}")], [png(RED, size)])
        for length, size in ((50, 8), (1, 8), (1, 64), (20, 8))
    ]
    source = SourceSettings(str(write_llava(tmp_path / "lengths.json", samples)))
    data = module(chats, validation=[source])
    data.image_layout = LAYOUT._replace(max_tiles=4)
    reads = []
    read = Mixture.read
    monkeypatch.setattr(Mixture, "read", lambda self, *location: reads.append(location) or read(self, *location))
    monkeypatch.setattr("datamodules.vision_language.chat_dataset.decode", None)
    data.setup("validate")
    assert data.validation_set._order.tolist() == [1, 3, 0, 2]  # 64 pixels are 17 views
    assert [data.validation_set.source.messages(index)[-1]["content"] for index in range(4)] == ["50", "1", "1", "20"]
    assert len(reads) == 4


def test_each_image_is_decoded_once_for_an_evaluation(chats, monkeypatch):
    from datamodules.vision_language import chat_dataset

    names = []
    decode = chat_dataset.decode

    def counted(data, name, *rest):
        names.append(name)
        return decode(data, name, *rest)

    monkeypatch.setattr(chat_dataset, "decode", counted)
    data = module(chats, validation_share=0.2)
    data.setup("validate")
    size = len(data.validation_set)
    data.validation_set[MicroBatchRequest(0, np.arange(size))]
    assert len(names) == size == len(set(names))


def test_the_last_answer_of_several_is_asked_for(tmp_path):
    turns = [("user", "<image>\nColour?"), ("assistant", "red"), ("user", "Shape?"), ("assistant", "square")]
    open_end = [*turns, ("user", "Size?")]
    path = write_llava(tmp_path / "turns.json", [Sample(turns, [png(RED)]), Sample(open_end, [png(RED)])])
    data = module(SourceSettings(str(path)), validation=[SourceSettings(str(path))])
    data.setup("validate")
    data.trainer = fake_trainer("validate", state=SimpleNamespace(stage=None))
    data.validation_set.in_order = True
    batch = data.validation_set[MicroBatchRequest(0, np.arange(2))]
    text = data.tokenizer.tokenizer.decode(batch.prompts.tokens[0])
    assert text.endswith("Shape?<|im_end|>\n<|im_start|>assistant\n")
    assert "red<|im_end|>" in text
    assert data.grade(0, "Square")["exact"] == (1, 1)
    assert data.grade(0, "red")["exact"] == (0, 1)
    assert data.question(0) == "Colour?\nShape?"
    assert data.right_answer(0) == "square"
    assert data.grade(1, "small") == {}
    assert data.right_answer(1) == ""  # the reference is unknown
    assert data.images(0)[0].getpixel((0, 0)) == RED
    data.trainer = None
