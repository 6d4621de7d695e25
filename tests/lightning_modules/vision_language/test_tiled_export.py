"""Tests that a run with tiles answers the same in transformers, and that its export can be fine-tuned."""

import json

import pytest
from PIL import Image

from datamodules.vision_language.pretrained.processor import ModelProcessor
from tests.support.families.colored_squares import TOWER, write_run

COLORS = {"red": (220, 30, 30), "green": (30, 180, 40), "blue": (30, 40, 220)}
SIZES = [(16, 16), (60, 20), (20, 45), (9, 30), (33, 33), (64, 64)]
QUESTION = "<image>\nwhat colour ?"
TILINGS = {
    "llava_next": ("LlavaNextForConditionalGeneration", {"layer_norm": False}),
    "idefics3": ("Idefics3ForConditionalGeneration", {"kind": "pixel_shuffle", "bias": False, "layer_norm": False}),
}


@pytest.fixture(scope="module")
def chats(tmp_path_factory):
    """Chats about pictures of several aspect ratios, with and without transparency, and a question about each."""
    folder, lines, questions = tmp_path_factory.mktemp("chats"), [], []
    for number, size in enumerate(SIZES):
        color = list(COLORS)[number % 3]
        mode = "RGBA" if number % 2 else "RGB"
        Image.new("RGB", size, COLORS[color]).convert(mode).save(folder / f"{number}.png")
        turns = [{"role": "user", "content": QUESTION}, {"role": "assistant", "content": color}]
        lines.append({"messages": turns, "image": f"{number}.png"})
        questions.append({"question": QUESTION, "image": f"{number}.png"})
    for name, records in (("chats", lines), ("questions", questions)):
        (folder / f"{name}.jsonl").write_text("\n".join(map(json.dumps, records)) + "\n")
    return folder


def data(chats, **options):
    files = [{"path": str(chats / "chats.jsonl")}]
    settings = {
        "train": files,
        "validation": files,
        "questions": str(chats / "questions.jsonl"),
        "batch_size": 6,
        "num_workers": 0,
        **options,
    }
    return {"class_path": "ImageChats", "init_args": settings}


def predicted(run):
    return [record["answer"] for record in run.predictions()]


def answers(folder, chats):
    from transformers import AutoModelForImageTextToText

    model, processor = (
        AutoModelForImageTextToText.from_pretrained(folder),
        ModelProcessor(str(folder), folder).processor,
    )
    text = processor.apply_chat_template([{"role": "user", "content": QUESTION}], add_generation_prompt=True)
    for number in range(len(SIZES)):
        model_inputs = processor(
            images=[Image.open(chats / f"{number}.png").convert("RGB")], text=text, return_tensors="pt"
        )
        written = model.generate(**model_inputs, max_new_tokens=4)[0, model_inputs["input_ids"].shape[1] :]
        yield processor.decode(written, skip_special_tokens=True)


@pytest.mark.slow
@pytest.mark.parametrize("tiling", TILINGS)
def test_a_run_with_tiles_is_exported_and_fine_tuned(lockstep, tmp_path, messages, chats, tiling):
    name, projector = TILINGS[tiling]
    tower = {"config": TOWER, "trainable": "full"}
    model = {"projector": projector, "vision_tower": tower, "max_new_tokens": 4, "learning_rate": 0.01}
    settings = data(chats, max_tiles=2, tiling=tiling)
    options = write_run(tmp_path / "run.yaml", "VisionLanguageModel", model, settings, "val/loss", steps=40)
    options += ["--best_checkpoint.mode", "min", "--trainer.check_val_every_n_epoch", "40"]
    lockstep("fit", *options, name="a")
    run = lockstep("predict", *options, name="a")
    lockstep("export", *options, "--output", str(tmp_path / "out"), name="a")
    assert any(line.endswith(f"{name} of transformers") and line.startswith("exporting as a") for line in messages)
    here = predicted(run)
    assert len(set(here)) > 1, "it has learned to look"
    assert set(here) <= set(COLORS), "it has learned to look"
    assert list(answers(tmp_path / "out", chats)) == here

    tuned = {
        "class_path": "PretrainedVisionLanguageModel",
        "init_args": {
            "path": str(tmp_path / "out"),
            "learning_rate": 1e-6,
            "max_new_tokens": 4,
            "language_model": {"trainable": "full"},
            "connector": {"trainable": "full"},
        },
    }
    trainer = {"accelerator": "cpu", "limit_val_batches": 0, "max_steps": 1, "log_every_n_steps": 1}
    config = {"model": tuned, "data": data(chats), "trainer": trainer, "best_checkpoint": {"monitor": "train/loss"}}
    (tmp_path / "tuned.json").write_text(json.dumps(config))
    options = [
        "--config",
        str(tmp_path / "tuned.json"),
        "--best_checkpoint.mode",
        "min",
        "--trainer.log_every_n_steps",
        "1",
    ]
    lockstep("fit", *options, name="tuned")
    run = lockstep("predict", *options, name="tuned")
    assert predicted(run) == here, "a step at a tiny rate changes no answer"
    lockstep("export", *options, "--output", str(tmp_path / "again"), name="tuned")
    assert list(answers(tmp_path / "again", chats)) == here
