"""Grades an answer: exact match, token F1, ANLS, and the letter of an option."""

import re
from collections import Counter

from datamodules.multimodal.text.text_similarity import anls
from datamodules.vision_language.chat_file import ReferenceAnswer

OUTCOMES = ("exact", "token_f1")
"""Names of the outcomes of `grade`."""

ANLS = "anls"
"""Name of the outcome of tables with several accepted answers (Biten et al., "Scene Text VQA", 2019)."""

_LETTER = (
    r"(?:(?:the )?(?:correct |right )?(?:answer|option|choice)(?: is)?(?: option)?:?|(?:正确)?答案(?:是|为)?[::]?|选)?"
    r"\s*[*(\[(]*([%s])(?:$|\s*(?:[.:),\]。、:),]|\*\*)"
    r"|(?: is (?:the )?(?:correct|right)(?: (?:answer|option|choice|one))?\s*(?:$|[.,!])))"
)
"""The letter of an option: alone, in brackets or bold, before a mark, or in a sentence. "A cat" has an article."""

# In scripts without spaces between words, each character is a token.
_UNSPACED = "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
_WORD = re.compile(f"[{_UNSPACED}]|[^\\W{_UNSPACED}]+")


def grade(right: str, text: str) -> dict[str, tuple[float, float]]:
    """Return {outcome: (points reached, points possible)} of an answer.

    `exact`: equal except for case, white space and a final period. `token_f1`: harmonic mean of the precision and the
    recall of the words (Rajpurkar et al., "SQuAD", 2016).

    Args:
        right: the reference.
        text: the answer.
    """
    exact = float(_normalize(right) == _normalize(text))
    return {"exact": (exact, 1.0), "token_f1": (_token_f1(right, text, exact), 1.0)}


def grade_reference(reference: ReferenceAnswer, text: str, with_anls: bool) -> dict[str, tuple[float, float]]:
    """Return {outcome: (points reached, points possible)} of an answer to a question of a table.

    With options, `exact` is whether the answer chooses the right option, by its letter or by its text. Otherwise each
    outcome is the best over all accepted answers.

    Args:
        reference: what is accepted.
        text: the answer.
        with_anls: grade an open question by `anls` as well. The mean is over all questions of a table, as in DocVQA,
            so it must not depend on how many answers of this question differ.
    """
    if reference.letters:
        grades = {"exact": (float(chosen_letter(reference, text) == reference.accepted[0]), 1.0)}
    else:
        each = [grade(right, text) for right in reference.accepted]
        grades = {name: max(points[name] for points in each) for name in OUTCOMES}
        if with_anls:
            grades[ANLS] = max(anls(right, text) for right in reference.accepted), 1.0
    return grades | ({f"{reference.kind}/exact": grades["exact"]} if reference.kind else {})


def chosen_letter(reference: ReferenceAnswer, text: str) -> str:
    """Return the letter of the option that an answer chooses; empty if it chooses none.

    Args:
        reference: a reference with letters.
        text: the answer: an option's text, its letter alone or before a mark, as `B`, `(B)`, `**B**`, `B. two`, or a
            sentence such as `The answer is B.`, `Option B is correct` or `答案是B。`
    """
    options = [_normalize(option) for option in reference.options]
    # The text of an option comes first: an option may itself be a letter.
    if options.count(_normalize(text)) == 1:
        return reference.letters[options.index(_normalize(text))]
    match = re.match(_LETTER % reference.letters, text.strip(), re.IGNORECASE)
    return match[1].upper() if match else ""


def _normalize(text: str) -> str:
    return " ".join(text.casefold().split()).rstrip(".\u3002").rstrip()


def _token_f1(right: str, text: str, exact: float) -> float:
    expected, found = (Counter(_WORD.findall(words.casefold())) for words in (right, text))
    if not expected or not found:  # only punctuation
        return exact
    shared = (expected & found).total()
    return 2 * shared / (expected.total() + found.total())
