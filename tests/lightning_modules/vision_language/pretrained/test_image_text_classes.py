"""Tests that each class trains and answers as a plain loop of transformers, resumes bit-identically, is exported."""

import json

import pytest
from PIL import Image

from tests.distributed.conftest import forge, team  # noqa: F401  (fixtures)
from tests.lightning_modules.vision_language.pretrained.plain_loop import (
    QUESTION,
    RATE,
    answers,
    load,
    plain_conversation,
    plain_losses,
)
from tests.support.families.tiny_image_text import CLASSES, write_tiny_image_text
from tests.support.outputs.jsonl import read_jsonl

COLOURS = {"red": (220, 30, 30), "green": (30, 180, 40), "blue": (30, 40, 220)}
SIZES = [(56, 56), (90, 40), (40, 70), (56, 30), (28, 28)]
RESUMED = ("llava", "qwen2_5_vl")
"""Classes of the fast tier. They show that a run resumes; the others resume by the same code."""
CONVERSED = tuple(name for name in CLASSES if name != "llava")
"""Classes with a conversation on one process; llava has it on two."""


@pytest.fixture(scope="module")
def chats(tmp_path_factory):
    """Eight chats, two of them without an image, and a question about each image."""
    folder, lines, questions = tmp_path_factory.mktemp("chats"), [], []
    for number, (width, height) in enumerate([*SIZES, (64, 48)]):
        color = list(COLOURS)[number % 3]
        Image.new("RGB", (width, height), COLOURS[color]).save(folder / f"{number}.png")
        questions.append({"question": f"<image>\n{QUESTION}", "image": f"{number}.png"})
        turns = [{"role": "user", "content": f"<image>\n{QUESTION}"}, {"role": "assistant", "content": color}]
        lines.append({"messages": turns, "image": f"{number}.png"})
    for color in ("red", "blue"):
        turns = [{"role": "user", "content": f"say {color}"}, {"role": "assistant", "content": color}]
        lines.append({"messages": turns})
    for name, records in (("chats", lines), ("questions", questions)):
        (folder / f"{name}.jsonl").write_text("\n".join(map(json.dumps, records)) + "\n")
    return folder


@pytest.fixture(scope="module")
def directory(tmp_path_factory):
    """directory(name): the directory of a tiny model."""
    built = {}

    def write(name):
        if name not in built:
            built[name] = write_tiny_image_text(name, tmp_path_factory.mktemp(name))
        return built[name]

    return write


def options(folder, chats, **model):
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


def predicted(run):
    return [record["answer"] for record in run.predictions()]


@pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")  # of transformers' PaliGemma
@pytest.mark.parametrize("name", RESUMED)
def test_a_class_trains_as_a_plain_loop_resumes_and_is_exported(name, directory, chats, lockstep, tmp_path):
    settings = options(directory(name), chats)
    through = lockstep("fit", *settings, "--trainer.max_steps", "4", name="through")
    losses = list(through.series("train/loss").values())
    assert losses == pytest.approx(plain_losses(directory(name), chats, 4), abs=1e-5)

    lockstep("fit", *settings, "--trainer.max_steps", "2", name="stopped")
    resumed = lockstep("fit", *settings, "--trainer.max_steps", "4", "--ckpt_path", "last", name="stopped")
    assert list(resumed.series("train/loss").values()) == losses

    run = lockstep("predict", name="through")
    lockstep("export", "--output", str(tmp_path / "whole"), name="through")
    assert answers(tmp_path / "whole", chats) == predicted(run)


SECOND = "and what is around it?"


@pytest.fixture(scope="module")
def conversations(chats):
    """A conversation of two questions about each image, one without an image, and a single question."""
    lines = [{**record, "question": [record["question"], SECOND]} for record in asked(chats)]
    lines = [*lines, {"question": ["say red", "say it again"]}, asked(chats)[0]]
    path = chats / "conversations.json"
    path.write_text(json.dumps(lines, indent=1))
    return path


def asked(chats):
    return read_jsonl(chats / "questions.jsonl")


def assert_answers_are_plain(run, whole, conversations, chats):
    """Compare the predictions of a run with those of a plain loop around its exported model."""
    lines = run.predictions()
    records = json.loads(conversations.read_text())
    assert [line["question"] for line in lines] == [record["question"] for record in records]
    model, processor = load(whole)
    expected = [plain_conversation(model, processor, record, chats) for record in records]
    assert [line.get("answers", [line["answer"]]) for line in lines] == expected
    assert [line["answer"] for line in lines] == [actual[-1] for actual in expected]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")  # of transformers' PaliGemma
