"""Tests fit, test and predict on chat files: all formats train alike."""

import json

import pytest
import yaml

from datamodules.multimodal.synthetic_split import Split
from datamodules.vision_language.files import parquet_rewrite
from datamodules.vision_language.scenes.scene import World
from datamodules.vision_language.scenes.tasks import SceneTasks, Tasks
from tests.support.data_files.vision_language_files import (
    Sample,
    colored,
    encoded,
    png,
    write_finevision_parquet,
    write_jsonl,
    write_llava,
    write_minimind_parquet,
)
from tests.support.families.colored_squares import write_config
from tests.support.families.image_chat_files import BLUE, GREEN, RED


def scenes(number):
    """Samples of the embedded data."""
    tasks = SceneTasks(World(), Tasks(), 0)
    samples = [tasks.sample(Split.TRAIN, 0, index) for index in range(number)]
    return [
        Sample([("user", sample.question), ("assistant", sample.answer)], [encoded(tasks.picture(sample))])
        for sample in samples
    ]


def options(folder, *sources, **settings):
    """Return the options of a tiny run: the model's section, and the data's in a file of its own."""
    data = {"class_path": "ImageChats", "init_args": {"batch_size": 8, "train": list(sources), **settings}}
    path = folder / f"data-{len(list(folder.glob('data-*')))}.yaml"
    path.write_text(yaml.safe_dump({"data": data}))
    return [*write_config(folder), "--config", str(path)]


@pytest.mark.slow
def test_any_form_of_the_same_samples_trains_the_same(lockstep, tmp_path):
    """Only the data section differs between a LLaVA folder, minimind-v's Parquet, FineVision's Parquet and JSONL."""
    samples = scenes(24)
    sources = {
        "llava": {"path": str(write_llava(tmp_path / "chats.json", samples, tmp_path)), "images": str(tmp_path)},
        "minimind": {"path": str(write_minimind_parquet(tmp_path / "minimind.parquet", samples))},
        "finevision": {"path": str(write_finevision_parquet(tmp_path / "finevision.parquet", samples))},
        "jsonl": {"path": str(write_jsonl(tmp_path / "chats.jsonl", samples, tmp_path))},
    }
    runs = {}
    for name, source in sources.items():
        arguments = options(tmp_path, source, validation_share=0.1)
        steps = ["--trainer.max_steps", "6", "--trainer.val_check_interval", "3"]
        runs[name] = lockstep("fit", *arguments, *steps, name=name)
    losses = {name: run.series("train/loss") for name, run in runs.items()}
    assert list(losses["llava"]) == list(range(1, 7))
    for name in sources:
        for metric in ("train/loss", "val/loss", "val/token_f1", "val/baseline/blind/loss"):
            expected, actual = runs["llava"].series(metric), runs[name].series(metric)
            assert expected
            assert expected.keys() == actual.keys()
            assert max(abs(expected[step] - actual[step]) for step in expected) < 1e-6, (name, metric)


def test_large_row_groups_are_rewritten_by_prepare(lockstep, tmp_path, monkeypatch, messages):
    monkeypatch.setattr(parquet_rewrite, "MAX_ROWS", 10)
    path = write_minimind_parquet(tmp_path / "large.parquet", [colored(number) for number in range(24)])
    arguments = options(tmp_path, {"path": str(path)}, validation_share=0.1, root=str(tmp_path / "root"))
    with pytest.raises(ValueError, match="large.parquet.*train.py prepare"):
        lockstep("fit", *arguments, name="early")
    lockstep("prepare", *arguments, name="prepared")
    assert any("large.parquet: rewritten with smaller row groups" in line for line in messages)
    run = lockstep("fit", *arguments, name="a")
    assert list(run.series("train/loss")) == [1, 2]


def test_a_model_trained_on_files_answers_new_images_in_order(lockstep, tmp_path, messages):
    """fit, test and predict: a model that has learned the colors answers questions about new images in order."""
    colors = {"red": RED, "green": GREEN, "blue": BLUE}
    user_turn = ("user", "<image>\nWhat colour?")
    samples = [Sample([user_turn, ("assistant", name)], [png(color, 12)]) for name, color in colors.items()] * 16
    path = write_llava(tmp_path / "chats.json", samples)
    order = "blue", "red", "green"
    asked_about = [{"image": f"{name}.jpg", "question": "What colour?", "id": name} for name in order]
    for name, color in colors.items():
        (tmp_path / f"{name}.jpg").write_bytes(png(color, 30, "JPEG"))
    (tmp_path / "questions.jsonl").write_text("\n".join(map(json.dumps, asked_about)))
    tests = [{"path": str(write_minimind_parquet(tmp_path / "test.parquet", samples[:3]))}]
    arguments = options(tmp_path, {"path": str(path)}, test=tests, questions=str(tmp_path / "questions.jsonl"))
    training = ["--trainer.max_steps", "48", "--model.init_args.learning_rate", "1e-2"]
    best = ["--best_checkpoint.monitor", "val/loss", "--best_checkpoint.mode", "min"]
    run = lockstep("fit", *arguments, *training, *best, name="a")
    lockstep("test", *arguments, name="a")
    assert list(run.series("test/exact").values()) == [1.0] == list(run.series("test/token_f1").values())
    assert list(run.series("test/baseline/blind/exact").values())[0] < 0.5
    lockstep("predict", *arguments, name="a")
    lines = run.predictions()
    assert lines == [{**question, "answer": question["id"]} for question in asked_about]


def test_a_question_that_is_longer_than_the_context_is_refused(lockstep, tmp_path):
    """Without the check, attention over a hundred thousand tokens ran for minutes and printed nothing."""
    path = write_llava(tmp_path / "chats.json", [colored(number) for number in range(8)])
    (tmp_path / "questions.jsonl").write_text('{"question": "short"}\n' + json.dumps({"question": "a 1 " * 25_000}))
    test = {"path": str(write_jsonl(tmp_path / "t.jsonl", [Sample([("user", "b " * 50_000), ("assistant", "c")], [])]))}
    arguments = options(tmp_path, {"path": str(path)}, test=[test], questions=str(tmp_path / "questions.jsonl"))
    lockstep("fit", *arguments, "--trainer.max_steps", "1", name="a")
    for command, name in (("predict", r"1 \(.*questions.jsonl, line 2\)"), ("test", r"0 \(.*t.jsonl, line 1\)")):
        expected = rf"sample {name}: [\d,]+ tokens, images included, but the language model has 32,768 positions"
        with pytest.raises(ValueError, match=expected):
            lockstep(command, *arguments, name="a")
