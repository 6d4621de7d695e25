"""Tests that samples of a dense retriever depend on seed, epoch and sample, and not on the batches."""

from itertools import permutations

import numpy as np
import pytest
import torch

from datamodules.document_qa.batch import Ranking
from datamodules.document_qa.prompt.context import ContextBuilder, ContextSettings
from datamodules.document_qa.prompt.prompt import PromptBuilder
from datamodules.document_qa.retrieval.encoder_inputs import EncoderInputBuilder
from datamodules.document_qa.retrieval.ranking_dataset import PageRankingDataset
from datamodules.document_qa.retrieval.ranking_metrics import PageRankingMetrics, random_scores, ranking_scores
from datamodules.document_qa.retrieval.saved_rankings import read_rankings
from datamodules.document_qa.retrieval.train_pairs import RetrievalPairDataset, page_key
from datamodules.document_qa.types.question import Question
from datamodules.multimodal.images.tiling import MARKER
from datamodules.multimodal.text.chat_encoder import ChatEncoder
from engine.data.errors import BadSampleError
from engine.data.samplers import PADDING_INDEX, MicroBatchRequest
from tests.support.families.tiny_documents import LAYOUT, TinyDocument, TinyQuestions, tiny_tokenizer
from tests.support.outputs.jsonl import read_jsonl


@pytest.fixture(scope="module")
def reader():
    return make_reader()


def make_reader(ablate="none"):
    tokenizer = tiny_tokenizer()
    prompter = PromptBuilder(tokenizer.control)
    builder = ContextBuilder(ContextSettings(), tokenizer, prompter, LAYOUT, "stretch")
    return EncoderInputBuilder(builder, ChatEncoder(tokenizer, MARKER), ablate)


def draw(*indices, epoch=0):
    return MicroBatchRequest(epoch, np.array(indices))


def decoded(reader, rows):
    """The texts of chats, one a row."""
    ends = [int((positions[1:] == 0).int().argmax()) + 1 for positions in rows.positions]
    return [
        reader.encoder.tokenizer.decode(tokens[: end if (positions[1:] == 0).any() else None])
        for tokens, positions, end in zip(rows.tokens, rows.positions, ends, strict=True)
    ]


# -- to learn from -----------------------------------------------------------------------------------------------------


def test_each_question_comes_with_its_page_and_wrong_ones(reader):
    """Samples 0 to 3: about text (page 1), table (2), figure (3), and a question without an answer."""
    batch = RetrievalPairDataset(TinyQuestions(0, 32), reader, hard_negatives=1)[draw(0, 1, 2, 3)]
    assert batch.questions.samples.tolist() == [0, 1, 2]
    assert batch.pages.samples.tolist() == [0, 1, 2, 0, 1, 2]
    asked_questions, pages = decoded(reader, batch.questions), decoded(reader, batch.pages)
    assert "made of?" in asked_questions[0]
    assert "A. steel" in asked_questions[0]
    assert "mass" in asked_questions[1]
    assert all(text.endswith("assistant\n") for text in (*asked_questions, *pages)), "up to where the assistant speaks"
    assert [f"Page {number}" in text for number, text in enumerate(pages[:3], 1)] == [True] * 3
    assert "part | mass" in pages[1]
    assert batch.images.views.tolist()[:3] == [0, 0, 1]
    keys = [page_key("device-0", number) for number in (1, 2, 3)]
    assert batch.keys.tolist()[:3] == keys
    assert batch.evidence.tolist() == [[key] for key in keys]
    for question, wrong in enumerate(batch.keys.tolist()[3:]):
        assert wrong in keys, "another page of the same document"
        assert wrong != keys[question], "another page of the same document"
    assert (batch.questions.labels == -100).all()
    assert len(batch.images.pixels) == int(batch.images.views.sum())


def test_hard_negatives_depend_on_epoch_and_sample_alone(reader):
    examples = RetrievalPairDataset(TinyQuestions(0, 32), reader, hard_negatives=1)
    alone = examples[draw(5, epoch=3)]
    among = examples[draw(0, 5, 9, epoch=3)]
    assert among.keys.tolist()[4] == alone.keys.tolist()[1]
    drawn = {tuple(examples[draw(5, epoch=epoch)].keys.tolist()) for epoch in range(12)}
    assert len(drawn) == 2, "in one epoch the one wrong page, in another the other"
    every = RetrievalPairDataset(TinyQuestions(0, 32), reader, hard_negatives=9)[draw(5)]
    assert len(every.keys) == 3 == len(set(every.keys.tolist())), "as many as there are"
    assert len(RetrievalPairDataset(TinyQuestions(0, 32), reader, hard_negatives=0)[draw(5)].keys) == 1


class TwoPages(TinyQuestions):
    """The evidence is on pages 1 and 3."""

    def _question(self, index: int, turn: int) -> Question:
        return super()._question(index, turn)._replace(evidence_pages=(3, 1))


