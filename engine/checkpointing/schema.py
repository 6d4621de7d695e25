"""Describes the content of a checkpoint: which key holds which kind of value.

A file with a valid checksum can hold invalid values. The rules are checked before anything is loaded, so that a wrong
value is reported with its key, and not as an error in the code that uses it.
"""

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch

from engine.number_check import is_integer, is_number

Rule = Callable[[Any, str], Iterator[str]]
"""Yields the problems of a value. The second argument is its path in the checkpoint, such as `loops.fit_loop`."""

_MAX_COUNT = 2**53  # a float64 holds every integer below it
_MAX_TEXT = 40  # characters of a value that a message quotes


def describe(value: object) -> str:
    """Describe a value for a message: a scalar by its value, a container or tensor by its type and size."""
    if isinstance(value, torch.Tensor):
        return f"a tensor of {str(value.dtype).removeprefix('torch.')} {list(value.shape)}"
    if isinstance(value, (str, bytes, bool, int, float, complex, type(None))):
        if isinstance(value, int) and abs(value) > _MAX_COUNT:
            return f"an integer of {value.bit_length()} bits"
        text = repr(value[:_MAX_TEXT] if isinstance(value, (str, bytes)) else value)
        return f"{text[:_MAX_TEXT]}..." if len(text) > _MAX_TEXT else text
    name = f"a {type(value).__name__}"
    return f"{name} of {len(value)}" if isinstance(value, (list, tuple, set, Mapping)) else name


def kind(expected: str, accepts: Callable[[Any], bool]) -> Rule:
    """Return the rule that `accepts` is true for a value.

    Args:
        expected: description of the accepted values, for the message.
        accepts: returns whether the rule holds.
    """

    def check(value: object, key: str) -> Iterator[str]:
        if not accepts(value):
            yield f"{key} is {describe(value)}, expected {expected}"

    return check


COUNT = kind("a count", lambda value: is_integer(value) and 0 <= value < _MAX_COUNT)
POSITIVE = kind("a positive count", lambda value: is_integer(value) and 0 < value < _MAX_COUNT)
INTEGER = kind("an integer", is_integer)
NUMBER = kind("a finite number", lambda value: is_number(value) and abs(value) < _MAX_COUNT and math.isfinite(value))
# Unlike a NUMBER, a metric may be NaN or infinite.
METRIC = kind("a number", lambda value: is_number(value) and (isinstance(value, float) or abs(value) < _MAX_COUNT))
FLAG = kind("true or false", lambda value: isinstance(value, bool))
TEXT = kind("a string", lambda value: isinstance(value, str))
TENSOR = kind("a tensor", lambda value: isinstance(value, torch.Tensor))
SCALAR = kind("a number in a tensor", lambda value: isinstance(value, torch.Tensor) and value.numel() == 1)
MAPPING = kind("a dict", lambda value: isinstance(value, dict))


def fields(required: Mapping[str, Rule], optional: Mapping[str, Rule] | None = None) -> Rule:
    """Return the rule for a dict with certain keys. It may have further keys."""
    optional = optional or {}

    def check(value: object, key: str) -> Iterator[str]:
        yield from MAPPING(value, key)
        if not isinstance(value, dict):
            return
        missing = [name for name in required if name not in value]
        if missing:
            yield f"{key} has no {', '.join(missing)}"
        for name, rule in {**required, **optional}.items():
            if name in value:
                yield from rule(value[name], f"{key}.{name}" if key else name)

    return check


def each(rule: Rule, names: type = str) -> Rule:
    """Return the rule for a dict whose keys have the type `names` and whose values follow a rule."""

    def check(value: object, key: str) -> Iterator[str]:
        yield from MAPPING(value, key)
        for name, item in value.items() if isinstance(value, dict) else ():
            if type(name) is not names:
                yield f"{key} has the key {describe(name)}, expected one of type {names.__name__}"
            shown = describe(name).strip("'")  # a string's quotes would repeat in each longer key
            yield from rule(item, f"{key}.{shown}")

    return check


def list_of(rule: Rule, length: int | None = None) -> Rule:
    """Return the rule for a list whose members follow a rule, and which has `length` members if given."""
    number = "" if length is None else f" of {length}"
    is_list = kind(f"a list{number}", lambda value: isinstance(value, list) and length in (None, len(value)))

    def check(value: object, key: str) -> Iterator[str]:
        yield from is_list(value, key)
        for index, item in enumerate(value if isinstance(value, list) else ()):
            yield from rule(item, f"{key}[{index}]")

    return check


def optional(rule: Rule) -> Rule:
    """Return the rule for None or a value that follows a rule."""

    def check(value: object, key: str) -> Iterator[str]:
        if value is not None:
            yield from rule(value, key)

    return check


def find_problem(content: object, rule: Rule, key: str = "") -> str | None:
    """Return the first problem of a value, None if it follows its rule."""
    return next(rule(content, key), None)
