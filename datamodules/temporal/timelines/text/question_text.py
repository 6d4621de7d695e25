"""Converts facts to text and text to facts."""

import re
from functools import lru_cache
from typing import Any

from datamodules.temporal.timelines.channels import KEYS
from datamodules.temporal.timelines.text.facts import Facts, Task
from datamodules.temporal.timelines.text.number_format import Notation, Pick
from datamodules.temporal.timelines.text.templates import (
    ANSWERS,
    QUESTIONS,
    Table,
    answer_templates,
    question_templates,
)

_SLOT = re.compile(r"\{(\w+)\}")
_LONGEST = 2_000  # maximum characters of an answer that are parsed, for models that do not stop


def question(facts: Facts, notation: Notation, pick: Pick) -> str:
    """Return the question without the series; `pick` chooses among templates and synonyms."""
    return _fill(question_templates(facts, notation.format), facts, notation, pick)


def answer(facts: Facts, notation: Notation, pick: Pick) -> str:
    """Return the reference answer; `pick` chooses among templates and synonyms."""
    return _fill(answer_templates(facts, notation.format), facts, notation, pick)


def read_answer(text: str, notation: Notation, channel: str) -> dict[str, Any]:
    """Parse an answer about a channel; the keys are the names of the facts. Never raises.

    The template that matches the longest prefix is used, so a truncated answer yields the slots before the cut. Values
    in another unit than the channel's are not parsed.
    """
    return _parse_text(text, notation, channel, "answer")[1]


def read_question(text: str, notation: Notation) -> tuple[Task, dict[str, Any]] | None:
    """Parse a question that `question` wrote to its task and `Facts.question_slots`; None if no template matches."""
    for channel in KEYS:
        task, slots_found = _parse_text(text, notation, channel, "question")
        if task is not None and slots_found.get("channel") == channel and _is_whole(text, notation, channel):
            return task, slots_found
    return None


def _is_whole(text: str, notation: Notation, channel: str) -> bool:
    """Return whether a template matches the whole text."""
    return any(whole.fullmatch(text) for _, _, _, whole in _compile_templates("question", notation, channel))


def _fill(templates: tuple[str, ...], facts: Facts, notation: Notation, pick: Pick) -> str:
    template = templates[pick(len(templates))] if len(templates) > 1 else templates[0]
    text = _SLOT.sub(lambda slot: notation.write(slot[1], facts, pick), template)
    return text if notation.format == "tiny" else text[0].upper() + text[1:]


def _parse_text(text: str, notation: Notation, channel: str, kind: str) -> tuple[Task | None, dict[str, Any]]:
    best: tuple[tuple[int, int], Task | None, dict[str, Any]] = (0, 0), None, {}
    for task, slots, prefix, _ in _compile_templates(kind, notation, channel):
        match = prefix.search(text[:_LONGEST])
        if match is None:
            continue
        groups = [group for group in match.groups() if group is not None]
        # More slots win, then the longer match.
        worth = len(groups), len(match[0])
        if worth > best[0]:
            slots_found: dict[str, Any] = {}
            for slot, group in zip(slots, groups, strict=False):
                slots_found |= notation.read(slot, group)
            best = worth, task, slots_found
    return best[1:]


@lru_cache(maxsize=256)
def _compile_templates(
    kind: str, notation: Notation, channel: str
) -> list[tuple[Task, list[str], re.Pattern[str], re.Pattern[str]]]:
    """Return (task, slots, pattern of the longest prefix, pattern of the whole text) of each template."""
    table: Table = (QUESTIONS if kind == "question" else ANSWERS)[notation.format]
    unique = dict.fromkeys((task, template) for (task, _), templates in table.items() for template in templates)
    compiled = []
    for task, template in unique:
        literals, slots = _SLOT.split(template)[::2], _SLOT.findall(template)
        patterns = [notation.pattern(slot, channel) for slot in slots]
        parts = [re.escape(literal) + pattern for literal, pattern in zip(literals, patterns, strict=False)]
        # Nested optional groups: each slot matches only if all slots before it match.
        prefix = parts[0] + "".join(f"(?:{part}" for part in parts[1:]) + f"(?:{re.escape(literals[-1])})?"
        prefix += ")?" * (len(parts) - 1)
        full_pattern = "".join(parts) + re.escape(literals[-1])
        flags = re.IGNORECASE
        compiled.append((task, slots, re.compile(prefix, flags), re.compile(full_pattern, flags)))
    return compiled
