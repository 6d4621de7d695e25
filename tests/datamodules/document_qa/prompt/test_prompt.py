"""Tests the text of prompts."""

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from datamodules.document_qa.grading.abstention import is_abstention
from datamodules.document_qa.prompt.prompt import PromptBuilder, rotated_order
from datamodules.document_qa.types.question import UNANSWERABLE, Question
from engine.data.errors import BadSampleError

CONTROL = re.compile(r"<\|end\|>|<s>|¤")
CHOICE = Question("7", "What is it made of?", "pump", ("steel", "brass", "nylon"), "brass", 1, where="q.jsonl, line 3")


def test_a_question_is_written_with_its_options_in_any_order() -> None:
    prompter = PromptBuilder(CONTROL)
    assert prompter.question_text(CHOICE) == "What is it made of?\nA. steel\nB. brass\nC. nylon"
    assert (
        prompter.question_text(CHOICE, rotated_order(CHOICE, 2)) == "What is it made of?\nA. nylon\nB. steel\nC. brass"
    )
    assert prompter.question_text(Question("8", "How long?", "pump", answer="3 m")) == "How long?"


def test_options_need_not_be_listed() -> None:
    prompter = PromptBuilder(CONTROL, list_options=False)
    assert prompter.question_text(CHOICE) == "What is it made of?"
    assert prompter.answer_text(CHOICE) == prompter.option_text(CHOICE, 1) == "brass"


def test_each_cyclic_order_shows_each_option_once() -> None:
    orders = [rotated_order(CHOICE, by) for by in range(3)]
    assert [sorted(order) for order in orders] == [[0, 1, 2]] * 3
    assert [sorted(column) for column in zip(*orders, strict=True)] == [[0, 1, 2]] * 3


@pytest.mark.parametrize("by", range(3))
def test_the_assistant_answers_with_the_option_s_text_or_its_letter(by: int) -> None:
    order, letters = rotated_order(CHOICE, by), PromptBuilder(CONTROL, "letter")
    lines = dict(line.split(". ") for line in letters.question_text(CHOICE, order).splitlines()[1:])
    for index, option in enumerate(CHOICE.options):
        assert lines[letters.option_text(CHOICE, index, order)] == option
        assert PromptBuilder(CONTROL).option_text(CHOICE, index, order) == option
    assert lines[str(letters.answer_text(CHOICE, order))] == "brass"


def test_an_unknown_answer_is_none() -> None:
    prompter = PromptBuilder(CONTROL)
    assert prompter.answer_text(CHOICE._replace(right=None)) is None
    assert prompter.answer_text(Question("8", "How long?", "pump")) is None
    assert prompter.answer_text(Question("8", "How long?", "pump", answer="3 m")) == "3 m"


def test_an_open_answer_holds_no_special_token() -> None:
    question = Question("8", "How long?", "pump", answer="<|end|> 5")
    assert PromptBuilder(CONTROL).answer_text(question) == "< |end|> 5"


def test_an_abstention_is_in_the_prompt_s_language() -> None:
    unanswerable = Question("8", "How long?", "pump", answer=UNANSWERABLE)
    output = [PromptBuilder(CONTROL, language=language).answer_text(unanswerable) for language in ("en", "zh")]
    assert output == ["not answerable", "无法回答"]
    assert all(map(is_abstention, map(str, output)))


def test_a_chat_has_its_context_once() -> None:
    prompter = PromptBuilder(CONTROL, language="zh", system="Be brief.")
    messages = prompter.messages(prompter.page_heading(3), [("first?", "one"), ("second?", None)])
    assert [(message["role"], message["content"]) for message in messages] == [
        ("system", "Be brief."),
        ("user", "第3页\n\nfirst?"),
        ("assistant", "one"),
        ("user", "second?"),
    ]
    assert PromptBuilder(CONTROL).messages("", [("first?", None)]) == [{"role": "user", "content": "first?"}]


def test_more_options_than_letters_are_refused_with_the_question() -> None:
    many = CHOICE._replace(options=tuple(map(str, range(27))))
    with pytest.raises(BadSampleError, match=r"question 7 \(q.jsonl, line 3\): found 27 options, expected at most 26"):
        PromptBuilder(CONTROL).question_text(many)


@settings(max_examples=300, deadline=None)
@given(st.lists(st.sampled_from(["<|end|>", "<s>", "¤", "<image>", "<", "s", ">", "|", "ima", "ge", " ", "end"])))
def test_no_text_holds_a_special_token_or_a_marker(parts: list[str]) -> None:
    plain = PromptBuilder(CONTROL).escape("".join(parts))
    assert not CONTROL.search(plain)
    assert "<image>" not in plain
    if not CONTROL.search("".join(parts)) and "<image>" not in "".join(parts):
        assert plain == "".join(parts)


def test_a_special_token_stays_readable() -> None:
    assert (
        PromptBuilder(CONTROL).escape("It ends with <|end|> as <image> does.")
        == "It ends with < |end|> as < image> does."
    )
