"""Tests that pages are found by words, by page mentions, by a file of rankings, or by several of these."""

import json
import pickle
from typing import NamedTuple

import pytest

from datamodules.document_qa.retrieval.bm25 import BM25Retriever
from datamodules.document_qa.retrieval.page_mentions import mentioned_pages
from datamodules.document_qa.retrieval.retrievers import build_retriever
from datamodules.document_qa.retrieval.saved_rankings import rankings_file, read_rankings
from datamodules.document_qa.retrieval.settings import RetrieverSettings
from datamodules.document_qa.retrieval.tokenization import tokenize
from datamodules.document_qa.types.document import Chunk, Page
from datamodules.document_qa.types.question import Question
from engine.data.errors import BadSampleError

NAME = "manual.pdf"


class Written(NamedTuple):
    """A document that is its texts."""

    pages: tuple[Page, ...]
    name: str = NAME


def document(*texts):
    box = (0.0, 0.0, 1.0, 1.0)
    pages = (
        (Chunk(number, "text" if text else "figure", box, text),) if text is not None else ()
        for number, text in enumerate(texts, 1)
    )
    return Written(tuple(Page(number, chunks) for number, chunks in enumerate(pages, 1)))


def asks(text, **fields):
    return Question("q", text, "manual.pdf", **fields)


MANUAL = document(
    "Safety. Read this page before you open the cover.",
    "The motor turns the shaft at 3.5 A.",
    "",
    "The relay closes at 35 V. The motor stops.",
    "电机位于泵的左侧",
)


@pytest.fixture
def rankings(tmp_path):
    """Writes such a file."""

    def write(*records, name="rankings.jsonl"):
        path = tmp_path / name
        path.write_text("".join(f"{record if isinstance(record, str) else json.dumps(record)}\n" for record in records))
        return path

    return write


@pytest.mark.parametrize(
    "text, expected",
    [
        ("The RS-232 Cable, cable_2", ["the", "rs", "232", "cable", "cable", "2"]),
        ("12V 3.5 A 1,000", ["12", "v", "3.5", "a", "1,000"]),
        ("Größe １２Ｖ", ["größe".casefold(), "12", "v"]),
        ("电机M8泵", ["电", "机", "电机", "m", "8", "泵"]),
        (" -|- ", []),
    ],
)
def test_a_text_has_the_expected_terms(text, expected):
    assert tokenize(text) == expected


@pytest.mark.parametrize(
    "text, pages",
    [
        ("What is on page 3?", [3]),
        ("Page 12, Figure 1", [12]),
        ("on pages 2, 5 and 7", [2, 5, 7]),
        ("pages 4-6 & 9", [4, 5, 6, 9]),
        ("pp. 3–5", [3, 4, 5]),
        ("p. 8", [8]),
        ("see page 7 and, later, page 2", [7, 2]),
        ("On page 3, 12 V is named", [3]),
        ("page 2 and 3 bolts", [2]),
        ("p. 4 or 5 mm", [4]),
        ("page 3 and pages 5-6", [3, 5, 6]),
        ("page no. 4", [4]),
        ("pages 2 to 4", [2, 3, 4]),
        ("page 3 and page 3", [3]),
        ("在第10页的图中", [10]),
        ("第 3 页和第5页", [3, 5]),
        ("第3、4页", [3, 4]),
        ("第3-5页", [3, 4, 5]),
        ("第３页至第５页", [3, 4, 5]),
        ("第三页", [3]),
        ("第十二页，第二十页，第一百零五頁，第二〇页", [12, 20, 105]),
        ("pages 1-50", list(range(1, 51))),
        ("pages 1-51", [1, 51]),
        ("pages 1-100000", [1, 100000]),
        ("page 0, pages of the 3 manuals, homepage 5, 2 pages, 共10页", []),
        ("", []),
    ],
)
def test_pages_that_a_question_names_are_found(text, pages):
    assert mentioned_pages(text) == pages


