"""Tests paraphrases of questions."""

import re

import numpy as np
import pytest

from datamodules.document_qa.augmentation.paraphrase import paraphrase_question
from datamodules.document_qa.types.question import Question

QUESTIONS = {
    "What is the mass of part 7?": "mass of part 7",
    "Which part is above the cover M3 in figure 2?": "part is above the cover M3 in figure 2",
    "How many bolts hold the lid of the 3.5 A pump?": "bolts hold the lid of the 3.5 A pump",
    "Where is part 3 relative to part 8?": "part 3 relative to part 8",
    "On page 3, what does part {4} do?": "On page 3, what does part {4} do?",
    "部件4位于部件5的哪一侧？": "部件4位于部件5的哪一侧？",
    "第10页图中编号为8的部件是什么？": "第10页图中编号为8的部件",
}


@pytest.mark.parametrize(("question", "kept"), QUESTIONS.items())
def test_numbers_names_and_relations_stay_as_they_were(question: str, kept: str) -> None:
    random = np.random.Generator(np.random.Philox(key=5))
    original = Question("1", question, "pump", ("a", "b"), "a", 0)
    others = [paraphrase_question(original, random) for _ in range(100)]
    assert all(kept in other.question for other in others)
    assert all(other._replace(question=question) == original for other in others)
    assert len({other.question for other in others}) > 2
    numbers = re.findall(r"\d+", question)
    assert all(re.findall(r"\d+", other.question) == numbers for other in others)


def test_paraphrases_of_chinese_have_no_latin_letters() -> None:
    random = np.random.Generator(np.random.Philox(key=5))
    others = {paraphrase_question(Question("1", "部件4有什么作用", "pump"), random).question for _ in range(50)}
    assert not any(re.search("[a-zA-Z]", other) for other in others)
