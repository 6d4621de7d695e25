"""Configs of small trainings of a pretrained image-text model, and their chats, as files."""

import json

import numpy as np
import torch
from PIL import Image

from tests.lightning_modules.vision_language.pretrained.model_cards import PICTURE
from tests.lightning_modules.vision_language.pretrained.plain_loop import QUESTION, RATE
from tests.support.data_files.picture_forms import TURNED
from tests.support.outputs.jsonl import read_jsonl

COLOURS = {"red": (220, 30, 30), "green": (30, 180, 40), "blue": (30, 40, 220)}
SIZES = [(56, 56), (90, 40), (40, 70), (56, 30), (28, 28), (64, 48)]
FROZEN = {"trainable": "none"}


def write_chats(folder):
    """Write eight chats, two of them without an image, and a question about each image and about the card's picture."""
    lines, questions = [], []
    for number, size in enumerate(SIZES):
        color = list(COLOURS)[number % 3]
        Image.new("RGB", size, COLOURS[color]).save(folder / f"{number}.png")
        questions.append({"question": f"<image>\n{QUESTION}", "image": f"{number}.png"})
        turns = [{"role": "user", "content": f"<image>\n{QUESTION}"}, {"role": "assistant", "content": color}]
        lines.append({"messages": turns, "image": f"{number}.png"})
    for color in ("red", "blue"):
        turns = [{"role": "user", "content": f"say {color}"}, {"role": "assistant", "content": color}]
        lines.append({"messages": turns})
    noise = np.random.default_rng(0).integers(0, 256, (44, 60, 4), np.uint8)
    Image.fromarray(noise, "RGBA").save(folder / PICTURE, exif=TURNED)
    questions.append({"question": "<image>\nWhat is shown here?", "image": PICTURE})
    for name, records in (("chats", lines), ("questions", questions)):
        (folder / f"{name}.jsonl").write_text("\n".join(map(json.dumps, records)) + "\n")
    return folder


def options(folder, chats, **model):
    """Options of a training of all weights of a directory, with these settings of the model."""
    settings = {
        "path": str(folder),
        "learning_rate": RATE,
        "max_new_tokens": 4,
        "language_model": {"trainable": "full"},
        "vision_tower": {"trainable": "full"},
        "connector": {"trainable": "full"},
        **model,
    }
    data = {
        "train": [{"path": str(chats / "chats.jsonl")}],
        "validation": [{"path": str(chats / "chats.jsonl")}],
        "questions": str(chats / "questions.jsonl"),
        "batch_size": 8,
        "micro_batch_size": 4,
        "num_workers": 0,
    }
    config = {
        "model": {"class_path": "PretrainedVisionLanguageModel", "init_args": settings},
        "data": {"class_path": "ImageChats", "init_args": data},
        "trainer": {"accelerator": "cpu", "log_every_n_steps": 1, "limit_val_batches": 0, "max_epochs": -1},
        "best_checkpoint": {"monitor": "train/loss", "mode": "min"},
    }
    file = folder / "run.json"
    file.write_text(json.dumps(config))
    return ["--config", str(file)]


def adapter_options(folder, chats, quantize="none"):
    """Options of a training of adapters alone."""
    language_model = {"trainable": "lora", "quantize": quantize}
    return options(folder, chats, language_model=language_model, vision_tower=FROZEN, connector=FROZEN)


def losses(run):
    return list(run.series("train/loss").values())


def assert_equal_weights(one, other):
    """Compare the weights of the last checkpoints of two runs to the bit."""
    ours, theirs = (
        torch.load(run.folder / "checkpoints/last.ckpt", weights_only=True)["state_dict"] for run in (one, other)
    )
    assert ours.keys() == theirs.keys()
    assert [name for name, weight in ours.items() if not torch.equal(weight, theirs[name])] == []


def predicted(run):
    return [record["answer"] for record in run.predictions()]


def asked(chats):
    return read_jsonl(chats / "questions.jsonl")
