"""Shortens errors of jsonargparse, which list each type of a union with the reason why it does not fit."""

import difflib
import inspect
import re
import sys
from importlib import import_module

MAX_CHARACTERS = 400
"""Largest length of a message. The middle of a longer message is cut."""

_KEY = re.compile(
    # A key may have quotes itself.
    r"Parser key \"([^\"]+)\"|Option '(.+)' is not accepted|(?:Group '([^']+)' )?does not accept option '(.+)'"
)
_NO_SETTINGS = re.compile(r"\nUnable to load config .*\n *- Parser key \"[^\"]+\": Unable to load config (.*)")
_LITERAL = re.compile(r"Literal\[([^\]]*)\]")
_NESTED = re.compile(r"NestedArg\(key='([^']*)', val=(.*)\)$", re.DOTALL)
"""Value of an option below the innermost key, `--model.class_path x` for `model`."""
_UNKNOWN = re.compile(r"is not accepted|does not accept option")
_CLASS_PATH = re.compile(r"given class_path '([\w.]+)'")
_NO_ATTRIBUTE = re.compile(r"Problem with given class_path '[^']*':\s+module '([\w.]+)' has no attribute '(\w+)'")
_NO_MODULE = re.compile(r"No module named '([\w.]+)'")
_NO_CLASS = re.compile(r"Expected a dot import path string: (\w+)\n(?:.*\n)*.*Given value: \{'class_path'")
_BASES = re.compile(r"<class '([\w.]+)\.(\w+)'>")
_WRAPPED = ("Does not validate against any of the Union subtypes", "Problem with given class_path")
_BY_CLASS = re.compile(r"\n  - (?!Expected an? <class )(.+?)(?=\n  - |\nGiven value type)", re.DOTALL)
_IN_WORDS = (
    (r", Expected an? ", " or "),
    (r"<class '(?:\w+\.)*(\w+)'>", r"\1"),
    (r"typing\.", ""),
    (r"NoneType", "null"),
    (r"argument of type '\w+' is not iterable|unhashable type: '\w+'", "Expected a class_path that is text"),
    (r"'\w+' object has no attribute 'keys'", "Expected settings (KEY: VALUE)"),
    (r"\. Got value:", ", found"),
    (r"Given value:", "found"),
)
"""Types and phrases of jsonargparse, and their words."""
_NOT_A_REASON = (
    "Does not validate", "Subtypes:", "Errors:", "Given value type", "Parser key", "Problem with given",
    "Subclass types expect", "a class path (str)", "a dict with", "a dict without", "Expected a path but",
)  # fmt: skip


def parse_error(message: str) -> tuple[list[str], str]:
    """Return the keys of an error, outermost first, and the reason for the innermost key's value.

    The keys omit `init_args` and positions in lists.
    """
    message = _NO_SETTINGS.sub(r" expected settings (KEY: VALUE), found \1", message)
    keys: list[str] = []
    depth, inside = -1, message.splitlines() or [""]
    # The innermost key: errors of nested parsers are indented further than the error around them.
    for number, line in enumerate(message.splitlines()):
        match, indent = _KEY.search(line), len(line) - len(line.lstrip())
        if match and indent > depth:  # else the line is about another type of a union
            keys += ".".join(filter(None, match.groups())).split(".")
            depth, inside = indent, message.splitlines()[number:]
    # The reasons: the lines below the innermost key, one for each type of a union.
    remaining = [line for line in inside[1:] if len(line) - len(line.lstrip()) > depth or not line.strip()]
    if keys and _UNKNOWN.search(inside[0]):
        paths = _CLASS_PATH.findall(message)
        return keys, "there is no such setting" + (_suggestion(keys[-1], paths[-1]) if paths else "")
    if not keys:
        return keys, inside[0]
    if no_class := _missing_class("\n".join(inside)):
        return keys, no_class
    inline_reason = inside[0].partition('":')[2].strip()
    words = [_reason(line) for line in remaining]
    reasons = [word for word in words if word and not word.startswith(_NOT_A_REASON)]
    reason = ", ".join(dict.fromkeys([inline_reason] * bool(inline_reason) + reasons))
    for pattern, plain in _IN_WORDS:
        reason = re.sub(pattern, plain, reason)
    if nested := _NESTED.search(reason):
        keys += [key for key in nested[1].split(".") if key != "init_args"]
        value = nested[2].strip("'")
        reason = f"{reason[: nested.start()]}{value}"
    return keys, shorten(re.sub(r"\bExpected a (?=[aeiou])", "Expected an ", _spell_out_choices(reason)))


