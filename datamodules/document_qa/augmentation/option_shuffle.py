"""Shuffles the options of a question."""

import numpy as np

from datamodules.document_qa.prompt.option_references import refers_to_others
from datamodules.document_qa.types.question import Question


def shuffle_options(question: Question, random: np.random.Generator) -> Question:
    """Return a question with shuffled options; unchanged if it is open or its options refer to each other."""
    if not question.options or refers_to_others(question):
        return question
    order = random.permutation(len(question.options)).tolist()
    options = tuple(question.options[index] for index in order)
    return question._replace(options=options, right=None if question.right is None else order.index(question.right))