def test_bm25_ranks_all_pages_by_their_words():
    retriever = BM25Retriever()
    assert retriever.rank(MANUAL, asks("At which voltage does the relay close?"))[0] == 4
    assert retriever.rank(MANUAL, asks("Which part turns at 3.5 A?"))[0] == 2
    assert retriever.rank(MANUAL, asks("泵的电机在哪里？"))[0] == 5
    assert retriever.rank(MANUAL, asks("Which is it?", options=("the cover", "a page")))[0] == 1
    assert retriever.rank(MANUAL, asks("nothing known")) == [1, 2, 3, 4, 5], "no word: in their order"
    assert sorted(retriever.rank(MANUAL, asks("motor"))) == [1, 2, 3, 4, 5]


def test_bm25_ranks_documents_without_words():
    assert BM25Retriever().rank(document("", None), asks("motor")) == [1, 2]
    assert BM25Retriever().rank(document("motor"), asks("motor")) == [1]


def test_an_index_is_made_once(monkeypatch):
    from datamodules.document_qa.retrieval import bm25 as module

    made, indexed = [], module._build_index
    monkeypatch.setattr(module, "_build_index", lambda document: made.append(document) or indexed(document))
    retriever, other = BM25Retriever(), document("relay", "motor")
    for _ in range(3):
        assert retriever.rank(MANUAL, asks("relay"))[0] == 4
        assert retriever.rank(other, asks("relay"))[0] == 1
    assert made == [MANUAL, other]
    monkeypatch.setattr(module, "_KEPT", 1)
    retriever.rank(document("a"), asks("a"))
    retriever.rank(MANUAL, asks("relay"))
    assert len(retriever._indices) <= 2
    assert pickle.loads(pickle.dumps(retriever)).rank(MANUAL, asks("relay"))[0] == 4


def test_each_kind_of_retriever_ranks_its_pages(rankings):
    path = str(rankings({"id": "q", "document": NAME, "pages": [5, 3, 1], "scores": [3, 2.5, 2.5]}))
    question = asks("On page 3, where is the relay? See page 9.", evidence_pages=(4, 2))

    def ranked(kind, question=question, **settings):
        return build_retriever(RetrieverSettings(kind, **settings)).rank(MANUAL, question)

    assert ranked("all_pages", pages=1) == [1, 2, 3, 4, 5]
    assert ranked("oracle", pages=1) == [2, 4]
    for pages in (1, 4, None):
        assert ranked("oracle", asks("the relay"), pages=pages) == [4], "without evidence it looks as others do"
    assert ranked("bm25", pages=1) == ranked("bm25")[:1]
    assert len(ranked("bm25", pages=None)) == 5
    assert ranked("page_mention_bm25", pages=2)[0] == 3
    assert len(ranked("page_mention_bm25", pages=2)) == 2
    assert ranked("dense", rankings=path, pages=2) == [5, 3]
    assert ranked("hybrid", asks("the relay"), rankings=path, pages=None)[0] in (1, 3, 4, 5)


def test_hybrid_is_reciprocal_rank_fusion(rankings):
    path = rankings({"id": "q", "document": NAME, "pages": [2, 5, 4], "scores": [3, 2, 1]})
    ranked = build_retriever(RetrieverSettings("hybrid", None, str(path))).rank(MANUAL, asks("relay"))
    words = BM25Retriever().rank(MANUAL, asks("relay"))
    scores = {
        page: 1 / (61 + words.index(page)) + (1 / (61 + [2, 5, 4].index(page)) if page in (2, 5, 4) else 0)
        for page in range(1, 6)
    }
    assert ranked == sorted(scores, key=lambda page: (-scores[page], page))
    assert ranked[0] in (2, 4)


def test_missing_or_impossible_rankings_are_refused(rankings):
    path = rankings({"id": "q", "document": NAME, "pages": [9], "scores": [1]})
    retriever = build_retriever(RetrieverSettings("dense", rankings=str(path)))
    with pytest.raises(ValueError, match="ranks page 9 for question 'q', but manual.pdf has pages 1 to 5"):
        retriever.rank(MANUAL, asks("relay"))
    other = asks("relay", where="questions.jsonl, line 3")._replace(id="other")
    with pytest.raises(ValueError, match=r"contains no ranking for question 'other' \(questions.jsonl, line 3\)"):
        retriever.rank(MANUAL, other)
    namesake = asks("relay", where="questions.jsonl, line 4")._replace(document="pump.pdf")
    with pytest.raises(
        ValueError, match="pages of manual.pdf for question 'q', but .*line 4: the question is about pump.pdf"
    ):
        retriever.rank(MANUAL, namesake)
    with pytest.raises(BadSampleError, match="line 3: evidence_pages are .*7.*, manual.pdf has pages 1 to 5"):
        build_retriever(RetrieverSettings("oracle")).rank(MANUAL, other._replace(evidence_pages=(7,)))


