"""Tests MP-DocVQA and MMLongBench-Doc in their published formats."""

import json

import pytest

from datamodules.document_qa.questions.question_file import read_question_file
from datamodules.document_qa.types.question import UNANSWERABLE

PAGES = [f"nkbl0226_p{number}" for number in range(3)]
MP_DOCVQA = {
    "questionId": 49153,
    "question": "What is the ‘actual’ value per 1000?",
    "doc_id": "nkbl0226",
    "page_ids": PAGES,
    "answers": ["0.28", ".28"],
    "answer_page_idx": 2,
    "data_split": "val",
}
MMLONGBENCH = {
    "doc_id": "PH_2016.06.08_Economy-Final.pdf",
    "doc_type": "Research report / Introduction",
    "question": "How many charts?",
    "answer": "5",
    "evidence_pages": "[3, 5]",
    "evidence_sources": "['Chart', 'Table']",
    "answer_format": "Int",
}


def read(folder, content, format="auto"):
    path = folder / "questions.json"
    path.write_text(json.dumps(content))
    return read_question_file(path, format)


def mp_docvqa(*records):
    return {"dataset_name": "MP-DocVQA", "dataset_split": "val", "data": list(records)}


@pytest.mark.parametrize("format", ["auto", "mp_docvqa"])
def test_records_of_mp_docvqa_become_questions(tmp_path, format):
    of_a_test = {key: MP_DOCVQA[key] for key in ("question", "doc_id", "page_ids")} | {"questionId": 1}
    file = read(tmp_path, mp_docvqa(MP_DOCVQA, of_a_test), format)
    question, unknown = file.questions
    assert (question.id, question.document, question.evidence_pages) == ("49153", "nkbl0226", (3,))
    assert (question.answer, question.also_right, question.answer_type) == ("0.28", (".28",), "number")
    assert question.where == f"{tmp_path / 'questions.json'}, record 0"
    assert (unknown.answer, unknown.also_right, unknown.evidence_pages) == (None, (), ())
    assert file.documents["nkbl0226"].images == tuple(PAGES)
    assert file.ids == (49153, 1)


def test_of_a_long_document_each_range_of_pages_is_asked_about_alone(tmp_path):
    other = {**MP_DOCVQA, "questionId": 2, "page_ids": PAGES[1:], "answer_page_idx": 0}
    file = read(tmp_path, mp_docvqa(MP_DOCVQA, other, {**other, "questionId": 3}))
    whole, part, again = file.questions
    assert whole.document == "nkbl0226 (nkbl0226_p0 to nkbl0226_p2)"
    assert part.document == again.document == "nkbl0226 (nkbl0226_p1 to nkbl0226_p2)"
    assert file.documents[part.document].images == tuple(PAGES[1:])
    assert part.evidence_pages == (1,)
    assert {document.origin for document in file.documents.values()} == {"nkbl0226"}


@pytest.mark.parametrize(
    ("change", "messages"),
    [
        ({"answer_page_idx": 3}, "record 0: answer_page_idx: found 3, expected 0 to 2"),
        ({"answer_page_idx": -1}, "answer_page_idx: found -1"),
        ({"page_ids": []}, r"page_ids: found \[\], expected a list of page names"),
        ({"page_ids": ["../x"]}, "expected a path inside the folder"),
        ({"answers": "x"}, "answers: found 'x', expected a list of texts"),
        ({"answers": [""]}, "answers: found '', expected a text"),
        ({"questionId": None}, "id: found nothing"),
    ],
)
def test_an_invalid_mp_docvqa_file_is_refused(tmp_path, change, messages):
    with pytest.raises(ValueError, match=messages):
        read(tmp_path, mp_docvqa({**MP_DOCVQA, **change}))


@pytest.mark.parametrize("format", ["auto", "mmlongbench"])
def test_records_of_mmlongbench_become_questions(tmp_path, format):
    records = [
        MMLONGBENCH,
        {
            **MMLONGBENCH,
            "answer": "Not answerable",
            "answer_format": "None",
            "evidence_pages": "[]",
            "evidence_sources": "[]",
        },
        {
            **MMLONGBENCH,
            "doc_id": "b.pdf",
            "answer": "['Asia', 'Africa', 3]",
            "answer_format": "List",
            "evidence_sources": "['Pure-text (Plain-text)', 'Generalized-text (Layout)']",
        },
        {
            **MMLONGBENCH,
            "answer": "12.5%",
            "answer_format": "Str",
            "evidence_pages": "[4]",
            "evidence_sources": '["Figure", "Chart"]',
        },
        {**MMLONGBENCH, "answer": "left", "answer_format": "Str", "evidence_sources": ["Table"], "evidence_pages": [1]},
    ]
    questions = read(tmp_path, records, format).questions
    assert [question.id for question in questions] == [
        f"{MMLONGBENCH['doc_id']}#1",
        f"{MMLONGBENCH['doc_id']}#2",
        "b.pdf#1",
        f"{MMLONGBENCH['doc_id']}#3",
        f"{MMLONGBENCH['doc_id']}#4",
    ]
    assert [question.source for question in questions] == ["cross", "none", "text", "figure", "table"]
    assert [question.answer_type for question in questions] == [
        "number",
        "unanswerable",
        "string",
        "number",
        "relation",
    ]
    assert [question.answer for question in questions] == ["5", UNANSWERABLE, "Asia, Africa, 3", "12.5%", "left"]
    assert [question.evidence_pages for question in questions] == [(3, 5), (), (3, 5), (4,), (1,)]


@pytest.mark.parametrize(
    ("change", "messages"),
    [
        ({"evidence_pages": "__import__('os').system('true')"}, "evidence_pages: found .*expected a list such as"),
        ({"evidence_pages": "[" * 5000}, "evidence_pages: found .*expected a list such as"),
        ({"evidence_pages": f"[{'1,' * 6000}]"}, "evidence_pages: found .*expected a list such as"),
        ({"evidence_pages": "3"}, "evidence_pages: found '3', expected a list such as"),
        ({"evidence_pages": "['3']"}, "evidence_pages: found .*expected a list of page numbers"),
        ({"evidence_sources": "['Photo']"}, r"evidence_sources: found 'Photo', expected Pure-text \(Plain-text\), "),
        ({"evidence_sources": "[{}]"}, "evidence_sources: found {}, expected"),
        ({"answer_format": "Bool"}, "answer_format: found 'Bool', expected Int"),
        ({"answer_format": []}, r"answer_format: found \[\], expected Int"),
        ({"doc_id": ""}, "document: found '', expected a text"),
    ],
)
def test_an_invalid_mmlongbench_record_is_refused(tmp_path, change, messages):
    with pytest.raises(ValueError, match=messages) as raised:
        read(tmp_path, [MMLONGBENCH, {**MMLONGBENCH, **change}])
    assert str(raised.value).startswith(f"{tmp_path / 'questions.json'}, record 1: ")


def test_a_form_that_is_named_must_be_it(tmp_path):
    with pytest.raises(ValueError, match="expected the JSON of MP-DocVQA"):
        read(tmp_path, [MMLONGBENCH], "mp_docvqa")
    with pytest.raises(ValueError, match="expected the JSON of MMLongBench-Doc"):
        read(tmp_path, mp_docvqa(MP_DOCVQA), "mmlongbench")
    with pytest.raises(ValueError, match="line 1: found list, expected an object with id, question, document"):
        read(tmp_path, [MMLONGBENCH], "questions")
