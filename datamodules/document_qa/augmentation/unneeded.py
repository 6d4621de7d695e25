"""Samples without what their questions do not rest on, so that a model does not come to lean on it."""

from collections.abc import Sequence

import numpy as np

from datamodules.document_qa.ablation import ablated
from datamodules.document_qa.document import KINDS, Document
from datamodules.document_qa.question import Question


def without_unneeded(questions: Sequence[Question], document: Document, random: np.random.Generator) -> Document:
    """The document without its texts, its tables or its figures, whichever none of the questions rests on.

    Of a question that rests on several kinds, or of which it is not known, all are needed.
    """
    needed = {question.source for question in questions}
    spare = [kind for kind in KINDS if kind not in needed] if needed <= set(KINDS) else []
    if not spare:
        return document
    return ablated(document, spare[int(random.random() * len(spare))], lambda: document)
