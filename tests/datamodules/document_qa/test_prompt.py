"""What is said to the assistant."""

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from datamodules.document_qa.grading.abstention import is_abstention
from datamodules.document_qa.prompt import Prompter, turned
from datamodules.document_qa.question import UNANSWERABLE, Question
from datamodules.multimodal.unusable import UnusableSample

CONTROL = re.compile(r"<\|end\|>|<s>|¤")
CHOICE = Question("7", "What is it made of?", "pump", ("steel", "brass", "nylon"), "brass", 1, where="q.jsonl, line 3")


def test_a_question_with_its_options_in_any_order() -> None:
    prompter = Prompter(CONTROL)
    assert prompter.asks(CHOICE) == "What is it made of?\nA. steel\nB. brass\nC. nylon"
    assert prompter.asks(CHOICE, turned(CHOICE, 2)) == "What is it made of?\nA. nylon\nB. steel\nC. brass"
    assert prompter.asks(Question("8", "How long?", "pump", answer="3 m")) == "How long?"


def test_options_need_not_be_listed() -> None:
    prompter = Prompter(CONTROL, list_options=False)
    assert prompter.asks(CHOICE) == "What is it made of?"
    assert prompter.answers(CHOICE) == prompter.says(CHOICE, 1) == "brass"


def test_each_cyclic_order_shows_each_option_once() -> None:
    orders = [turned(CHOICE, by) for by in range(3)]
    assert [sorted(order) for order in orders] == [[0, 1, 2]] * 3
    assert [sorted(column) for column in zip(*orders, strict=True)] == [[0, 1, 2]] * 3


@pytest.mark.parametrize("by", range(3))
def test_the_assistant_says_the_option_s_text_or_the_letter_beside_which_it_stands(by: int) -> None:
    order, letters = turned(CHOICE, by), Prompter(CONTROL, "letter")
    lines = dict(line.split(". ") for line in letters.asks(CHOICE, order).splitlines()[1:])
    for place, option in enumerate(CHOICE.options):
        assert lines[letters.says(CHOICE, place, order)] == option
        assert Prompter(CONTROL).says(CHOICE, place, order) == option
    assert lines[str(letters.answers(CHOICE, order))] == "brass"


def test_an_answer_that_nobody_knows_is_none() -> None:
    prompter = Prompter(CONTROL)
    assert prompter.answers(CHOICE._replace(right=None)) is None
    assert prompter.answers(Question("8", "How long?", "pump")) is None
    assert prompter.answers(Question("8", "How long?", "pump", answer="3 m")) == "3 m"


def test_an_open_answer_holds_no_special_token() -> None:
    question = Question("8", "How long?", "pump", answer="<|end|> 5")
    assert Prompter(CONTROL).answers(question) == "< |end|> 5"


def test_that_there_is_no_answer_is_said_in_the_prompt_s_language() -> None:
    unanswerable = Question("8", "How long?", "pump", answer=UNANSWERABLE)
    said = [Prompter(CONTROL, language=language).answers(unanswerable) for language in ("en", "zh")]
    assert said == ["not answerable", "无法回答"] and all(map(is_abstention, map(str, said)))


def test_a_chat_has_its_context_once() -> None:
    prompter = Prompter(CONTROL, language="zh", system="Be brief.")
    messages = prompter.messages(prompter.page(3), [("first?", "one"), ("second?", None)])
    assert [(message["role"], message["content"]) for message in messages] == [
        ("system", "Be brief."), ("user", "第3页\n\nfirst?"), ("assistant", "one"), ("user", "second?"),
    ]  # fmt: skip
    assert Prompter(CONTROL).messages("", [("first?", None)]) == [{"role": "user", "content": "first?"}]


def test_more_options_than_letters_name_the_question() -> None:
    many = CHOICE._replace(options=tuple(map(str, range(27))))
    with pytest.raises(UnusableSample, match=r"question 7 \(q.jsonl, line 3\): found 27 options, expected at most 26"):
        Prompter(CONTROL).asks(many)


@settings(max_examples=300, deadline=None)
@given(st.lists(st.sampled_from(["<|end|>", "<s>", "¤", "<image>", "<", "s", ">", "|", "ima", "ge", " ", "end"])))
def test_no_text_holds_a_special_token_or_a_marker(parts: list[str]) -> None:
    plain = Prompter(CONTROL).plain("".join(parts))
    assert not CONTROL.search(plain) and "<image>" not in plain
    if not CONTROL.search("".join(parts)) and "<image>" not in "".join(parts):
        assert plain == "".join(parts)


def test_a_special_token_stays_readable() -> None:
    assert Prompter(CONTROL).plain("It ends with <|end|> as <image> does.") == "It ends with < |end|> as < image> does."
