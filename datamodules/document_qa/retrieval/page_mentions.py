"""Detects page mentions: "on page 3" (one page), "pages 4-6 and 9", "pp. 2, 5", "第10页", "第3至5页", "第十二页"."""

import re
import unicodedata

_LONGEST = 50
"""Pages of the longest range; a longer range counts as an error."""

_DIGITS = {character: value for value, character in enumerate("零一二三四五六七八九")} | {"〇": 0, "两": 2}
_NUMERAL = f"(?:[0-9]+|[{''.join(_DIGITS)}十百]+)"
_TO = "(?:-|–|—|~|～|到|至)"

_ENGLISH = re.compile(
    # After the singular, a second number has another meaning: "on page 3, 12 V", "page 2 and 3 bolts".
    r"\b(?:(?:page|p\.|pg\.)\s*(?:no\.\s*)?([0-9]+)"
    r"|(?:pages|pp\.)\s*((?:nos?\.\s*)?[0-9]+(?:\s*(?:-|–|—|to|through|,\s*and|,|and|&|or)\s*[0-9]+)*))\b",
    re.IGNORECASE,
)
_CHINESE = re.compile(
    rf"第\s*({_NUMERAL}(?:\s*(?:{_TO}|、|,|，|和|与|及|或)\s*第?\s*{_NUMERAL})*)\s*[页頁]"
    rf"(?:\s*{_TO}\s*第\s*({_NUMERAL})\s*[页頁])?"
)
_PART = re.compile(rf"({_NUMERAL})(?:\s*(?:-|–|—|~|～|到|至|to|through)\s*第?\s*({_NUMERAL}))?", re.IGNORECASE)


def mentioned_pages(text: str) -> list[int]:
    """Return page numbers in the order of their mention, each once; they may exceed the document."""
    text = unicodedata.normalize("NFKC", text)
    mentions: list[tuple[int, list[int]]] = []
    for match in _ENGLISH.finditer(text):
        mentions.append((match.start(), _numbers(match[1] or match[2])))
    for match in _CHINESE.finditer(text):
        pages = _numbers(match[1])
        if match[2] and pages:  # 第3页至第5页
            pages += _range(pages[-1], _value(match[2]))
        mentions.append((match.start(), pages))
    return list(dict.fromkeys(page for _, pages in sorted(mentions) for page in pages if page > 0))


def _numbers(text: str) -> list[int]:
    numbers: list[int] = []
    for first, last in _PART.findall(text):
        numbers += _range(_value(first), _value(last)) if last else [_value(first)]
    return numbers


def _range(first: int, last: int) -> list[int]:
    return list(range(first, last + 1)) if first <= last < first + _LONGEST else [first, last]


def _value(numeral: str) -> int:
    """Return the value of digits, or of a Chinese numeral below a thousand: 十二, 二十, 一百零五, 二〇."""
    if numeral.isascii():
        return int(numeral[:9])
    if not set(numeral) & {"十", "百"}:
        return int("".join(str(_DIGITS[character]) for character in numeral[:9]))
    total = digit = 0
    for character in numeral:
        if character in _DIGITS:
            digit = _DIGITS[character]
        else:
            total += max(digit, 1) * {"十": 10, "百": 100}[character]
            digit = 0
    return total + digit
