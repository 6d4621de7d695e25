"""Expands a name, a range in braces, or a pattern to the names of shards."""

import glob
import math
import os
import re
from collections import Counter
from itertools import product

_BRACES = re.compile(r"\{([^{}]*)\}")
_RANGE = re.compile(r"([0-9]{1,18})\.\.([0-9]{1,18})")
_MAX_SHARDS = 1_000_000
_COUNTED = 10**15  # shards; a larger number has thousands of digits
_MAX_SHOWN = 200  # characters of a pattern


def is_remote(name: str) -> bool:
    """Return whether a shard is remote, for example `s3://bucket/train-000.tar`."""
    return "://" in name


def shard_names(pattern: str) -> list[str]:
    """Return the names of shards in order.

    Args:
        pattern: a name, optionally with `{000..099}` or `{a,b}`, or, for local files, with `*`, `?` or `[...]`.

    Raises:
        FileNotFoundError: the pattern matches no file, or a file is missing.
        ValueError: a name occurs twice, or braces are neither a range nor a choice.
    """
    names = [name for braced in _expand_braces(pattern) for name in _match_files(braced)]
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise ValueError(f"{pattern}: {twice[0]} is named twice")
    missing = [name for name in names if not is_remote(name) and not os.path.isfile(name)]
    if missing:
        more = f" and {len(missing) - 3} more" if len(missing) > 3 else ""
        raise FileNotFoundError(f"{pattern}: of {len(names)} shards these are missing: {', '.join(missing[:3])}{more}")
    return names


def _expand_braces(pattern: str) -> list[str]:
    """Return one name per combination of the choices in braces."""
    pieces = _BRACES.split(pattern)  # text, choices, text, choices, ..., text
    count = math.prod(_count_names(piece, pattern) for piece in pieces[1::2])  # before a list takes memory
    if count > _MAX_SHARDS:
        found = f"{count:,}" if count < _COUNTED else f"over {_COUNTED:,}"
        raise ValueError(f"{pattern[:_MAX_SHOWN]} names {found} shards, expected at most {_MAX_SHARDS:,}")
    choices = [_choices(piece) if index % 2 else [piece] for index, piece in enumerate(pieces)]
    return ["".join(parts) for parts in product(*choices)]


def _count_names(braced: str, pattern: str) -> int:
    """Return the number of choices in braces."""
    if "," in braced:
        return braced.count(",") + 1
    bounds = _RANGE.fullmatch(braced)
    if bounds is None or int(bounds[2]) < int(bounds[1]):
        raise ValueError(f"{pattern}: {{{braced}}} is neither a range, as {{000..099}}, nor a choice, as {{a,b}}")
    return int(bounds[2]) - int(bounds[1]) + 1


def _choices(braced: str) -> list[str]:
    if "," in braced:
        return braced.split(",")
    bounds = _RANGE.fullmatch(braced)
    assert bounds is not None  # _count_names checked it
    width = len(bounds[1]) if bounds[1].startswith("0") else 0
    return [f"{number:0{width}d}" for number in range(int(bounds[1]), int(bounds[2]) + 1)]


def _match_files(name: str) -> list[str]:
    if is_remote(name):
        if "*" in name:
            raise ValueError(f"{name}: remote shards must be named, for example by a range such as {{000..099}}")
        return [name]
    name = os.path.expanduser(name)
    if not glob.has_magic(name) or os.path.isfile(name):
        return [name]
    names = sorted(glob.glob(name))
    if not names:
        raise FileNotFoundError(f"{name} matches no file")
    return names
