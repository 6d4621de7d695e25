"""Shards by their names: one by one, as a range in braces, or by a pattern."""

import glob
import os
import re
from collections import Counter
from itertools import product

_BRACES = re.compile(r"\{([^{}]*)\}")
_RANGE = re.compile(r"(\d+)\.\.(\d+)")
_MOST = 1_000_000


def is_remote(name: str) -> bool:
    """Whether a shard is not to be found among this machine's files: `s3://bucket/train-000.tar`."""
    return "://" in name


def shard_names(pattern: str) -> list[str]:
    """Names of shards in their order.

    Args:
        pattern: a name, with `{000..099}` or `{a,b}` in it, or, of files, with `*`, `?` or `[...]`.

    Raises:
        FileNotFoundError: the pattern finds no file, or a file is not there.
        ValueError: a name stands there twice, or braces are neither a range nor a choice.
    """
    names = [name for braced in _expanded(pattern) for name in _found(braced)]
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise ValueError(f"{pattern}: {twice[0]} is named twice")
    missing = [name for name in names if not is_remote(name) and not os.path.isfile(name)]
    if missing:
        more = f" and {len(missing) - 3} more" if len(missing) > 3 else ""
        raise FileNotFoundError(f"{pattern}: of {len(names)} shards are not there: {', '.join(missing[:3])}{more}")
    return names


def _expanded(pattern: str) -> list[str]:
    """One name for each choice in the braces."""
    pieces = _BRACES.split(pattern)  # text, choices, text, choices, ..., text
    choices = [_choices(piece, pattern) if place % 2 else [piece] for place, piece in enumerate(pieces)]
    count = 1
    for some in choices:
        count *= len(some)
    if count > _MOST:
        raise ValueError(f"{pattern} names {count:,} shards, expected at most {_MOST:,}")
    return ["".join(parts) for parts in product(*choices)]


def _choices(braced: str, pattern: str) -> list[str]:
    if "," in braced:
        return braced.split(",")
    found = _RANGE.fullmatch(braced)
    if found is None or int(found[2]) < int(found[1]) or int(found[2]) - int(found[1]) >= _MOST:
        raise ValueError(
            f"{pattern}: {{{braced}}} is neither a range, as {{000..099}}, nor a choice, as {{a,b}}"
        )
    width = len(found[1]) if found[1].startswith("0") else 0
    return [f"{number:0{width}d}" for number in range(int(found[1]), int(found[2]) + 1)]


def _found(name: str) -> list[str]:
    if is_remote(name):
        if "*" in name:
            raise ValueError(f"{name}: what is not among the files must be named, by a range as {{000..099}}")
        return [name]
    name = os.path.expanduser(name)
    if not glob.has_magic(name) or os.path.isfile(name):
        return [name]
    names = sorted(glob.glob(name))
    if not names:
        raise FileNotFoundError(f"{name} finds no file")
    return names
