"""Tests that a cross-encoder orders the best pages as a plain loop over its logits."""

import pickle

import pytest
import torch

from datamodules.document_qa.retrieval.bm25 import BM25Retriever, page_text
from datamodules.document_qa.retrieval.cross_encoder import CrossEncoder
from datamodules.document_qa.retrieval.retrievers import build_retriever
from datamodules.document_qa.retrieval.settings import RetrieverSettings
from datamodules.document_qa.types.document import Chunk, Page
from datamodules.document_qa.types.question import Question

transformers = pytest.importorskip("transformers")

WORDS = ["relay", "motor", "closes", "at", "24", "volts", "page", "the", "mass", "of", "part", "what", "is"]


class Manual:
    """A document of pages of text."""

    name = "manual"
    pages = [
        Page(number, (Chunk(number, "text", (0, 0, 1, 1), text),))
        for number, text in enumerate(
            [
                "the relay closes at 24 volts",
                "the motor",
                "mass of the part " * 40 + "relay 24",
                "what is the motor",
                "volts of the motor at page 24",
                "relay relay relay",
            ],
            1,
        )
    ]


QUESTION = Question("q", "What is the relay of the motor at 24 volts?", "manual", ("24", "part"))


def write_model(folder, labels=1, size=32):
    torch.manual_seed(0)
    vocabulary = {
        word: number for number, word in enumerate(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "?", *WORDS])
    }
    sizes = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32}
    config = transformers.BertConfig(
        vocab_size=len(vocabulary), max_position_embeddings=size, num_labels=labels, initializer_range=0.5, **sizes
    )
    transformers.BertForSequenceClassification(config).save_pretrained(folder)
    (folder / "vocab.txt").write_text("\n".join(vocabulary))
    transformers.BertTokenizerFast(vocab_file=str(folder / "vocab.txt")).save_pretrained(folder)
    return folder


def plain_order(folder, pages, length):
    """Score every window of every page alone, with plain transformers."""
    model = transformers.AutoModelForSequenceClassification.from_pretrained(folder).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    question = tokenizer("\n".join((QUESTION.question, *QUESTION.options)), add_special_tokens=False).input_ids
    room, scores = length - len(question) - 3, {}
    for page in pages:
        words = tokenizer(page_text(Manual.pages[page - 1]), add_special_tokens=False).input_ids
        starts = range(0, max(len(words) - STRIDE, 1), room - STRIDE)
        logits = []
        for start in starts:
            part = words[start : start + room]
            ids = [tokenizer.cls_token_id, *question, tokenizer.sep_token_id, *part, tokenizer.sep_token_id]
            kinds = [0] * (len(question) + 2) + [1] * (len(part) + 1)
            with torch.no_grad():
                out = model(input_ids=torch.tensor([ids]), token_type_ids=torch.tensor([kinds]))
            logits.append(out.logits.item())
        scores[page] = max(logits)
    return sorted(pages, key=lambda page: -scores[page]), scores


STRIDE = 4


@pytest.fixture(autouse=True)
def short_stride(monkeypatch):
    monkeypatch.setattr("datamodules.document_qa.retrieval.cross_encoder._STRIDE", STRIDE)


@pytest.mark.parametrize("candidates", [1, 4, 10])
def test_the_order_is_that_of_a_plain_loop(tmp_path, candidates):
    folder = write_model(tmp_path)
    searched = BM25Retriever().rank(Manual(), QUESTION)
    expected, scores = plain_order(folder, searched[:candidates], length=32)
    retriever = CrossEncoder(BM25Retriever(), folder, candidates)
    texts = [page_text(Manual.pages[page - 1]) for page in searched[:candidates]]
    actual = retriever.scores("\n".join((QUESTION.question, *QUESTION.options)), texts)
    assert actual == pytest.approx([scores[page] for page in searched[:candidates]], abs=1e-5)
    assert retriever.rank(Manual(), QUESTION) == expected + searched[candidates:]
    if candidates == 10:
        assert expected != searched, "the model is random"
    again = pickle.loads(pickle.dumps(retriever))
    assert "_model" not in vars(again)
    assert again.rank(Manual(), QUESTION) == expected + searched[candidates:]


@pytest.mark.parametrize("words", [20, 25, 29, 40])
def test_a_long_question_leaves_room_for_pages(tmp_path, words):
    retriever = CrossEncoder(BM25Retriever(), write_model(tmp_path), 4)
    assert sorted(retriever.rank(Manual(), QUESTION._replace(question="what " * words))) == sorted(
        BM25Retriever().rank(Manual(), QUESTION)
    )


def test_pages_that_a_question_mentions_stay_first(tmp_path):
    settings = RetrieverSettings("page_mention_bm25", 3, reranker=str(write_model(tmp_path)))
    ranked = build_retriever(settings).rank(Manual(), QUESTION._replace(question="What is on page 2?"))
    assert ranked[0] == 2
    assert len(ranked) == 3


def test_other_folders_are_refused(tmp_path):
    with pytest.raises(ValueError, match="has no config.json; expected a folder with a model of transformers"):
        build_retriever(RetrieverSettings("bm25", reranker=str(tmp_path)))
    with pytest.raises(ValueError, match="has 2 labels, expected one"):
        build_retriever(RetrieverSettings("bm25", reranker=str(write_model(tmp_path, labels=2))))
    with pytest.raises(ValueError, match="orders the pages of a search, but retriever.kind is oracle"):
        RetrieverSettings("oracle", reranker="x").check()
    with pytest.raises(ValueError, match="reranked must be at least 1, got 0"):
        RetrieverSettings("bm25", reranked=0).check()
