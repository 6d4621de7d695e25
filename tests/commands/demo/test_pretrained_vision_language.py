"""Tests the page of a fine-tuned image-text model: equal to `predict`, over several turns."""

import json

import pytest
from PIL import Image

from commands.answers.answer_service import Turn, UploadedFile, UserInputError, UserQuestion
from tests.support.demo import demo_server
from tests.support.families.tiny_image_text import write_tiny_image_text
from tests.support.outputs.jsonl import read_jsonl


def test_the_answer_is_that_of_predict(tmp_path, monkeypatch):
    from commands.cli.main import main

    monkeypatch.chdir(tmp_path)
    records = []
    for name, color in (("red", (220, 30, 30)), ("blue", (30, 40, 220))):
        Image.new("RGB", (56, 56), color).save(f"{name}.png")
        turns = [{"role": "user", "content": "<image>\nwhich colour?"}, {"role": "assistant", "content": name}]
        records.append({"messages": turns, "image": f"{name}.png"})
    (tmp_path / "chats.jsonl").write_text("\n".join(map(json.dumps, records)))
    questions = [{"question": "which colour?", "image": record["image"]} for record in records]
    (tmp_path / "questions.jsonl").write_text("\n".join(map(json.dumps, questions)))
    model = {"path": str(write_tiny_image_text("qwen2_5_vl", tmp_path / "model")), "max_new_tokens": 4}
    chats = [{"path": "chats.jsonl"}]
    data = {"train": chats, "validation": chats, "questions": "questions.jsonl", "batch_size": 2, "num_workers": 0}
    config = {
        "model": {
            "class_path": "PretrainedVisionLanguageModel",
            "init_args": {**model, "learning_rate": 0.001, "language_model": {"trainable": "full"}},
        },
        "data": {"class_path": "ImageChats", "init_args": data},
        "trainer": {"max_steps": 2, "accelerator": "cpu", "enable_progress_bar": False, "num_sanity_val_steps": 0},
        "best_checkpoint": {"monitor": "val/loss", "mode": "min"},
    }
    (tmp_path / "config.yaml").write_text(json.dumps(config))
    main(["fit", "--config", "config.yaml", "--run_name", "a"])
    main(["predict", "--run_name", "a"])
    (predictions,) = (tmp_path / "runs/a").glob("predictions*.jsonl")
    lines = read_jsonl(predictions)
    demo = demo_server.loaded("a")
    assert len(lines) == 2
    assert "lean" not in [field.name for field in demo.fields]
    for line, record in zip(lines, records, strict=True):
        file = UploadedFile("x.png", (tmp_path / record["image"]).read_bytes())
        question = UserQuestion({"question": "which colour?"}, {"picture": [file]})
        blocks = demo_server.answered(demo, question)
        assert blocks["answer"].text == line["answer"]
        assert "blind" in blocks
        assert "answer" in demo_server.answered(demo, question._replace(turns=[Turn("first?", "red")]))
    assert len(demo.examples()) == 2
    demo_server.check_export(tmp_path, demo, monkeypatch)
    with pytest.raises(UserInputError, match="expected an image"):
        demo_server.answered(demo, question._replace(files={"picture": [UploadedFile("x.png", b"none")]}))