def test_of_several_pages_of_evidence_none_is_a_wrong_one(reader):
    examples = RetrievalPairDataset(TwoPages(0, 32), reader, hard_negatives=5)
    batches = [examples[draw(0, epoch=epoch)] for epoch in range(12)]
    keys = [page_key("device-0", number) for number in (1, 2, 3)]
    assert {int(batch.keys[0]) for batch in batches} == {keys[0], keys[2]}, "each is the right one at times"
    assert all(batch.keys.tolist()[1:] == [keys[1]] for batch in batches)
    assert all(sorted(batch.evidence[0].tolist()) == sorted((keys[0], keys[2])) for batch in batches)
    together = RetrievalPairDataset(Mixed(0, 32), reader)[draw(0, 1)]
    assert together.evidence.shape == (2, 2)
    assert together.evidence[1].tolist() == [keys[1], 0]


class Mixed(TinyQuestions):
    """The first sample has two pages of evidence."""

    def _question(self, index: int, turn: int) -> Question:
        question = super()._question(index, turn)
        return question._replace(evidence_pages=(1, 3)) if index == 0 else question


@pytest.mark.parametrize("indices", [[PADDING_INDEX], [3], [3, 7]])
def test_a_batch_without_a_usable_pair_is_a_row_of_padding(reader, indices):
    batch = RetrievalPairDataset(TinyQuestions(0, 32), reader)[draw(*indices)]
    assert len(batch.questions.samples) == len(batch.pages.samples) == len(batch.keys) == 0
    assert batch.questions.tokens.shape[0] == batch.pages.tokens.shape[0] == 1, "a row of padding"
    assert batch.evidence.shape == (0, 1)
    assert batch.images.views.tolist() == [0]


class Beyond(TinyQuestions):
    """The evidence is on a page that there is not."""

    def _question(self, index: int, turn: int) -> Question:
        return super()._question(index, turn)._replace(evidence_pages=(4,))


def test_evidence_that_there_is_not(reader):
    message = r"question 0-1-1: evidence_pages are \[4\], but device-0 has pages 1 to 3"
    with pytest.raises(BadSampleError, match=message):
        RetrievalPairDataset(Beyond(0, 32), reader)[draw(1)]
    batch = RetrievalPairDataset(Beyond(0, 32), reader, skip_bad=True)[draw(1, 2)]
    assert [skip.sample for skip in batch.skipped] == [1, 2]
    assert len(batch.keys) == 0


def test_pages_are_never_cut(reader):
    with pytest.raises(ValueError, match="sample 1 .*max_length is 20; increase it"):
        RetrievalPairDataset(TinyQuestions(0, 32), reader, max_length=20)[draw(1)]
    batch = RetrievalPairDataset(TinyQuestions(0, 32), reader, max_length=20, too_long="drop")[draw(1)]
    assert [skip.reason for skip in batch.skipped] == ["too_long"]


def test_documents_can_be_shown_without_figures():
    pages = make_reader("figure"), make_reader()
    batches = [RetrievalPairDataset(TinyQuestions(0, 32), reader)[draw(2)] for reader in pages]
    assert [len(batch.images.pixels) for batch in batches] == [0, 1]


# -- to be ranked ------------------------------------------------------------------------------------------------------


def read_through(ranked, size):
    """{number: text} of all questions and of all pages."""
    questions, pages = {}, {}
    for start in range(0, len(ranked), size):
        batch = ranked[draw(*range(start, min(start + size, len(ranked))))]
        for rows, found in ((batch.questions, questions), (batch.pages, pages)):
            texts = decoded(ranked.input_builder, rows) if len(rows.samples) else []
            for number, text in zip(rows.samples.tolist(), texts, strict=True):
                assert number not in found, "each comes once"
                found[number] = text
    return questions, pages


@pytest.mark.parametrize("size", [1, 5, 100])
def test_every_question_and_every_page_comes_once(reader, size):
    ranked = PageRankingDataset([TinyQuestions(1, 10), TinyQuestions(2, 4)], reader)
    questions, pages = read_through(ranked, size)
    assert len(questions) == 14, "of three documents, and of one more"
    assert len(pages) == 4 * 3, "of three documents, and of one more"
    assert len(ranked) == 26, "of three documents, and of one more"
    assert [candidate.question for candidate in ranked.candidates] == sorted(questions), "in the order of the sets"
    for candidate in ranked.candidates:
        assert ["Page 1" in pages[candidate.pages[0]], "Page 2" in pages[candidate.pages[1]]] == [True, True]
        assert "Figure 1" in pages[candidate.pages[2]]
        assert len(candidate.pages) == 3
    first, fifth = ranked.candidates[0], ranked.candidates[4]
    assert first.pages == ranked.candidates[3].pages
    assert set(first.pages).isdisjoint(fifth.pages)


