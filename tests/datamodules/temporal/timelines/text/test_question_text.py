"""Tests that questions and answers can be parsed back into their facts."""

from itertools import count, product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from datamodules.temporal.timelines.channels import CHANNELS, Format, Scale
from datamodules.temporal.timelines.text.facts import Direction, Facts, Pace, StartTime, Task
from datamodules.temporal.timelines.text.number_format import Notation
from datamodules.temporal.timelines.text.question_text import answer, question, read_answer, read_question
from datamodules.temporal.timelines.text.templates import answer_templates, question_templates

STEPS = 100


@st.composite
def facts_and_notation(draw):
    """Facts as a curve could have them, in either format and with any length of a step."""
    notation = Notation(draw(st.sampled_from(Format)), draw(st.sampled_from([1, 10, 50, 100, 250, 1000, 57_000])))
    channel = draw(st.sampled_from(CHANNELS))
    scale = Scale.for_channel(channel, notation.format, draw(st.sampled_from(channel.capacities)))
    full = notation.format == Format.FULL
    value = st.integers(0, scale.top).map(scale.value)
    step = st.integers(0, STEPS - 1)
    task = draw(st.sampled_from(Task))
    output = {}
    if task == Task.TREND:
        direction = draw(st.sampled_from(Direction))
        pace = draw(st.sampled_from(Pace)) if full and direction != Direction.STABLE else None
        output = {"direction": direction, "pace": pace, "start": draw(value), "end": draw(value)}
    elif task == Task.BOTTLENECK:
        lasts = draw(st.none() | st.integers(1, STEPS)) if full else None
        output = {"value": draw(value), "time": draw(step), "lasts": lasts}
    elif task == Task.FEASIBILITY:
        verdict = draw(st.sampled_from(StartTime))
        time = draw(step) if verdict == StartTime.LATER else None
        output = {"requirement": draw(value), "verdict": verdict, "value": draw(value), "time": time}
    else:
        times = tuple(sorted(draw(st.sets(step, min_size=1, max_size=6))))
        output = {"times": times, "values": tuple(draw(value) for _ in times)}
    return Facts(task, channel.key, scale.value(scale.top), STEPS, **output), notation


def texts(facts, notation, render, templates):
    """Every template, with several choices of synonyms."""
    number = len(templates(facts, notation.format))
    for template, synonym in product(range(number), range(5)):
        turn = count()
        yield render(
            facts,
            notation,
            lambda bound: template if number > 1 and next(turn) == 0 else synonym % bound,  # noqa: B023
        )


@given(facts_and_notation())
def test_every_answer_reads_back_as_the_facts(both):
    facts, notation = both
    for text in texts(facts, notation, answer, answer_templates):
        read = read_answer(text, notation, facts.channel)
        expected = facts.answer_slots()
        # An answer may repeat facts of the question.
        assert {name: value for name, value in read.items() if name not in facts.question_slots()} == expected, text
        assert all(
            facts.question_slots()[name] == value for name, value in read.items() if name in facts.question_slots()
        ), text
        assert read["channel"] == facts.channel


@given(facts_and_notation())
def test_every_question_reads_back_as_what_it_asks(both):
    facts, notation = both
    for text in texts(facts, notation, question, question_templates):
        task, asked = read_question(text, notation)
        expected = facts.question_slots()
        if notation.format == Format.TINY:  # omits facts that its notation implies
            del expected["capacity"], expected["steps"]
        assert (task, asked) == (facts.task, expected), text


@given(st.text() | facts_and_notation().map(lambda both: answer(*both, lambda bound: 0) * 2), st.data())
def test_any_text_can_be_read(text, data):
    _, notation = data.draw(facts_and_notation())
    cut = data.draw(st.integers(0, len(text)))
    for channel in CHANNELS:
        for part in (text[:cut], text[cut:]):
            assert isinstance(read_answer(part, notation, channel.key), dict)
            read_question(part, notation)


NOTATION = Notation(Format.TINY, 100)


@pytest.mark.parametrize(
    "text, expected",
    [
        ("sm is decreasing from 42% to 4%.", {"direction": Direction.FALLING, "start": 42.0, "end": 4.0}),
        ("sm is decreasing from 42", {"direction": Direction.FALLING}),
        ("later, sm is 52% at", {"verdict": StartTime.LATER, "value": 52.0}),
        ("sm is lowest with 98 GB at step 5.", {}),
        ("!!!", {}),
    ],
)
def test_the_readable_parts_of_an_answer_are_read(text, expected):
    read = read_answer(text, NOTATION, "gpu_sm")
    read.pop("channel", None)
    assert read == expected
