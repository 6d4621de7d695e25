"""Tests the removal of content that is irrelevant to the questions."""

import numpy as np
import pytest

from datamodules.document_qa.augmentation.augmenter import Augmenter
from datamodules.document_qa.augmentation.drop_irrelevant import drop_irrelevant
from datamodules.document_qa.augmentation.settings import AugmentationSettings
from datamodules.document_qa.manuals.dataset import ManualQuestionSet
from datamodules.document_qa.manuals.question_sampler import QuestionSampler
from datamodules.document_qa.manuals.settings import ManualQuestionSettings, ManualSettings
from datamodules.document_qa.types.document import KINDS
from datamodules.document_qa.types.question import Question
from datamodules.multimodal.synthetic_split import Split

MANUALS = ManualQuestionSet(QuestionSampler(ManualSettings(), ManualQuestionSettings()), Split.TEST, 8)


def shown(document):
    return frozenset(chunk.kind for page in document.pages for chunk in page.chunks)


def left(*sources, draws=40):
    """Return the remaining content of a manual, for many draws."""
    questions = [Question("1", "?", "m", source=source) for source in sources]
    document = MANUALS.document(0, 0)
    assert shown(document) == set(KINDS)
    random = np.random.default_rng(3)
    return {shown(drop_irrelevant(questions, document, random)) for _ in range(draws)}


@pytest.mark.parametrize("source", KINDS)
def test_one_kind_of_chunk_other_than_the_source_is_dropped(source):
    assert left(source) == {frozenset(KINDS) - {other} for other in KINDS if other != source}


def test_content_that_a_question_needs_is_kept():
    assert left("text", "figure") == {frozenset(["text", "figure"])}
    for sources in (("hop",), (None,), ("text", "none"), KINDS):
        assert left(*sources) == {frozenset(KINDS)}


def test_irrelevant_chunks_are_dropped_in_the_configured_share_of_samples():
    off = {"option_order": False, "paraphrase": 0, "distractors": 0, "scan": 0, "skew": 0, "jpeg": 0, "blur": 0}
    augmenter = Augmenter(AugmentationSettings(enabled=True, drop_irrelevant=0.25, **off), seed=1)
    document = MANUALS.document(0, 0)
    questions = [Question("1", "?", "m", source="table")]
    altered = [augmenter.augment(questions, document, [1], lambda: document, 0, index) for index in range(400)]
    gone = sum(shown(one) != set(KINDS) for _, one, _ in altered)
    assert 70 < gone < 130
    assert all("table" in shown(one) and asked == questions and pages == (1,) for asked, one, pages in altered)