def test_a_limited_evaluation_has_whole_documents(reader, caplog):
    ranked = PageRankingDataset([TinyQuestions(1, 12)], reader)  # three documents of 4 questions and 3 pages
    fewer = ranked.first(15)
    assert len(fewer) == 14
    assert len(fewer.candidates) == 8
    assert not fewer[draw(14)].questions.samples.tolist(), "what lies beyond is nothing"
    assert not caplog.records
    assert len(ranked.first(5)) == 7
    assert "of the first document" in caplog.text


class Torn(TinyQuestions):
    """The second document cannot be read."""

    def document(self, epoch: int, index: int) -> TinyDocument:
        if index // 4 == 1:
            raise BadSampleError(f"{self.name(index)}: its document is torn")
        return super().document(epoch, index)

    def _question(self, index: int, turn: int) -> Question:
        return TinyQuestions(self.split, self.size)._question(index, turn)


def test_a_document_that_cannot_be_used(reader):
    ranked = PageRankingDataset([Torn(1, 12)], reader, skip_bad=True)
    batch = ranked[draw(*range(len(ranked)))]
    assert len(batch.questions.samples) == 8
    assert len(batch.pages.samples) == 6
    torn = [f"{index} (tiny documents 1): its document is torn" for index in range(4, 8)]
    assert [skip.what for skip in batch.skipped] == torn
    with pytest.raises(BadSampleError, match="is torn"):
        PageRankingDataset([Torn(1, 12)], reader)[draw(*range(18))]


def rankings(ranked, pages):
    return [Ranking(candidate.question, pages, (0.5, 0.25, 0.125)) for candidate in ranked.candidates]


def test_written_rankings_are_read_back(reader, tmp_path):
    ranked = PageRankingDataset([TinyQuestions(1, 4), TinyQuestions(2, 4)], reader)
    ranked.write(tmp_path, rankings(ranked, (3, 1, 2)))
    read = read_rankings(tmp_path / "rankings.jsonl")
    assert read == {
        f"{part}-{index}-{index}": (f"device-{1000 * part}", [3, 1, 2]) for part in (1, 2) for index in range(4)
    }
    line = read_jsonl(tmp_path / "rankings.jsonl")[0]
    assert line == {"id": "1-0-0", "document": "device-1000", "pages": [3, 1, 2], "scores": [0.5, 0.25, 0.125]}
    twice = PageRankingDataset([TinyQuestions(1, 4), TinyQuestions(1, 4)], reader)
    with pytest.raises(ValueError, match="question 1-0-0: another ranked question has the same id"):
        twice.write(tmp_path, rankings(twice, (1, 2, 3)))
    assert len(read_rankings(tmp_path / "rankings.jsonl")) == 8, "the file is as it was"


# -- figures -----------------------------------------------------------------------------------------------------------


def test_metrics_are_reported_beside_bm25_and_chance(reader):
    ranked = PageRankingDataset([TinyQuestions(1, 8)], reader)
    figures = ranked.metrics(rankings(ranked, (3, 2, 1)))
    assert figures["figure/page_recall@1"] == figures["figure/mrr"] == 1
    assert figures["text/page_recall@1"] == 0
    assert figures["table/mrr"] == 0.5
    assert figures["page_recall@1"] == pytest.approx(1 / 3)
    assert figures["mrr"] == pytest.approx((1 / 3 + 1 / 2 + 1) / 3)
    assert figures["baseline/random/mrr"] == pytest.approx((1 + 1 / 2 + 1 / 3) / 3)
    assert not any(name.startswith("none/") for name in figures), "what has no answer has no page"
    assert {"baseline/bm25/figure/mrr", "baseline/hybrid/page_recall@4"} <= figures.keys()


def test_both_together_are_no_worse_than_the_better_one_may_be():
    """If both rankings have the same first page, it stays first."""
    document, found = TinyDocument(7), PageRankingMetrics()
    query = document.pages[0].chunks[0].text
    question = TinyQuestions(0, 32)._question(0, 0)._replace(evidence_pages=(1,), question=query)
    found.add(question, document, (1, 3, 2))
    assert found.metrics["baseline/bm25/mrr"] == found.metrics["baseline/hybrid/mrr"] == found.metrics["mrr"] == 1


@pytest.mark.parametrize(("pages", "evidence"), [(1, 1), (4, 1), (5, 2), (6, 3), (3, 3)])
def test_chance_is_the_mean_of_all_orders(pages, evidence):
    right = set(range(1, evidence + 1))
    every = [ranking_scores(order, right) for order in permutations(range(1, pages + 1))]
    for name, chance in random_scores(pages, evidence).items():
        assert chance == pytest.approx(sum(item[name] for item in every) / len(every)), name


def test_keys_of_pages_differ_and_are_not_0():
    keys = {page_key(name, page) for name in ("a", "b", "a\n1") for page in range(1, 50)}
    assert len(keys) == 147
    assert 0 not in keys
    assert torch.tensor(sorted(keys)).dtype == torch.int64
