"""Tests questions about synthetic manuals: no shortcut reveals the answer, and wrong options are plausible."""

import re
from collections import Counter
from functools import cache

import numpy as np
import pytest

from datamodules.document_qa.manuals.devices import choose_one, make_device
from datamodules.document_qa.manuals.question_sampler import QuestionSampler
from datamodules.document_qa.manuals.question_types import KINDS, RELATIONS, UNANSWERABLE_KIND
from datamodules.document_qa.manuals.settings import ManualQuestionSettings, ManualSettings
from datamodules.document_qa.manuals.templates import UNSEEN_WORDINGS, WORDINGS
from datamodules.document_qa.types.question import UNANSWERABLE

NUMBER = 2000

QUADRANTS = ("top left", "top right", "bottom left", "bottom right")


def asked(number=NUMBER, test=False, key=1, manuals=None, **settings):
    """(device, chapter, what is asked) of so many devices."""
    manuals = manuals or ManualSettings()
    sampler = QuestionSampler(manuals, ManualQuestionSettings(**settings))
    random = np.random.Generator(np.random.Philox(key=key))
    for _ in range(number):
        device = make_device(random, manuals, "manual.pdf")
        chapter = choose_one(random, device.chapters)
        yield device, chapter, sampler.ask(random, chapter, test)


def choices(**settings):
    return [question for *_, question in asked(choice_share=1.0, **settings)]


@cache
def training_questions():
    return [question for *_, question in asked(8 * NUMBER, choice_share=1.0, key=2)]


def near(actual: float, expected: float, number: int) -> bool:
    """Within four standard errors."""
    return abs(actual - expected) < 4 * (expected * (1 - expected) / number) ** 0.5


def test_every_letter_is_right_as_often():
    right = Counter(question.right for question in choices())
    assert all(near(right[index] / NUMBER, 0.25, NUMBER) for index in range(4))


def test_shares_of_right_letters_are_those_of_the_setting():
    right = Counter(question.right for question in choices(answer_letter_weights=(14.3, 41.7, 33.7, 10.3)))
    for index, share in enumerate((0.143, 0.417, 0.337, 0.103)):
        assert near(right[index] / NUMBER, share, NUMBER)


def guess(question, training, of):
    """The option that was most often right in training, of those with the same feature."""
    return max(question.options, key=lambda option: (training.get(of(question, option), 0.0), option))


def words(question):
    """Return the text of a question without its numbers and names."""
    return re.sub(r"\d+", "", question.question)


FEATURES = {
    "option": lambda question, option: option,
    "option and words": lambda question, option: (words(question), option),
    "option and question": lambda question, option: (question.question, option),
    "position": lambda question, option: question.options.index(option),
    "position and words": lambda question, option: (words(question), question.options.index(option)),
    "order": lambda question, option: sorted(question.options).index(option),
    "is it about what is not there": lambda question, option: (words(question), option == UNANSWERABLE),
    "length": lambda question, option: len(option),
    "neighbour": lambda question, option: (option, question.options[question.options.index(option) - 1]),
}


@pytest.mark.slow
@pytest.mark.parametrize("feature", FEATURES)
def test_question_and_options_do_not_reveal_the_answer(feature):
    of = FEATURES[feature]
    shown, right = Counter(), Counter()
    for question in training_questions():
        shown.update(of(question, option) for option in question.options)
        right[of(question, question.answer)] += 1
    # Pulled towards chance where there is little to learn from.
    training = {key: (right[key] + 5) / (shown[key] + 20) for key in shown}
    hits = [guess(question, training, of) == question.answer for question in choices()]
    assert near(float(np.mean(hits)), 0.25, NUMBER)


def test_unanswerable_options_are_right_in_one_of_four_whatever_the_wording():
    reported: dict[str, list[bool]] = {}
    for question in choices():
        if UNANSWERABLE in question.options:
            reported.setdefault(re.sub(r".*(material|function|name).*", r"\1", question.question), []).append(
                question.answer == UNANSWERABLE
            )
    assert len(reported) >= 3
    for found in reported.values():
        assert near(float(np.mean(found)), 0.25, len(found))


def test_an_unanswerable_question_asks_for_what_the_chapter_does_not_have():
    for _, chapter, question in asked(task_mix={UNANSWERABLE_KIND: 1, "material": 3, "value": 3}):
        if question.kind == UNANSWERABLE_KIND:
            (number,) = re.findall(r"part (\d+)", question.question)
            column = re.findall(r"mass|current|voltage|length", question.question)
            there = {str(part.number) for part in chapter.parts}
            assert number not in there or set(column).isdisjoint(chapter.columns) and column
            assert (question.answer, question.source, question.pages) == (UNANSWERABLE, "none", ())


def test_wrong_options_are_values_of_other_parts_of_the_same_chapter():
    for _, chapter, question in asked(choice_share=1.0, task_mix={"material": 1, "value": 1, "colour_at": 1}):
        values = {part.material for part in chapter.parts} | {part.colour for part in chapter.parts}
        values |= {value for part in chapter.parts for value in part.values.values()}
        assert len(set(question.options)) == 4
        assert values.issuperset(question.options)


