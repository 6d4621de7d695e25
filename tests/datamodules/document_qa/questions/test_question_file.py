"""A question file in the competition's format is read as questions, and a wrong field is named with its line."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from datamodules.document_qa.questions.question_file import read_question_file
from datamodules.document_qa.types.question import UNANSWERABLE
from tests.support.document_qa.question_files import ROUND_1, ROUND_2, read_question_lines, write_question_lines


def test_the_competitions_files_are_accepted_unchanged(tmp_path):
    file = read_question_file(write_question_lines(tmp_path / "questions.jsonl", ROUND_1, "", ROUND_2))
    choice, open_one = file.questions
    assert choice.options == ("17位于18的左侧", "17位于18的右侧", "17位于18的上方", "17位于18的下方")
    assert (choice.id, choice.right, choice.answer) == ("17", 1, "17位于18的右侧")
    assert (choice.answer_type, choice.document) == ("choice", "CN100342976C.pdf")
    assert (open_one.options, open_one.right, open_one.answer) == ((), None, "除尘箱(1)")
    assert open_one.where == f"{tmp_path / 'questions.jsonl'}, line 3"
    assert file.ids == (17, "q2")
    assert list(file.documents) == ["CN100342976C.pdf"]


def test_a_test_file_has_no_answers(tmp_path):
    without = {key: value for key, value in ROUND_1.items() if key != "answer"}
    for answer in ({}, {"answer": None}, {"answer": ""}):
        (question,) = read_question_lines(tmp_path, {**without, **answer})
        assert (question.right, question.answer, question.answer_type) == (None, None, "choice")
    (question,) = read_question_lines(tmp_path, {**ROUND_2, "answer": None})
    assert (question.answer, question.answer_type) == (None, None)


LETTERED, PLAIN = ["A. steel", "B. brass", "C. B"], ["steel", "brass", "B", "12 mm"]


@pytest.mark.parametrize(
    ("options", "answer", "right"),
    [
        (LETTERED, "b", 1),
        (LETTERED, "(B)", 1),
        (LETTERED, "Ｂ", 1),
        (LETTERED, "B.", 1),
        (LETTERED, "brass", 1),
        (LETTERED, "B. brass", 1),
        (LETTERED, " C ", 2),
        (LETTERED, "C. B", 2),
        (PLAIN, "A", 0),
        (PLAIN, "B", 2),
        (PLAIN, "12  mm", 3),
        (PLAIN, "１２ mm", 3),
        (PLAIN, "D. 12 mm", 3),
        ([1.5, 2, "3"], 2, 1),
        (["(A) x", "(B) y"], "A", 0),
        (["A) x", "B) y"], "y", 1),
        (["A. Smith", "C. Jones", "B. Lee"], "B. Lee", None),
        (["A. Smith", "X. Jones"], "A. Smith", 0),
    ],
)
def test_an_answer_is_a_letter_or_an_options_text(tmp_path, options, answer, right):
    record = {**ROUND_1, "options": options, "answer": answer}
    if right is None:
        with pytest.raises(ValueError, match="line 1: found the options' letters in the order ACB, expected ABC"):
            read_question_lines(tmp_path, record)
    else:
        (question,) = read_question_lines(tmp_path, record)
        assert question.right == right
        assert question.answer == question.options[right]


@given(st.permutations(["17", "B", "the left side", "三", "4.5 mm"]), st.integers(0, 4), st.booleans(), st.booleans())
@settings(max_examples=60, deadline=None)
def test_every_spelling_is_the_same_option(tmp_path_factory, texts, right, lettered, by_letter):
    options = [f"{letter}. {text}" for letter, text in zip("ABCDE", texts, strict=True)] if lettered else list(texts)
    answer = "ABCDE"[right] if by_letter else texts[right]
    names_another = "B" in texts and answer in texts and texts.index(answer) != right if not lettered else False
    (question,) = read_question_lines(tmp_path_factory.mktemp("one"), {**ROUND_1, "options": options, "answer": answer})
    assert question.options == tuple(texts)
    if lettered and answer == "B":  # a letter, wherever an option of that text is
        assert question.right == 1
    else:
        assert question.right == (texts.index(answer) if names_another else right)


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        ("12", "number"),
        (3.5, "number"),
        ("-0.5 mm", "number"),
        ("1,200 r/min", "number"),
        ("5 kg/m³", "number"),
        ("3 毫米", "number"),
        ("25%", "number"),
        ("1e-3 A", "number"),
        ("M8 bolt", "string"),
        ("3 of the 5", "string"),
        ("steel", "string"),
        ("除尘箱(1)", "string"),
        ("17位于18的右侧", "relation"),
        ("above", "relation"),
        ("to the left of 8", "relation"),
        ("part 3 is below part 4", "relation"),
        ("bottom left", "relation"),
        ("the pump", "string"),
        ("the left valve", "string"),
        ("upper housing", "string"),
        ("左侧板", "string"),
        ("none", "string"),
        ("Not answerable", "unanswerable"),
        ("not answerable.", "unanswerable"),
    ],
)
def test_types_of_answers_are_found_out(tmp_path, answer, kind):
    (question,) = read_question_lines(tmp_path, {**ROUND_2, "answer": answer})
    assert question.answer_type == kind
    assert question.answer == (UNANSWERABLE if kind == "unanswerable" else str(answer))


def test_a_data_sets_own_words_for_no_answer_are_kept(tmp_path):
    for reported in ({}, {"answer_type": "unanswerable"}):
        (question,) = read_question_lines(tmp_path, {**ROUND_2, "answer": "文中未提及", **reported})
        assert (question.answer, question.answer_type, question.source) == ("文中未提及", "unanswerable", "none")


def test_evidence_pages_sources_and_answer_types_are_kept(tmp_path):
    reported = {"evidence_pages": [7, 3, 3], "evidence_sources": ["table", "figure"], "answer_type": "number"}
    questions = read_question_lines(
        tmp_path,
        {**ROUND_2, **reported},
        {**ROUND_2, "id": 2, "evidence_sources": "text"},
        {**ROUND_2, "id": 3, "evidence_sources": ["hop"], "answer": "2.5 kg", "answer_type": "unit"},
        {**ROUND_2, "id": 4, "answer": None, "answer_type": "unanswerable"},
    )
    assert (questions[0].evidence_pages, questions[0].answer_type) == ((3, 7), "number")
    assert [question.source for question in questions] == ["cross", "text", "hop", "none"]
    assert questions[2].answer_type == "number"
    assert questions[3].answer == UNANSWERABLE


@pytest.mark.parametrize(
    ("change", "messages"),
    [
        ("{", "invalid JSON .*; expected an object per line"),
        ("[" * 100_000, "invalid JSON"),
        ("[1]", "found list, expected an object with id, question, document"),
        ({"id": None}, "id: found nothing, expected text or an integer"),
        ({"id": True}, "id: found True"),
        ({"question": " "}, "question: found ' ', expected a text"),
        ({"question": "\ud800 what"}, r"invalid JSON \(found '\\ud800', half of a surrogate pair"),
        ({"question": "x" * 100_001}, "question: found 100,001 characters, expected at most 100,000"),
        ({"document": 7}, "document: found 7, expected a text"),
        ({"document": "../secret.pdf"}, "document: found '../secret.pdf', expected a path inside the folder"),
        ({"document": "/etc/passwd"}, "expected a path inside the folder"),
        ({"document": "c:\\x.pdf"}, "expected a path inside the folder"),
        ({"options": "A. x"}, "options: found 'A. x', expected a list of texts"),
        ({"options": ["A. x"]}, "found 1 options, expected 2 to 26, or none"),
        ({"options": ["A. x", "B. "]}, "found an empty option"),
        ({"options": ["A. x", None]}, "options: found nothing, expected a text"),
        ({"answer": "E"}, "found the answer 'E', expected a letter A to D, or the text of an option: "),
        ({"answer": "B. 17位于18的左侧"}, "found the answer 'B. 17位于18的左侧', expected a letter A to D"),
        ({"answer": ["B"]}, r"answer: found \['B'\], expected a text or a number"),
        ({"options": ["A. x", "B. x"], "answer": "A"}, "found 'x' as options A and B, expected options that differ"),
        ({"options": ["A. x", "B. x"], "answer": None}, "found 'x' as options A and B, expected options that differ"),
        ({"options": ["x", "y", "ｘ "], "answer": "C"}, "found 'ｘ' as options A and C, expected options that differ"),
        ({"evidence_pages": [0]}, "evidence_pages: found 0, expected page numbers from 1"),
        ({"evidence_pages": "3"}, "evidence_pages: found '3', expected a list of page numbers"),
        ({"evidence_pages": [True]}, "evidence_pages: found"),
        ({"evidence_sources": ["chart"]}, "evidence_sources: found 'chart', expected text, table, figure, hop"),
        ({"evidence_sources": ["none", "text"]}, "evidence_sources: found none together with text"),
        ({"answer_type": "int"}, "answer_type: found 'int', expected choice, string, number"),
        ({"options": [], "answer_type": "choice"}, "answer_type: found choice, but the question has no options"),
        ({"options": None, "answer_type": "unanswerable"}, "answer: found 'B' with answer_type unanswerable"),
        ({"evidence_page": [3]}, "found the field evidence_page, expected evidence_pages"),
    ],
)
def test_errors_are_reported_with_file_and_line(tmp_path, change, messages):
    wrong = change if isinstance(change, str) else {**ROUND_1, "id": "b", **change}
    with pytest.raises(ValueError, match=messages) as raised:
        # Written as ASCII: half of a character cannot be written otherwise.
        read_question_lines(tmp_path, ROUND_1, wrong if isinstance(wrong, str) else json.dumps(wrong))
    assert str(raised.value).startswith(f"{tmp_path / 'questions.jsonl'}, line 2: ")


def test_unknown_fields_are_named_once(tmp_path, messages):
    read_question_lines(tmp_path, ROUND_1, {**ROUND_2, "pages": [3], "solution": 1}, {**ROUND_2, "id": 3, "pages": [4]})
    fields = "pages (did you mean evidence_pages?), solution"
    assert messages == [
        f"{tmp_path / 'questions.jsonl'}, line 2: ignored {fields}; known fields are id, question, document, options, "
        "answer, evidence_pages, evidence_sources, answer_type"
    ]


def test_an_id_that_occurs_twice_is_refused_with_both_lines(tmp_path):
    with pytest.raises(ValueError, match="line 2: the id '17' is already used by .*line 1"):
        read_question_lines(tmp_path, ROUND_1, {**ROUND_2, "id": "17"})