def _reason(line: str) -> str:
    """Return what a line of jsonargparse's list says about one type of a union."""
    reason = re.sub(r"^Expected (?=<)", "Expected a ", line.strip().removeprefix("- "))
    return re.sub(r"^Expected (a )?dot import path string: .*", "Expected an existing class_path", reason)


def _spell_out_choices(reason: str) -> str:
    """Return a reason with the values of a Literal in words: `expected one of text, json; found yaml`."""
    only = re.fullmatch(rf"Expected a {_LITERAL.pattern}( or null)?, found (.*)", reason, flags=re.DOTALL)
    if only:
        return f"expected one of {_choices(only[1])}{', null' * bool(only[2])}; found {only[3]}"
    reason = reason.replace("Expected a Literal[", "Expected Literal[")
    return _LITERAL.sub(lambda literal: _choices(literal[1]).replace(", ", " or "), reason)


def _choices(literal: str) -> str:
    return ", ".join(value.strip().strip("'\"") for value in literal.split(","))


def raised_by_class(error: Exception) -> BaseException:
    """Return the error of a class that could not be created, which jsonargparse puts into a list of types."""
    cause: BaseException = error
    while cause.__cause__ is not None and str(cause).startswith(_WRAPPED):
        by_class = _BY_CLASS.search(str(cause))
        if by_class and str(cause.__cause__).startswith("Expected a"):  # of another type of the union, such as a name
            return ValueError(by_class[1])
        cause = cause.__cause__
    return cause


def deduplicate(message: str) -> str:
    """Remove repeated parts: nested parsers add the same advice."""
    return "; ".join(dict.fromkeys(message.strip().split("; ")))


def shorten(text: str, max_length: int = MAX_CHARACTERS) -> str:
    """Return a text as one printable line, with its middle cut if it is longer than `max_length`."""
    line = "".join(letter if letter.isprintable() else repr(letter)[1:-1] for letter in " ".join(text.split()))
    return line if len(line) <= max_length else f"{line[: max_length - 120]} ... {line[-110:]}"


def nearest(name: str, names: list[str]) -> str:
    """Return advice to use the known name that is spelled most similarly; empty if none is similar."""
    matches = difflib.get_close_matches(name, names, n=1)
    return f"; did you mean {matches[0]}?" if matches else ""


def _missing_class(message: str) -> str:
    """Return that there is no class of a class_path, with the nearest name; empty if the error is another."""
    if absent := _NO_ATTRIBUTE.search(message):
        module, name = absent.groups()
        return f"there is no class {name} in {module}{nearest(name, dir(sys.modules.get(module)))}"
    if absent := _NO_MODULE.search(message):
        return f"no module named {absent[1]} can be imported; install it, or put its folder on PYTHONPATH"
    if absent := _NO_CLASS.search(message):
        bases = [getattr(sys.modules.get(module), name, None) for module, name in _BASES.findall(message)]
        names = [kind.__name__ for base in bases if isinstance(base, type) for kind in _subclasses(base)]
        return f"there is no class {absent[1]}{nearest(absent[1], names)}"
    return ""


def _subclasses(base: type) -> list[type]:
    children: list[type] = base.__subclasses__()
    return [base, *(kind for child in children for kind in _subclasses(child))]


def _suggestion(name: str, class_path: str) -> str:
    module, _, class_name = class_path.rpartition(".")
    try:
        config_class = getattr(import_module(module), class_name)
    except (ImportError, AttributeError, ValueError):
        return ""
    names = [key for base in inspect.getmro(config_class) if "__init__" in vars(base) for key in _parameters(base)]
    return f" of {class_name}{nearest(name, names)}"


def _parameters(of: type) -> list[str]:
    try:
        return list(inspect.signature(of).parameters)
    except (TypeError, ValueError):  # a class of an extension module
        return []
