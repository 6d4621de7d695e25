"""Tests the DataModule of rendered scenes."""

import logging
from typing import Any

import numpy as np
import pytest

from datamodules.multimodal.batch import IGNORE, ImageLayout
from datamodules.multimodal.synthetic_split import Split
from datamodules.vision_language.rendered_scenes import RenderedScenes
from datamodules.vision_language.scenes.question_types import KINDS
from datamodules.vision_language.scenes.scene import World
from datamodules.vision_language.scenes.tasks import SceneTasks, Tasks
from engine.data.samplers import MicroBatchRequest
from tests.support.fake_trainer import fake_trainer


def _data(**settings: Any) -> RenderedScenes:
    data = RenderedScenes(**{"batch_size": 8, "num_samples": 64, "validation_size": 20, "test_size": 50, **settings})
    data.image_layout = ImageLayout(size=32, tokens=16, max_tiles=data.max_tiles)
    return data


def _evaluated(data: RenderedScenes, stage: str) -> RenderedScenes:
    data.setup(stage)
    data.trainer = fake_trainer(stage)  # type: ignore[assignment]
    return data


def test_a_batch_has_images_and_their_descriptions() -> None:
    data = _data(packed_length=256)
    data.setup("fit")
    (batch,) = data.train_set[MicroBatchRequest(0, np.arange(8))]
    rows, images = batch.rows, batch.encoder_input
    assert images.pixels.shape == (8, 3, 32, 32)
    assert images.views.tolist() == [1] * 8
    assert rows.placeholders.tolist() == [16] * 8
    assert int((rows.tokens == data.tokenizer.placeholder).sum()) == 8 * 16
    scenes = SceneTasks(World(), Tasks(), 0)
    answers = sorted(scenes.sample(Split.TRAIN, 0, index).answer for index in range(8))
    turns = data.tokenizer.tokenizer.decode(rows.labels[rows.labels != IGNORE]).split("<|im_end|>")
    assert sorted(turn.strip() for turn in turns if turn.strip()) == answers
    for row, index in enumerate(rows.samples.tolist()):
        picture = scenes.picture(scenes.sample(Split.TRAIN, 0, index))
        assert np.array_equal(images.pixels[row].permute(1, 2, 0).numpy(), np.asarray(picture))


@pytest.mark.parametrize("fresh", [True, False])
def test_another_epoch_has_other_samples_if_wished(fresh: bool) -> None:
    data = _data(fresh_samples=fresh)
    data.setup("fit")
    source = data.train_set.source
    assert (source.sample(0, 3) == source.sample(1, 3)) is not fresh


def test_larger_pictures_are_split_and_smaller_ones_stretched() -> None:
    data = _data(world=World(size=64), max_tiles=2)
    data.setup("fit")
    item = data.train_set.source.item(0, 0)
    assert item.encoder_input.tile_positions.tolist() == [0, 1, 2, 3, 4]
    assert item.counts == (5 * 17,)
    data = _data(world=World(size=24))
    data.setup("fit")
    assert data.train_set.source.item(0, 0).encoder_input.pixels.shape == (1, 3, 32, 32)


@pytest.mark.parametrize("stage", ["validate", "test", "predict"])
def test_questions_answers_and_images_are_given_to_reports(stage: str) -> None:
    data = _evaluated(_data(), stage)
    split = Split.VALIDATION if stage == "validate" else Split.TEST
    for index in range(5):
        sample = data.scenes.sample(split, 0, index)
        assert data.question(index) == sample.question.removesuffix("\n<image>")
        assert data.right_answer(index) == sample.answer
        assert data.kind(index) == sample.kind
        assert [np.asarray(image).tolist() for image in data.images(index)] == [
            np.asarray(data.scenes.picture(sample)).tolist()
        ]
        assert data.grade(index, sample.answer).get("exact", (1.0, 1.0)) == (1.0, 1.0)
        assert data.describe(index)["right_answer"] == sample.answer
        assert data.evaluated.name(index).startswith(f"{index} (")


def test_all_stages_of_a_training_have_the_same_tokens() -> None:
    captions = _data(tasks=Tasks(caption_share=1.0), seed=1)
    questions = _data(tasks=Tasks(caption_share=0.0), world=World(grid=3), seed=2)
    assert captions.tokenizer.identity == questions.tokenizer.identity


def test_every_word_is_one_token_and_unseen_wordings_are_of_tokens_that_training_has() -> None:
    data = _data()
    encode = data.tokenizer.encode
    trained = set()
    for kind in KINDS:
        tasks = SceneTasks(World(), Tasks(caption_share=0, task_mix={kind: 1.0}))
        for index in range(150):
            sample = tasks.sample(Split.TRAIN, 0, index)
            question = sample.question.removesuffix("\n<image>")
            tokens = encode(question)
            trained.update(tokens)
            assert len(tokens) <= len(question.split()) + 1, question
            assert len(encode(sample.answer)) == len(sample.answer.split())
    for kind in KINDS:
        tasks = SceneTasks(World(), Tasks(caption_share=0, task_mix={kind: 1.0}, unseen_wordings=1.0))
        for index in range(30):
            question = tasks.sample(Split.TEST, 0, index).question.removesuffix("\n<image>")
            assert set(encode(question)) <= trained, question


@pytest.mark.slow
def test_the_order_belongs_to_the_scenes_it_was_made_of() -> None:
    def ordered(**settings: Any) -> Any:
        data = _data(**settings)
        data.setup("fit")
        return data._order_identity()["scenes"]

    assert ordered() == ordered()
    assert ordered() != ordered(tasks=Tasks(caption_share=0.5))
    assert ordered() != ordered(seed=3)


def test_the_identity_of_the_samples_is_that_of_earlier_checkpoints() -> None:
    """An epoch that an earlier version began is resumed, whatever its settings are called now."""
    world = "world=World(grid=2, colours=4, shapes=3, max_objects=3, size=32, held_out=0.2)"
    tasks = "tasks=Tasks(caption_share=0.3, question_mix={'empty': 1.0}, unseen_wordings=0.2, image_position="
    assert RenderedScenes(World(), Tasks(task_mix={"empty": 1.0}), seed=3).sample_identity() == (
        f"SceneTasks({world}, {tasks}'question_first'), seed=3), fresh_samples=True, version 2"
    )
    trained = RenderedScenes(tasks=Tasks(training_mix={"empty": 2.0})).sample_identity()
    assert ", question_mix={}, training_mix={'empty': 2.0}, unseen" in trained


def test_chance_without_the_picture_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, logger="lockstep"):
        _data().setup("fit")
    assert "chance without the picture: colour_at 0.250" in caplog.text
    assert "all questions 0.333" in caplog.text


@pytest.mark.parametrize("name", ["num_samples", "validation_size", "test_size", "max_tiles"])
def test_sizes_that_are_none_are_refused(name: str) -> None:
    with pytest.raises(ValueError, match=name):
        _data(**{name: 0})