def test_answers_are_the_chapters():
    seen = set()
    for _, chapter, question in asked(choice_share=0.0, page_mentions=0.0):
        by_number = {str(part.number): part for part in chapter.parts}
        numbers = re.findall(r"part (\d+)", question.question)
        part = by_number.get(numbers[0]) if numbers else None
        if question.kind in ("material", "function", "name"):
            assert question.answer == getattr(part, question.kind)
        elif question.kind == "value":
            (column,) = re.findall(r"mass|current|voltage|length", question.question)
            assert question.answer == part.values[column]
        elif question.kind == "relation":
            relation = re.search(r"where is part (\d+)", question.question).group(1)
            part, (other,) = by_number[relation], [by_number[n] for n in numbers if n != relation]
            row, column = (a - b for a, b in zip(divmod(part.cell, 2), divmod(other.cell, 2), strict=True))
            assert question.answer == {(0, -1): "left", (0, 1): "right", (-1, 0): "above", (1, 0): "below"}[row, column]
        elif question.kind.endswith("_at"):
            quadrant = re.search(r"(top|bottom) (left|right)", question.question).group()
            (part,) = [p for p in chapter.parts if QUADRANTS[p.cell] == quadrant]
            attribute = question.kind.removesuffix("_at")
            if attribute == "value":
                assert question.answer in part.values.values()
            else:
                assert question.answer == str(getattr(part, attribute))
        seen.add(question.kind)
        assert question.source == ("none" if question.kind == UNANSWERABLE_KIND else KINDS[question.kind].source)
    assert seen == {*KINDS, UNANSWERABLE_KIND}


def test_a_named_kind_asks_for_the_number_of_a_part():
    for _, chapter, question in asked(200, choice_share=1.0, task_mix={"number_of_name": 1}, test=True):
        (part,) = [part for part in chapter.parts if question.question.endswith(f"the {part.name}?")]
        assert question.answer == str(part.number)
        assert sorted(question.options) == sorted(str(part.number) for part in chapter.parts)
        assert (question.source, question.pages) == ("table", (chapter.pages["table"],))


def test_stated_parts_precede_answers_of_two_lookups_only():
    seen = set()
    for _, chapter, question in asked(500, choice_share=1.0, page_mentions=0.0, stated_parts=True):
        if question.source not in ("hop", "cross"):
            assert question.options
            assert not re.match(r"\d+, ", question.answer)
            continue
        number, attribute, answer = re.fullmatch(r"(\d+), (\w+) (.+)", question.answer).groups()
        (part,) = [part for part in chapter.parts if str(part.number) == number]
        if question.kind == "material_of_name":
            assert part.name in question.question
        else:
            assert QUADRANTS[part.cell] in question.question
        assert answer == {"material": part.material, **part.values}[attribute]
        assert (question.options, question.right, question.answer_type) == ((), None, "string")
        seen.add(question.kind)
    assert seen == {"material_at", "value_at", "material_of_name"}


def test_relations_are_balanced():
    right = Counter(question.answer for question in choices(task_mix={"relation": 1}))
    assert all(near(right[word] / NUMBER, 0.25, NUMBER) for word in RELATIONS)


def test_evidence_is_on_the_chapters_pages():
    for _, chapter, question in asked(500):
        assert set(question.pages) <= set(chapter.pages.values())
        mentioned = re.match(r"On page (\d+): ", question.question)
        if mentioned and question.pages:
            assert int(mentioned.group(1)) in question.pages


def test_wordings_of_the_test_are_new_but_their_words_are_not():
    every = " ".join(wording.lower() for wordings in WORDINGS.values() for wording in wordings)
    training = set(re.findall(r"\w+|\{\w+\}", every))
    for name, wording in UNSEEN_WORDINGS.items():
        if name != "drawing":
            assert wording not in WORDINGS[name]
        assert training.issuperset(re.findall(r"\w+|\{\w+\}", wording.lower()))
    shares = np.mean([question.seen_wording for *_, question in asked(test=True, unseen_wordings=0.2)])
    assert near(float(shares), 0.8, NUMBER)
    assert all(question.seen_wording for *_, question in asked(500, test=False))


@pytest.mark.parametrize(
    ("settings", "manuals", "message"),
    [
        ({"task_mix": {"price": 1}}, {}, "price"),
        ({"task_mix": {"material": 0}}, {}, "one above 0"),
        ({"task_mix": {"value_at": 1}}, {"pages": ("figure",)}, "data.init_args.manuals.pages lacks: table"),
        ({"task_mix": {UNANSWERABLE_KIND: 1, "material": 1}}, {}, "too many unanswerable questions"),
        ({"answer_letter_weights": (0, 0, 0, 0)}, {}, "answer_letter_weights"),
        ({"choice_share": 1.5}, {}, "choice_share"),
        ({}, {"parts_per_chapter": 3}, "parts_per_chapter"),
        ({}, {"parts_per_chapter": 5}, "parts_per_chapter: found 5, expected 4 to 4"),
        ({}, {"highest_number": 4}, "highest_number"),
        ({}, {"pages": ("text", "text")}, "pages"),
    ],
)
def test_impossible_settings_are_refused(settings, manuals, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        QuestionSampler(ManualSettings(**manuals), ManualQuestionSettings(**settings))
