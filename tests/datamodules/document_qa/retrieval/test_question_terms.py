"""Tests that BM25 searches for the subject of a question and not for its function words."""

import pytest

from datamodules.document_qa.manuals.dataset import ManualQuestionSet
from datamodules.document_qa.manuals.question_sampler import QuestionSampler
from datamodules.document_qa.manuals.settings import ManualQuestionSettings, ManualSettings
from datamodules.document_qa.retrieval import bm25
from datamodules.document_qa.retrieval.bm25 import BM25Retriever
from datamodules.document_qa.retrieval.question_terms import QuestionTerms, identifiers, question_terms
from datamodules.document_qa.retrieval.tokenization import tokenize
from datamodules.document_qa.types.document import Chunk, Page
from datamodules.document_qa.types.question import Question
from datamodules.multimodal.synthetic_split import Split


class Pages:
    """A document of pages of text."""

    def __init__(self, *texts):
        self.name = "manual"
        self.pages = [
            Page(number, (Chunk(number, "text", (0, 0, 1, 1), text),)) for number, text in enumerate(texts, start=1)
        ]


def asks(text):
    return Question("q", text, "manual")


@pytest.mark.parametrize(
    ("text", "subject", "function"),
    [
        ("What does shopt -s globstar change?", ["shopt", "globstar", "change", "-s"], ["what", "does", "s"]),
        ("How is __all__ used?", ["used", "__all__"], ["how", "is", "all"]),
        (
            "电机的额定电流是多少？",
            ["电", "机", "电机", "额", "定", "电", "流", "额定", "定电", "电流"],
            ["的", "是", "多", "少", "多少"],
        ),
        ("What is it?", [], ["what", "is", "it"]),
    ],
)
def test_subject_and_function_words_of_a_question_are_found(text, subject, function):
    found = question_terms(text)
    assert found.subject == subject
    assert sorted(found.function) == sorted(function)


def test_names_with_punctuation_are_terms():
    text = "Set --max_steps=3, -O or max_steps in a/b.yaml: a cross-section of 1.5 mm (3-4), see e.g. page_3"
    assert identifiers(text) == ["--max_steps", "-o", "max_steps", "a/b.yaml", "cross-section", "e.g", "page_3"]
    assert identifiers("参数max_steps的默认值是多少? 如何用--ckpt_path恢复训练") == ["max_steps", "--ckpt_path"]


SHELL = [
    *(
        f"Section {number}. The shell reads a command, expands words and runs it with its options."
        for number in range(30)
    ),
    *(f"Option {number}: shopt -s option{number} sets it, shopt -u option{number} unsets it." for number in range(10)),
    "Set options with shopt -s name, and unset them with shopt -u name. shopt -p prints them. shopt -q is quiet.",
    "What the shell does: it reads input. What does a login shell do? It reads a profile. What does it change?",
    "globstar: if set, the pattern ** matches all files and folders below. The option belongs to shopt.",
]


@pytest.mark.parametrize(
    ("question", "page"),
    [
        ("What does shopt -s globstar change?", 43),
        ("Which pattern matches everything below a folder, and what does it do?", 43),
        ("What is it that shopt -q does?", 41),
        ("What does a login shell do?", 42),
    ],
)
def test_a_rare_term_is_found_and_question_words_are_not(question, page):
    assert BM25Retriever().rank(Pages(*SHELL), asks(question))[0] == page


PUMP = [
    "什么是扬程？扬程是单位重量液体获得的能量。",
    "常见问题：如何更换？为什么会有？多少合适？怎么处理？型号是什么？",
    "润滑油的牌号为46，每4000小时更换一次。",
    "轴承温度不得超过80摄氏度。",
    "备件清单：叶轮、轴套、轴承6308型。",
    "故障：振动过大。原因：基础松动、汽蚀。",
    "电机额定电压为380伏，额定电流为15安。",
]


@pytest.mark.parametrize(
    ("question", "page"),
    [
        ("轴承是什么型号？", 5),
        ("为什么会振动过大？", 6),
        ("汽蚀会有什么后果？", 6),
        ("润滑油多久需要更换一次？", 3),
        ("什么是扬程？", 1),
    ],
)
def test_chinese_question_words_are_not_looked_for(question, page):
    assert BM25Retriever().rank(Pages(*PUMP), asks(question))[0] == page


def test_the_embedded_manuals_are_found_at_least_as_often(monkeypatch):
    sampler = QuestionSampler(ManualSettings(chapters=4), ManualQuestionSettings())
    questions = ManualQuestionSet(sampler, Split.VALIDATION, 200, per_manual=4)

    def found():
        retriever, right = BM25Retriever(), []
        for index in range(len(questions)):
            (question,) = questions.questions(0, index)
            if question.evidence_pages:
                right.append(retriever.rank(questions.document(0, index), question)[0] in question.evidence_pages)
        return sum(right) / len(right)

    better = found()
    monkeypatch.setattr(bm25, "question_terms", lambda text: QuestionTerms(tokenize(text), []))
    assert better > found() + 0.2
