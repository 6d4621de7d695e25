"""Detects abstentions ("the document does not say") and scores them."""

import re
import unicodedata
from collections.abc import Sequence

from datamodules.document_qa.types.question import UNANSWERABLE, Question

_WHOLE = re.compile(
    r"(?:the answer is |it is |answer: ?)?(?:unknown|n/?a|none|no answer|无|没有|未知|不详|不清楚|不知道"
    r"|not (?:known|given|stated|specified|mentioned|provided|available|found|shown|present|applicable|sure|clear))"
)
"""Abstentions if they are the whole answer; within a longer answer these words have other meanings."""

_ANYWHERE = re.compile(
    rf"{UNANSWERABLE}|\bun-?answerable\b"
    r"|\b(?:can ?not|can't|could not|impossible to) (?:be )?(?:answer|determin|infer|tell|say)"
    r"|\b(?:do not|don't|does not|doesn't) "
    r"(?:know|say|state|mention|contain|specify|tell|provide|give|show|answer|include)"
    r"|\bno (?:information|mention|data|evidence|such)\b|\b(?:not enough|insufficient) (?:information|data|context)"
    r"|\bnot (?:given|stated|specified|mentioned|provided|found|shown|contained|described) (?:in|by|on|anywhere)\b"
    r"|无法(?:回答|确定|得知|判断|获知|推断|找到)|不(?:能|可)(?:回答|确定|得知|判断)"
    r"|未(?:提及|说明|给出|提到|指明|注明|标明|涉及)|没有(?:提及|说明|给出|提到|指明|标明|相关|答案)"
    r"|(?:不存在|无|缺乏)(?:答案|相关信息)|信息不足"
)
"""Phrases that make any answer an abstention."""

_RIGHT = re.compile(
    rf"(?:it is |(?:this|the) question is )?(?:{UNANSWERABLE}|un-?answerable)|no answer (?:can be )?(?:found|given)"
    r"|(?:(?:the|this) question |it )?(?:can ?not|can't) be (?:answered|determined)"
    r"(?: (?:from|by|with) (?:the|this) (?:document|text|context))?"
    r"|(?:the|this) (?:document|text|context) (?:does not|doesn't) (?:say|tell|answer (?:it|this|the question))"
    r"|(?:there is )?(?:not enough|insufficient) information"
    r"|not (?:given|stated|specified|mentioned|provided|found) (?:in|by) (?:the|this) (?:document|text|context)"
    r"|(?:该问题|此问题|本题|问题|文中|文档中?|根据文档)?(?:无法|不能|不可)(?:回答|确定|判断|得知)"
    r"|(?:文中|文档中?)?(?:均|并)?(?:未|没有)(?:提及|说明|给出|提到|涉及)"
    r"|(?:文中|文档中?)?(?:没有|无)(?:答案|相关信息)|信息不足"
)
"""How a right answer states that; "No, it does not contain mercury", "No data link" and "none" are real answers."""


def is_abstention(text: str) -> bool:
    """Return whether an answer in English or Chinese states that the question is unanswerable; "" does not."""
    text = _normalize(text)
    return bool(_WHOLE.fullmatch(text) or _ANYWHERE.search(text))


def says_unanswerable(answer: str) -> bool:
    """Return whether a right answer, or an option, states only that the document does not answer the question."""
    return bool(_RIGHT.fullmatch(_normalize(answer)))


def is_unanswerable(question: Question) -> bool:
    """Return whether the right answer is to abstain, or the option that states so."""
    if question.answer_type in ("choice", None) and question.answer is not None:
        return question.source == "none" or says_unanswerable(question.answer)
    return question.source == "none" or question.answer_type == "unanswerable"


def abstention_f1(unanswerable: Sequence[bool], abstained: Sequence[bool]) -> float:
    """Return the F1 score of abstentions: precision and recall with respect to unanswerable questions.

    As in Ma et al., "MMLongBench-Doc", 2024, who take the F1 with unanswerable questions as a class of their own.

    Raises:
        ValueError: there are neither abstentions nor unanswerable questions, or the lengths differ.
    """
    true_abstentions = sum(right and abstains for right, abstains in zip(unanswerable, abstained, strict=True))
    total = sum(unanswerable) + sum(abstained)
    if not total:
        raise ValueError("found no abstention and no unanswerable question, so there is no F1")
    return 2 * true_abstentions / total


def _normalize(text: str) -> str:
    return " ".join(unicodedata.normalize("NFKC", text).replace("\u2019", "'").casefold().split()).strip(" .。!")
