"""Options in another order: the right one's text stays the right one."""

import numpy as np

from datamodules.document_qa.option_references import refers_to_others
from datamodules.document_qa.question import Question


def reordered(question: Question, random: np.random.Generator) -> Question:
    """A question with its options in random order; an open one, and one whose options refer to others, as it is."""
    if not question.options or refers_to_others(question):
        return question
    order = random.permutation(len(question.options)).tolist()
    options = tuple(question.options[place] for place in order)
    return question._replace(options=options, right=None if question.right is None else order.index(question.right))
