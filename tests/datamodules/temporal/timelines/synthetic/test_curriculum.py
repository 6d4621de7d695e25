"""Tests that timelines get longer and fuller from epoch to epoch, up to the configured synthesis."""

import numpy as np
import pytest

from datamodules.multimodal.synthetic_split import Split
from datamodules.temporal.timelines.channels import KEYS
from datamodules.temporal.timelines.datamodule import ResourceTimelines
from datamodules.temporal.timelines.synthetic.curriculum import Curriculum
from datamodules.temporal.timelines.synthetic.synthetic_timelines import SyntheticTimelines


def test_lessons_go_from_easy_to_hard():
    synthesis = SyntheticTimelines(min_steps=16, max_steps=48)
    lessons = Curriculum(synthesis, 4)
    lengths, alone = [], []
    for epoch in range(6):
        samples = [lessons.sample(Split.TRAIN, epoch, index) for index in range(200)]
        lengths.append(np.mean([len(sample.values) for sample in samples]))
        others = [np.delete(sample.present, KEYS.index(sample.facts.channel), 1) for sample in samples]
        alone.append(np.mean([not other.any() for other in others]))
    assert lengths == sorted(lengths[:4]) + lengths[4:]
    assert lengths[0] < 13
    assert lengths[4] > 28
    assert alone[0] == 1
    assert 0.4 < alone[2] < 0.65
    assert max(alone[4:]) < 0.05


def test_after_the_lessons_samples_equal_those_of_the_synthesis():
    synthesis = SyntheticTimelines()
    ours, theirs = Curriculum(synthesis, 2).sample(Split.TRAIN, 2, 7), synthesis.sample(Split.TRAIN, 2, 7)
    assert ours.question == theirs.question
    assert ours.answer == theirs.answer
    np.testing.assert_array_equal(ours.values, theirs.values)


def test_the_same_samples_in_every_epoch_cannot_get_harder():
    with pytest.raises(ValueError, match="easy_epochs draws new samples"):
        ResourceTimelines(easy_epochs=2, fresh_samples=False)
    with pytest.raises(ValueError, match="easy_epochs draws new samples"):
        ResourceTimelines(easy_epochs=2, cached_epochs=2)
