"""Tests that each class trains and answers as a plain loop of transformers, resumes bit-identically, is exported."""

import json

import pytest
import torch

from tests.distributed.conftest import forge, team  # noqa: F401  (fixtures)
from tests.lightning_modules.vision_language.pretrained.model_cards import assert_card_answers
from tests.lightning_modules.vision_language.pretrained.plain_loop import (
    answers,
    load,
    plain_conversation,
    plain_logits,
    plain_training,
)
from tests.lightning_modules.vision_language.pretrained.small_runs import (
    asked,
    assert_equal_weights,
    losses,
    options,
    predicted,
)
from tests.support.families.tiny_image_text import DIRECTORIES
from tests.tiers import slow

FAST = ("llava", "qwen2_5_vl")
"""Classes of the fast tier."""
CONVERSED = tuple(name for name in DIRECTORIES if name != "llava")
"""Classes with a conversation on one process; llava has it on two."""
SECOND = "and what is around it?"


@pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")  # of transformers' PaliGemma
@pytest.mark.parametrize("name", [name if name in FAST else slow(name) for name in DIRECTORIES])
def test_a_class_trains_as_a_plain_loop_resumes_and_is_exported(
    name, directory, chats, lockstep, tmp_path, monkeypatch, capsys
):
    """All weights train for four optimizer steps. The code of the model card answers, too."""
    settings = options(directory(name), chats)
    through = lockstep("fit", *settings, "--trainer.max_steps", "4", name="through")
    expected, plain = plain_training(directory(name), chats, 4)
    assert losses(through) == pytest.approx(expected, rel=1e-5, abs=0)

    lockstep("fit", *settings, "--trainer.max_steps", "2", name="stopped")
    resumed = lockstep("fit", *settings, "--trainer.max_steps", "4", "--ckpt_path", "last", name="stopped")
    assert losses(resumed) == losses(through)
    assert_equal_weights(resumed, through)

    run = lockstep("predict", "--ckpt_path", "last", name="through")
    lockstep("export", "--ckpt_path", "last", "--output", str(tmp_path / "whole"), name="through")
    model, processor = load(tmp_path / "whole")
    assert type(model) is type(plain)
    assert answers(model, processor, chats) == predicted(run)
    assert_card_answers(tmp_path / "whole", chats, processor, predicted(run)[-1], monkeypatch, capsys)
    expected_logits = plain_logits(plain, processor, chats)
    # Adam amplifies the rounding of gradients that are almost zero.
    torch.testing.assert_close(plain_logits(model, processor, chats), expected_logits, rtol=0, atol=1e-3)


@pytest.fixture(scope="module")
def conversations(chats):
    """A conversation of two questions about each image, one without an image, and a single question."""
    lines = [{**record, "question": [record["question"], SECOND]} for record in asked(chats)]
    lines = [*lines, {"question": ["say red", "say it again"]}, asked(chats)[0]]
    path = chats / "conversations.json"
    path.write_text(json.dumps(lines, indent=1))
    return path


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
def test_a_class_converses_as_a_plain_loop(name, directory, chats, conversations, lockstep, tmp_path):
    lockstep("fit", *options(directory(name), chats), "--trainer.max_steps", "3", name="a")
    lockstep("export", "--output", str(tmp_path / "whole"), name="a")
    run = lockstep("predict", "--data.init_args.questions", str(conversations), name="a")
    if name != "paligemma":
        assert_answers_are_plain(run, tmp_path / "whole", conversations, chats)
        return
    lines = run.predictions()
    assert [line["answer"] for line in lines[:-1]] == [None] * 8
    assert lines[-1]["answer"] is not None
    assert all(len(line["answers"]) == 1 and "turn" in line["why"] for line in lines[:-1]), "its prompt has no turns"


@pytest.mark.slow
@pytest.mark.distributed
def test_two_processes_train_and_converse_as_one(directory, chats, conversations, lockstep, team, tmp_path):  # noqa: F811
    """Each rank computes a micro-batch of two chats; some have no image, on one rank alone."""
    settings = [*options(directory("llava"), chats), "--data.init_args.micro_batch_size", "2"]
    steps = ["--trainer.max_steps", "3"]
    one = lockstep("fit", *settings, *steps, name="one")
    two = team("fit", *settings, *steps, name="two")
    assert two.end() == [0, 0], two.output
    assert losses(two) == pytest.approx(losses(one), abs=1e-5)

    settings += ["--data.init_args.questions", str(conversations)]
    run = lockstep("predict", *settings, name="one")
    alone = (run.folder / "predictions.jsonl").read_text()
    lockstep("export", "--output", str(tmp_path / "whole"), name="one")
    assert_answers_are_plain(run, tmp_path / "whole", conversations, chats)
    both = team("predict", *settings, name="one")
    assert both.end() == [0, 0], both.output
    assert (both.folder / "predictions.jsonl").read_text() == alone
    assert len(alone.splitlines()) == 9
