"""Tests that an image file is accepted or refused alike in training and in predict, in every family."""

import json
import struct
import zlib

import numpy as np
import pytest
from PIL import Image

from datamodules.image_classifier.sources.image_folder import read_folder, read_unlabeled
from datamodules.multimodal.batch import ImageLayout
from datamodules.vision_language.chat_dataset import ImageProcessor
from datamodules.vision_language.files.json_chats import JsonChats
from datamodules.vision_language.predict_questions import PredictDataset
from engine.data.errors import BadSampleError
from tests.support.data_files.vision_language_files import encoded

SHAPE, SIZE = (3, 8, 8), 8


def bomb():
    header = b"IHDR" + struct.pack(">IIBBBBB", 60_000, 60_000, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + struct.pack(">I", 13) + header + struct.pack(">I", zlib.crc32(header))


def palette():
    image = Image.new("P", (16, 16), 0)
    image.putpalette([200, 10, 10, 10, 10, 200])
    image.paste(1, (0, 0, 8, 16))
    return image


RED, DEEP = Image.new("RGB", (16, 16), (200, 10, 10)), np.full((16, 16), 40_000, np.uint16)
TURNED = Image.Exif()
TURNED[0x0112] = 6
READ = {
    "cmyk": encoded(RED.convert("CMYK"), "JPEG"),
    "deep": encoded(Image.fromarray(DEEP), "PNG"),
    "transparent": encoded(palette(), "PNG", transparency=0),
    "turned": encoded(RED, "JPEG", exif=TURNED),
    "animated": encoded(RED, "GIF", save_all=True, append_images=[Image.new("RGB", (16, 16), "blue")]),
}
BAD = {
    "bomb": bomb(),
    "text": b"not an image",
    "empty": b"",
    "cut": encoded(RED, "JPEG")[:300],
    "tiff": encoded(RED, "TIFF"),
}


def answers(folder, data):
    """Return the results of the four readers of a file: the mean color, or the message."""
    for name in ("train/a", "train/b"):
        (folder / name).mkdir(parents=True)
        (folder / name / "image.png").write_bytes(data)
        (folder / name / "other.png").write_bytes(data)
    chat = {"messages": [{"role": "user", "content": "Why?"}], "image": "train/a/image.png"}
    (folder / "chats.jsonl").write_text(json.dumps(chat))
    (folder / "questions.jsonl").write_text(json.dumps({"question": "Why?", "image": "train/a/image.png"}))
    processor = ImageProcessor(ImageLayout(SIZE, 1, 1), 64_000_000)
    chats = JsonChats(folder / "chats.jsonl", True)
    for read in (
        lambda: read_folder(folder, SHAPE, 0.3).train.read(np.array([0]))[0],
        lambda: read_unlabeled(folder / "train", SHAPE).read(np.array([0]))[0],
        lambda: processor.item(chats.read(0)).encoder_input.pixels[0],
        lambda: PredictDataset(folder / "questions.jsonl", processor).item(0, 0).encoder_input.pixels[0],
    ):
        try:
            yield read().mean((1, 2)).round().tolist()
        except BadSampleError as error:
            assert "\n" not in str(error)
            yield None


@pytest.mark.parametrize("name", [*READ, *BAD])
def test_training_and_predict_of_each_family_agree(tmp_path, name):
    found = list(answers(tmp_path, {**READ, **BAD}[name]))
    assert found[0] == found[1]
    assert found[2] == found[3]
    assert found == [None] * 4 if name in BAD else np.abs(np.subtract(found[0], found[2])).max() <= 2