@pytest.mark.parametrize(
    "line, wrong",
    [
        ("{", "line 2: not JSON"),
        ([], "line 2: found list"),
        ({"id": "b", "pages": [1]}, "line 2: found id, pages, expected"),
        ({"id": "b", "document": None, "pages": [1], "scores": [1]}, "line 2: document is None"),
        ({"id": 3, "document": NAME, "pages": [1], "scores": [1]}, "line 2: id is 3"),
        ({"id": "b", "document": NAME, "pages": [0], "scores": [1]}, r"line 2: pages is \[0\]"),
        ({"id": "b", "document": NAME, "pages": [True], "scores": [1]}, r"line 2: pages is \[True\]"),
        ({"id": "b", "document": NAME, "pages": [1, 1], "scores": [1, 1]}, "line 2: pages contains a page twice"),
        ({"id": "b", "document": NAME, "pages": [1], "scores": ["x"]}, r"line 2: scores is \['x'\]"),
        ({"id": "b", "document": NAME, "pages": [1, 2], "scores": [1]}, "line 2: found 1 scores of 2 pages"),
        ({"id": "b", "document": NAME, "pages": [1, 2], "scores": [1, 2]}, "line 2: .* descending"),
        ({"id": "a", "document": NAME, "pages": [1], "scores": [1]}, "line 2: question 'a' occurs a second time"),
    ],
)
def test_rankings_are_read_strictly(rankings, line, wrong):
    with pytest.raises(ValueError, match=wrong):
        read_rankings(rankings({"id": "a", "document": NAME, "pages": [2], "scores": [0.5]}, line))


def test_rankings_of_a_run_are_found_by_its_name(rankings, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match="found none of retriever, .*`python train.py predict`"):
        rankings_file("retriever")
    (tmp_path / "runs/retriever").mkdir(parents=True)
    path = rankings({"id": "a", "document": NAME, "pages": [2], "scores": [0.5]}, name="runs/retriever/rankings.jsonl")
    for name in ("retriever", "runs/retriever", str(path)):
        assert rankings_file(name).samefile(path)
    with pytest.raises(ValueError, match="is empty, expected one ranking"):
        read_rankings(rankings(name="runs/empty.jsonl"))


@pytest.mark.parametrize(
    "settings, wrong",
    [
        ({"kind": "best"}, "kind must be one of"),
        ({"pages": 0}, "pages must be at least 1"),
        ({"kind": "dense"}, "requires retriever.rankings"),
        ({"kind": "bm25", "rankings": "run"}, "applies to dense and hybrid only, got kind bm25"),
    ],
)
def test_wrong_settings_are_refused_by_name(settings, wrong):
    with pytest.raises(ValueError, match=wrong):
        build_retriever(RetrieverSettings(**settings))


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (b'{"id": "a\xff", "document": "a", "pages": [1], "scores": [1]}', "line 2: not JSON .found the byte 0xff"),
        (b'{"id": "b", "document": "a", "pages": [2, 1], "scores": [NaN, 1]}', "line 2: not JSON .found NaN"),
        (b'{"id": "b", "id": "c", "document": "a", "pages": [1], "scores": [1]}', "line 2: not JSON .*twice"),
        (b'{"id": "b", "document": "a", "pa', "line 2: not JSON"),
        (b"[" * 2000, "line 2: not JSON"),
    ],
)
def test_a_line_of_rankings_that_is_not_json_is_named(rankings, line, message):
    path = rankings({"id": "q", "document": NAME, "pages": [1], "scores": [1]})
    path.write_bytes(path.read_bytes().rstrip() + b"\n" + line)
    with pytest.raises(ValueError, match=message) as error:
        read_rankings(path)
    assert str(error.value).startswith(str(path))
    assert "\n" not in str(error.value)


def test_rankings_of_another_editor_are_read(rankings):
    path = rankings({"id": "q", "document": NAME, "pages": [1], "scores": [1]})
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes().replace(b"\n", b"\r"))
    assert list(read_rankings(path)) == ["q"]
