"""Removes content that is irrelevant to the questions, so that a model does not learn to rely on it."""

from collections.abc import Sequence

import numpy as np

from datamodules.document_qa.types.document import KINDS, Document
from datamodules.document_qa.types.question import Question
from datamodules.document_qa.views.ablation import apply_ablation


def drop_irrelevant(questions: Sequence[Question], document: Document, random: np.random.Generator) -> Document:
    """Remove the texts, the tables or the figures of a document, if no question needs them.

    If a question needs several kinds of content, or it is not known which, nothing is removed.
    """
    needed = {question.source for question in questions}
    spare = [kind for kind in KINDS if kind not in needed] if needed <= set(KINDS) else []
    if not spare:
        return document
    return apply_ablation(document, spare[int(random.random() * len(spare))], lambda: document)
