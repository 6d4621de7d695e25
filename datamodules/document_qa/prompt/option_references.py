"""Detects options that refer to other options, such as "none of the above" or "A和B都对"."""

import re
import unicodedata

from datamodules.document_qa.types.question import OPTION_LETTERS, Question

_LETTER = r"[(\[]?[{letters}][)\]]?"
_AND = r"(?:\s*(?:[,、/&+和与及或]|以及)\s*|\s*,?\s+(?i:and|or|nor)\s+)"
_BEFORE, _AFTER = r"(?<![A-Za-z0-9])", r"(?![A-Za-z0-9])"

_OTHERS = re.compile(
    r"\b(?:all|any|both|none|neither|either|some|one|two)(?: of)?(?: the)? "
    r"(?:above|foregoing|preceding|previous|following|below|others?|options|choices|answers)\b"
    r"|^\W*(?:both|neither)(?: of (?:them|these|the two))?\W*$|^\W*(?:all|none) of (?:them|these)\W*$"
    # 以上 alone may mean "at least", as in "10 mm 以上".
    r"|(?:以上|上述|前述|以下|其他|其余)(?:所有|全部|任意|任何|[两二三四几各]|选项|答案|说法|都|均|皆|全|不|没|无)"
    r"|(?:都|均|皆|全)(?:不|没|非)?(?:对|是|正确|错|错误)\W*$",
    re.IGNORECASE,
)


def refers_to_others(question: Question) -> bool:
    """Return whether an option refers to others by letter or position; such options must keep their order.

    Unclear cases ("vitamins A and C") count as references: the only cost is that their options are not shuffled.
    """
    letters = OPTION_LETTERS[: len(question.options)]
    return any(_refers(unicodedata.normalize("NFKC", option), letters) for option in question.options)


def _refers(option: str, letters: str) -> bool:
    letter = _LETTER.format(letters=letters)
    together = option.strip()
    if len(together) > 1 and set(together) <= set(letters) and sorted(set(together)) == list(together):
        return True  # ABD
    several = rf"{_BEFORE}{letter}(?:{_AND}{letter})+{_AFTER}"
    option_names = (
        rf"(?:\b(?i:options?|answers?|choices?|only|neither|both|except)\b\s*|选项|答案|仅|只有|除了?){letter}{_AFTER}"
    )
    return bool(_OTHERS.search(option) or re.search(f"{several}|{option_names}", option))
