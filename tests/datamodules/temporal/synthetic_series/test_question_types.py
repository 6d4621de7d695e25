"""Tests generated questions: each option is right equally often, and each answer is true of its series."""

from collections import Counter

import numpy as np
import pytest

from datamodules.multimodal.synthetic_split import Split
from datamodules.temporal.series.normalization import normalize
from datamodules.temporal.synthetic_series.datamodule import (
    GeneratedQuestions,
    SyntheticSeries,
    SyntheticSeriesSettings,
)
from datamodules.temporal.synthetic_series.question_types import KINDS

NUMBER = 240


@pytest.fixture(scope="module", params=list(KINDS))
def kind(request):
    settings = SyntheticSeriesSettings(task_mix={request.param: 1.0})
    source = GeneratedQuestions(settings, Split.TRAIN, NUMBER)
    return request.param, [source.question(0, index) for index in range(NUMBER)]


def test_a_guess_from_the_texts_is_at_chance(kind):
    """All that a blind model reads: length, step, offset, scale, names. Each half of it has the same answers."""
    name, questions = kind
    options = questions[0].options
    answers = np.array([options.index(question.answer) for question in questions])
    chance, error = 1 / len(options), 3.5 * (NUMBER / 2 / len(options)) ** -0.5
    assert abs(np.bincount(answers, minlength=len(options)) / NUMBER - chance).max() < chance * error
    facts = []
    for question in questions:
        normalized = [normalize(series.values) for series in question.series]
        first, last = normalized[0], normalized[-1]
        numbers = [len(question.series[0].values), question.series[0].step, float(first.offset), float(first.scale)]
        facts.append([*numbers, float(last.scale) / float(first.scale), float(last.offset) - float(first.offset)])
    for column in np.array(facts, float).T:
        half = column > np.median(column)
        if min(half.sum(), (~half).sum()) > NUMBER / 5:
            shares = [np.bincount(answers[part], minlength=len(options)) / part.sum() for part in (half, ~half)]
            assert abs(shares[0] - shares[1]).max() < 2 * chance * error, name


def test_the_answers_are_true(kind):
    """Each kind by the plainest statistic that shows it; noise makes a few questions ambiguous."""
    name, questions = kind
    right = [
        plain_answer(name, [series.values for series in question.series]) == question.answer for question in questions
    ]
    assert np.mean(right) > {"season": 0.9, "outlier": 0.9, "trend": 0.95}.get(name, 0.93)


def plain_answer(name, series):
    first, options = series[0], KINDS[name].options
    if name == "trend":
        rise = np.mean(first[-len(first) // 4 :]) - np.mean(first[: len(first) // 4])
        return options[2] if abs(rise) < 0.35 * np.ptp(first) else options[0 if rise > 0 else 1]
    if name == "season":
        steps = np.arange(len(first))
        rest = first - np.polyval(np.polyfit(steps, first, 1), steps)
        power = [abs(np.exp(2j * np.pi * steps / period) @ rest) ** 2 for period in (4, 8, 12)]
        return options[int(np.argmax(power))] if max(power) > 0.25 * len(rest) * (rest @ rest) else options[3]
    if name == "outlier":
        off = np.abs(first - np.median(first)) / np.median(np.abs(first - np.median(first)))
        return options[min(2, int(3 * off.argmax() / len(first)))] if off.max() > 5.5 else options[3]
    second = series[1]
    if name == "correlation":
        shared = np.corrcoef(first, second)[0, 1]
        return options[2] if abs(shared) < 0.6 else options[0 if shared > 0 else 1]
    if name == "lag":
        delays = range(-7, 8)
        pairs = [
            (first[max(0, -d) : len(first) - max(0, d)], second[max(0, d) : len(first) + min(0, d)]) for d in delays
        ]
        scores = [np.corrcoef(*pair)[0, 1] for pair in pairs]
        delay = delays[int(np.argmax(scores))]
        return options[2] if abs(delay) < 3 else options[0 if delay > 0 else 1]
    return options[0 if first.argmax() / len(first) < second.argmax() / len(second) else 1]


def test_a_question_is_a_function_of_its_index():
    settings = SyntheticSeriesSettings()
    train, again = (GeneratedQuestions(settings, Split.TRAIN, 10, fresh=True) for _ in range(2))
    for epoch, index in ((0, 3), (2, 3), (0, 4)):
        ours, theirs = train.question(epoch, index), again.question(epoch, index)
        assert ours[:3] == theirs[:3]
        assert all(a.same(b) for a, b in zip(ours.series, theirs.series, strict=True))
    texts = {str(source.question(epoch, 3).series) for source, epoch in ((train, 0), (train, 1))}
    texts |= {
        str(GeneratedQuestions(settings, split, 10).question(0, 3).series) for split in (Split.VALIDATION, Split.TEST)
    }
    assert len(texts) == 4
    kinds = Counter(train.question(0, index).kind for index in range(600))
    assert min(kinds.values()) > 60
    assert len(kinds) == len(KINDS)


def test_the_identity_of_the_samples_is_that_of_earlier_checkpoints():
    assert SyntheticSeries().sample_identity() == "800005bd6b21"
    assert SyntheticSeries(fresh_samples=False).sample_identity() != "800005bd6b21"


def test_wrong_settings_are_refused_by_name():
    with pytest.raises(ValueError, match="expected 16 <= min_steps <= max_steps"):
        SyntheticSeriesSettings(min_steps=8)
    with pytest.raises(ValueError, match="task_mix: found"):
        SyntheticSeriesSettings(task_mix={"colour": 1.0})
    with pytest.raises(ValueError, match="test_size"):
        SyntheticSeries(test_size=0)
