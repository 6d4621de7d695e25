"""Tests the augmentation of a training sample."""

from typing import Any

import numpy as np

from datamodules.document_qa.augmentation.augmenter import Augmenter
from datamodules.document_qa.augmentation.settings import AugmentationSettings
from tests.support.families.tiny_documents import TinyDocument, TinyQuestions

ALL = AugmentationSettings(
    enabled=True, paraphrase=0.8, distractors=2, scan=0.5, jpeg=0.5, blur=0.5, flips="horizontal"
)


def altered(epoch: int, index: int, seed: int = 1, settings: AugmentationSettings = ALL) -> Any:
    samples = TinyQuestions(0, 64, together=3)
    return Augmenter(settings, seed).augment(
        samples.questions(epoch, index),
        samples.document(epoch, index),
        [1, 2],
        lambda: samples.another_document(epoch, index),
        epoch,
        index,
    )


def test_augmentation_keeps_the_right_answer() -> None:
    for index in range(64):
        questions, document, ranked = altered(0, index)
        for question, before in zip(questions, TinyQuestions(0, 64, together=3).questions(0, index), strict=True):
            assert question.answer == before.answer
            assert sorted(question.options) == sorted(before.options)
            assert question.right is None or question.options[question.right] == before.answer
        assert ranked[:2] == (1, 2)
        assert tuple(document.pages)[:3] == TinyDocument(index // 4).pages


def test_augmentation_depends_on_seed_epoch_and_sample_alone() -> None:
    def seen(*position: int) -> Any:
        questions, document, ranked = altered(*position)
        pictures = [np.asarray(document.picture(page)).tobytes() for page in ranked]
        return questions, ranked, pictures

    first = [seen(0, index) for index in range(16)]
    assert first[::-1] == [seen(0, index) for index in reversed(range(16))]
    assert first != [seen(1, index) for index in range(16)]
    assert first != [seen(0, index, 2) for index in range(16)]


def test_nothing_happens_where_all_is_off() -> None:
    off = AugmentationSettings(True, False, 0, 0, 0, 0, 0, 0)
    for index in range(8):
        questions, document, ranked = altered(0, index, settings=off)
        assert questions == TinyQuestions(0, 64, together=3).questions(0, index)
        assert isinstance(document, TinyDocument)
        assert ranked == (1, 2)
