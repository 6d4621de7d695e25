"""Compares an answer and the reference, word by word."""

import re
from difflib import SequenceMatcher

Part = tuple[str, bool]
"""A piece of text, and whether it differs."""

# A number is a single word, so 42.5 and 42.7 differ as a whole. A punctuation mark is a word as well.
_WORD = re.compile(r"\s*(?:\d+(?:\.\d+)?|[^\W\d]+|[^\w\s])|\s+")


def word_differences(truth: str, answer: str) -> tuple[list[Part], list[Part]]:
    """Split both texts into parts; the joined parts are the texts again. Differences in white space are ignored."""
    truth_words, answer_words = _WORD.findall(truth), _WORD.findall(answer)
    truth_stripped, answer_stripped = ([word.strip() for word in words] for words in (truth_words, answer_words))
    # With autojunk, difflib ignores frequent words in texts of 200 words or more.
    matcher = SequenceMatcher(None, truth_stripped, answer_stripped, autojunk=False)
    truth_parts: list[Part] = []
    answer_parts: list[Part] = []
    for kind, start, end, answer_start, answer_end in matcher.get_opcodes():
        _append(truth_parts, "".join(truth_words[start:end]), kind != "equal")
        _append(answer_parts, "".join(answer_words[answer_start:answer_end]), kind != "equal")
    return truth_parts, answer_parts


def _append(parts: list[Part], text: str, differs: bool) -> None:
    """Append a part. White space before a different word is not marked as different."""
    word = text.lstrip()
    space = text[: len(text) - len(word)]
    if differs and space:
        parts.append((space, False))
    if differs and word:
        parts.append((word, True))
    elif not differs and text:
        parts.append((text, False))
