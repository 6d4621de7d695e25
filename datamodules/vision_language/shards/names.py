"""Shards by their names: one by one, as a range in braces, or by a pattern."""

import glob
import os
import re
from collections import Counter
from collections.abc import Sequence
from itertools import product

_BRACES = re.compile(r"\{([^{}]*)\}")
_RANGE = re.compile(r"(\d+)\.\.(\d+)")
_MOST = 1_000_000


def is_remote(name: str) -> bool:
    """Whether a shard is not to be found among this machine's files: `s3://bucket/train-000.tar`."""
    return "://" in name


def shard_names(patterns: str | Sequence[str], option: str) -> list[str]:
    """Names of shards in their order.

    Args:
        patterns: names, with `{000..099}` or `{a,b}` in them, or, of files, with `*`, `?` or `[...]`.
        option: where they were given, for errors.

    Raises:
        FileNotFoundError: a pattern finds no file, or a file is not there.
        ValueError: a name stands there twice, or is none of an uncompressed tar archive.
    """
    patterns = [patterns] if isinstance(patterns, str) else list(patterns)
    names = [name for pattern in patterns for braced in _expanded(pattern, option) for name in _found(braced, option)]
    if not names:
        raise ValueError(f"{option}: no shard is named; expected names of tar archives, as train-{{000..099}}.tar")
    for name in names:
        if not name.endswith(".tar"):
            raise ValueError(f"{option}: {name} is not called *.tar; expected uncompressed tar archives")
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise ValueError(f"{option}: {twice[0]} is named twice")
    missing = [name for name in names if not is_remote(name) and not os.path.isfile(name)]
    if missing:
        more = f" and {len(missing) - 3} more" if len(missing) > 3 else ""
        raise FileNotFoundError(f"{option}: of {len(names)} shards are not there: {', '.join(missing[:3])}{more}")
    return names


def _expanded(pattern: str, option: str) -> list[str]:
    """One name for each choice in the braces."""
    pieces = _BRACES.split(pattern)  # text, choices, text, choices, ..., text
    choices = [_choices(piece, pattern, option) if place % 2 else [piece] for place, piece in enumerate(pieces)]
    count = 1
    for some in choices:
        count *= len(some)
    if count > _MOST:
        raise ValueError(f"{option}: {pattern} names {count:,} shards, expected at most {_MOST:,}")
    return ["".join(parts) for parts in product(*choices)]


def _choices(braced: str, pattern: str, option: str) -> list[str]:
    if "," in braced:
        return braced.split(",")
    found = _RANGE.fullmatch(braced)
    if found is None or int(found[2]) < int(found[1]) or int(found[2]) - int(found[1]) >= _MOST:
        raise ValueError(
            f"{option}: {pattern}: {{{braced}}} is neither a range, as {{000..099}}, nor a choice, as {{a,b}}"
        )
    width = len(found[1]) if found[1].startswith("0") else 0
    return [f"{number:0{width}d}" for number in range(int(found[1]), int(found[2]) + 1)]


def _found(name: str, option: str) -> list[str]:
    if is_remote(name):
        if glob.has_magic(name):
            raise ValueError(f"{option}: {name}: what is not among the files must be named, by a range as {{000..099}}")
        return [name]
    name = os.path.expanduser(name)
    if not glob.has_magic(name) or os.path.isfile(name):
        return [name]
    names = sorted(glob.glob(name))
    if not names:
        raise FileNotFoundError(f"{option}: {name} finds no file")
    return names
