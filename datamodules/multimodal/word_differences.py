"""Where an answer differs from the truth, word by word."""

import re
from difflib import SequenceMatcher

Part = tuple[str, bool]
"""A piece of text, and whether it differs."""

# A number is one word, so that 42.5 and 42.7 differ as a whole; a sign or a comma is one too.
_WORD = re.compile(r"\s*(?:\d+(?:\.\d+)?|[^\W\d]+|[^\w\s])|\s+")


def word_differences(truth: str, answer: str) -> tuple[list[Part], list[Part]]:
    """Both texts in parts; joined they are the texts again. White space alone is no difference."""
    ours, theirs = _WORD.findall(truth), _WORD.findall(answer)
    matcher = SequenceMatcher(None, [word.strip() for word in ours], [word.strip() for word in theirs], autojunk=False)
    truth_parts: list[Part] = []
    answer_parts: list[Part] = []
    for kind, start, end, other_start, other_end in matcher.get_opcodes():
        _append(truth_parts, "".join(ours[start:end]), kind != "equal")
        _append(answer_parts, "".join(theirs[other_start:other_end]), kind != "equal")
    return truth_parts, answer_parts


def _append(parts: list[Part], text: str, differs: bool) -> None:
    """Adds a part; the white space before a different word belongs to what precedes it."""
    word = text.lstrip()
    space = text[: len(text) - len(word)]
    if differs and space:
        parts.append((space, False))
    if differs and word:
        parts.append((word, True))
    elif not differs and text:
        parts.append((text, False))
