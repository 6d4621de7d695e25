"""Splits a command line into options and values, for code that runs before the parser or rewrites what it will read."""

from collections.abc import Callable, Collection, Iterator, Sequence
from itertools import zip_longest
from typing import NamedTuple

CONFIG_OPTIONS = ("--config", "-c")


class Argument(NamedTuple):
    """An option with its value, or a single word of the command line."""

    words: tuple[str, ...]
    """As the user wrote it: `--option VALUE`, `--option=VALUE` or any other word."""
    option: str = ""
    """Name of the option; empty for a word that is not one of the requested options."""
    value: str = ""
    """Empty if the command line gives none."""

    def with_value(self, value: str) -> tuple[str, ...]:
        """Return the words of the same option with another value."""
        return (f"{self.option}={value}",) if len(self.words) == 1 else (self.option, value)


def split_arguments(words: Sequence[str], options: Collection[str]) -> Iterator[Argument]:
    """Yield the arguments of a command line in their order.

    Args:
        words: `--OPTION VALUE` or `--OPTION=VALUE`.
        options: options that take a value. Every other word is an argument of its own, as the parser alone knows
            whether the next word is its value.
    """
    remaining = iter(zip_longest(words, words[1:], fillvalue=""))
    for word, following in remaining:
        option, equals, value = word.partition("=")
        if option not in options:
            yield Argument((word,))
        elif equals or not following or following.startswith("--"):
            yield Argument((word,), option, value)
        else:
            next(remaining)
            yield Argument((word, following), option, following)


def values_of(words: Sequence[str], *options: str) -> list[str]:
    """Return the values of an option, or of an option with several names, in their order; the last one counts."""
    return [argument.value for argument in split_arguments(words, options) if argument.value]


def replace_values(words: Sequence[str], options: Collection[str], replace: Callable[[str], str]) -> list[str]:
    """Return the command line with `replace(value)` for each value of the options."""
    replaced: list[str] = []
    for argument in split_arguments(words, options):
        replaced += argument.with_value(replace(argument.value)) if argument.value else argument.words
    return replaced


def option_values(words: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield every option with the text that follows it, which is empty or not a value for an option without one."""
    for word, following in zip_longest(words, words[1:], fillvalue=""):
        option, equals, value = word.partition("=")
        if option.startswith("-"):
            yield option, value if equals else following
