"""Tokenizes text for BM25: words and numbers; characters and bigrams of Chinese, Japanese and Korean."""

import re
import unicodedata
from itertools import pairwise

_CJK = "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff\U00020000-\U000323af"
"""Han with its extensions and compatibility forms, kana, Hangul."""

# A number keeps its decimals; "12V" is split into a number and a unit, like "12 V".
_TERM = re.compile(rf"[{_CJK}]+|[0-9]+(?:[.,][0-9]+)*|[^\W\d_{_CJK}]+")
_IS_CJK = re.compile(f"[{_CJK}]")


def tokenize(text: str) -> list[str]:
    """Return the terms of a text in their order, normalized in case and character width."""
    result: list[str] = []
    for term in _TERM.findall(unicodedata.normalize("NFKC", text).casefold()):
        if _IS_CJK.match(term):
            result += term
            result += (first + second for first, second in pairwise(term))
        else:
            result.append(term)
    return result