@pytest.mark.parametrize("name", CONVERSED)
def test_a_class_trains_and_converses_as_a_plain_loop(name, directory, chats, conversations, lockstep, tmp_path):
    through = lockstep("fit", *options(directory(name), chats), "--trainer.max_steps", "3", name="a")
    losses = list(through.series("train/loss").values())
    assert losses == pytest.approx(plain_losses(directory(name), chats, 3), abs=1e-5)

    lockstep("export", "--output", str(tmp_path / "whole"), name="a")
    run = lockstep("predict", "--data.init_args.questions", str(conversations), name="a")
    if name != "paligemma":
        assert_answers_are_plain(run, tmp_path / "whole", conversations, chats)
        return
    lines = run.predictions()
    assert [line["answer"] for line in lines[:-1]] == [None] * 7
    assert lines[-1]["answer"] is not None
    assert all(len(line["answers"]) == 1 and "turn" in line["why"] for line in lines[:-1]), "its prompt has no turns"
    assert answers(tmp_path / "whole", chats) == predicted(lockstep("predict", name="a"))


@pytest.mark.slow
@pytest.mark.distributed
def test_two_processes_train_and_converse_as_one(directory, chats, conversations, lockstep, team, tmp_path):  # noqa: F811
    """Each rank computes a micro-batch of two chats; some have no image, on one rank alone."""
    settings = [*options(directory("llava"), chats), "--data.init_args.micro_batch_size", "2"]
    steps = ["--trainer.max_steps", "3"]
    one = lockstep("fit", *settings, *steps, name="one").series("train/loss")
    two = team("fit", *settings, *steps, name="two")
    assert two.end() == [0, 0], two.output
    assert list(two.series("train/loss").values()) == pytest.approx(list(one.values()), abs=1e-5)

    settings += ["--data.init_args.questions", str(conversations)]
    run = lockstep("predict", *settings, name="one")
    alone = (run.folder / "predictions.jsonl").read_text()
    lockstep("export", "--output", str(tmp_path / "whole"), name="one")
    assert_answers_are_plain(run, tmp_path / "whole", conversations, chats)
    both = team("predict", *settings, name="one")
    assert both.end() == [0, 0], both.output
    assert (both.folder / "predictions.jsonl").read_text() == alone
    assert len(alone.splitlines()) == 8


@pytest.mark.filterwarnings("ignore:.*is_gradient_checkpointing.*:FutureWarning")  # peft uses it
def test_adapters_beside_four_bits_resume_and_are_exported(directory, chats, lockstep, tmp_path):
    """Adapters load in peft over the original model, or merged; black images and packed rows are options as ever."""
    from peft import PeftModel

    folder = directory("qwen2_5_vl")
    parts = {"vision_tower": {"trainable": "none"}, "connector": {"trainable": "none"}}
    settings = options(folder, chats, language_model={"trainable": "lora", "quantize": "nf4"}, **parts)
    settings += ["--data.init_args.packed_length", "64"]
    through = lockstep("fit", *settings, "--trainer.max_steps", "4", name="adapters")
    lockstep("fit", *settings, "--trainer.max_steps", "2", name="halves")
    resumed = lockstep("fit", *settings, "--trainer.max_steps", "4", "--ckpt_path", "last", name="halves")
    assert resumed.series("train/loss") == through.series("train/loss")

    run = lockstep("predict", name="adapters")
    lockstep("export", "--merge", "--output", str(tmp_path / "whole"), name="adapters")
    assert answers(tmp_path / "whole", chats) == predicted(run)
    lockstep("export", "--output", str(tmp_path / "adapters"), name="adapters")
    model = PeftModel.from_pretrained(load(folder)[0], tmp_path / "adapters")
    assert any("lora_B" in name and weight.any() for name, weight in model.named_parameters())


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*is_gradient_checkpointing.*:FutureWarning")  # peft uses it
def test_adapters_over_weights_of_an_earlier_stage_are_exported_merged_only(directory, chats, lockstep, tmp_path):
    frozen = {"trainable": "none"}
    first = options(directory("llava"), chats, vision_tower=frozen, language_model=frozen)
    lockstep("fit", *first, "--trainer.max_steps", "1", name="first")
    parts = {"vision_tower": frozen, "connector": frozen, "language_model": {"trainable": "lora"}}
    second = options(directory("llava"), chats, init_from="first", **parts)
    lockstep("fit", *second, "--trainer.max_steps", "2", name="second")
    run = lockstep("predict", name="second")
    with pytest.raises(ValueError, match="an earlier stage trained weights of .*: export the whole model with --merge"):
        lockstep("export", "--output", str(tmp_path / "adapters"), name="second")
    lockstep("export", "--merge", "--output", str(tmp_path / "whole"), name="second")
    assert answers(tmp_path / "whole", chats) == predicted(run)
