"""Splits the terms of a question into those that name its subject and function words, which occur on any page."""

import re
import unicodedata
from functools import cache
from typing import NamedTuple

from datamodules.document_qa.retrieval.tokenization import tokenize

_CHINESE = (
    *("请问", "什么", "怎么", "怎样", "如何", "为什么", "为何", "多少", "哪个", "哪些", "哪里", "几个", "是否"),
    *("可以", "能够", "需要", "应该", "应当", "这个", "那个", "这些", "那些", "一个"),
    *"的了是和与及或吗呢吧哪",
)
"""Function and question words. Characters that also are parts of nouns, such as 能 in 功能, are not among them."""

_CHINESE_WORD = re.compile("|".join(sorted(_CHINESE, key=len, reverse=True)))

# Chinese and Japanese are written without spaces around names.
_CJK = "\u3000-\u30ff\u3400-\u9fff\uff00-\uffef"
_W = rf"[^\W{_CJK}]"

_IDENTIFIER = re.compile(
    # `-s` and `--ckpt_path`; not the second half of `cross-section`.
    rf"(?<!{_W})(?<!-)--?[^\W\d_{_CJK}](?:{_W}|-)*"
    # `max_steps`, `__all__`, `login.defs`, `data/raw`, `x86-64`; from the start of a word only, which takes linear time
    rf"|(?<!{_W}){_W}+(?:[_.\-/]{_W}+)+|(?<!{_W}){_W}*_{_W}*"
)
_NUMBER = re.compile(r"[\d.,\-/]+")


class QuestionTerms(NamedTuple):
    """Terms of a question, split into those that name its subject and those that only ask."""

    subject: list[str]
    function: list[str]  # words such as "what" and "does"


def identifiers(text: str) -> list[str]:
    """Return names with punctuation as whole terms, which are rarer than their parts: options, variables, files."""
    folded = unicodedata.normalize("NFKC", text).casefold()
    return [name for name in _IDENTIFIER.findall(folded) if not _NUMBER.fullmatch(name)]


def question_terms(text: str) -> QuestionTerms:
    """Return the terms of a question, with its identifiers.

    Manuals are statements: in them "what" is rarer than most subjects, and BM25 takes rare terms for important terms.
    """
    stops = _english()
    other_text = _CHINESE_WORD.sub(" ", text)
    words = tokenize(other_text)
    function = [term for word in _CHINESE_WORD.findall(text) for term in tokenize(word)]
    return QuestionTerms(
        [word for word in words if word not in stops] + identifiers(other_text),
        function + [word for word in words if word in stops],
    )


@cache
def _english() -> frozenset[str]:
    from bm25s.stopwords import STOPWORDS_EN_PLUS

    return frozenset(STOPWORDS_EN_PLUS)
