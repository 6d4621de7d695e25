"""Paraphrases questions by their frame only; numbers, names and relations are kept."""

import re

import numpy as np

from datamodules.document_qa.types.question import Question

_FORMS: tuple[tuple[str, ...], ...] = (
    (
        "What is the {x}?", "What's the {x}?", "State the {x}.", "Give the {x}.", "Name the {x}.",
        "Can you tell me the {x}?",
    ),
    ("Which {x}?", "Can you tell me which {x}?", "Say which {x}."),
    ("Where is {x}?", "Where does one find {x}?", "Tell me where to find {x}.", "Say where {x} is."),
    ("How many {x}?", "Can you tell me how many {x}?", "Say how many {x}."),
    ("{x}是什么？", "{x}是什么?", "{x}为何？", "请说出{x}。", "{x}是哪一个？"),
    ("{x}有多少个？", "{x}有多少个?", "请说出{x}有多少个。", "{x}共有几个？"),
)  # fmt: skip
"""The forms of a group have the same meaning; {x} is copied. A question without a known form is put into a frame."""

_FRAMES = (
    "{question}", "Question: {question}", "Please answer: {question}", "Look at the document. {question}",
    "Using the document, answer this: {question}",
)  # fmt: skip
_CHINESE_FRAMES = (
    "{question}", "请问：{question}", "请根据文档回答：{question}", "问题：{question}", "阅读文档后回答：{question}",
)  # fmt: skip

_CHINESE = re.compile("[\u4e00-\u9fff]")


def paraphrase_question(question: Question, random: np.random.Generator) -> Question:
    """Return a question in other words with the same meaning."""
    return question._replace(question=_paraphrase(question.question, random))


def _paraphrase(text: str, random: np.random.Generator) -> str:
    for forms in _FORMS:
        for form in forms:
            core = _rest(text, form)
            if core is not None:
                return forms[int(random.integers(len(forms)))].format(x=core)
    frames = _CHINESE_FRAMES if _CHINESE.search(text) else _FRAMES
    return frames[int(random.integers(len(frames)))].replace("{question}", text)


def _rest(text: str, form: str) -> str | None:
    """Return the text in place of {x}; None if the text does not have the form."""
    before, after = form.split("{x}")
    fits = len(text) > len(before) + len(after) and text.startswith(before) and text.endswith(after)
    return text[len(before) : len(text) - len(after)] if fits else None
