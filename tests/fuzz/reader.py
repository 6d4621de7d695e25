"""Describes a reader to the fuzzer: valid inputs, mutations, the project's function and a plain reference."""

import re
from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any, ClassVar, NamedTuple

from tests.fuzz.mutations.byte_strings import mutate_bytes

LOCATION = re.compile(r"\b(line|row|record|sample|byte|position|page|turn|key|column|group)s?\b|:\d+:", re.IGNORECASE)
"""How a message names a location in a file."""

WHOLE = re.compile(
    r"\b(found no|no interactions|is empty|the file is|not a|is not|nothing is left|UTF-8)\b", re.IGNORECASE
)
"""Words by which a message blames the whole file."""


class Input(NamedTuple):
    """A file that a reader reads."""

    path: str  # in the reader's folder
    data: bytes

    @property
    def file_name(self) -> str:
        """Name under which the file is kept: the path in one name."""
        return self.path.replace("/", "~")


class InvalidInput(Exception):
    """The reference cannot read the input, so a reader that accepts it invents rows."""


class Unknown(Exception):
    """The reference does not decide: any rows are right. The reason is stated where it is raised."""


def text_of(path: Path) -> str:
    """Return the text of a file in UTF-8, without a byte-order mark; raise InvalidInput if it is not UTF-8."""
    try:
        return path.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InvalidInput("it is not UTF-8") from error


class Reader(ABC):
    """A reader of user input.

    The oracle: `read` returns what `reference` returns, or raises an error of the user's input whose message has at
    most three lines and names the file and, where there are lines, the line.
    """

    seconds: ClassVar[float] = 2.0
    """Most CPU seconds of a read."""

    megabytes: ClassVar[float] = 512.0
    """Most megabytes by which the resident memory may grow during a read."""

    slow_tier: ClassVar[int] = 200
    """Inputs in the slow tier; fewer where an input is dear."""

    @abstractmethod
    def seeds(self) -> Sequence[Input]:
        """Return small valid inputs, always the same."""

    def surround(self, folder: Path) -> None:  # noqa: B027  (most readers need nothing)
        """Write the files beside the input that a read needs."""

    def mutate(self, random: Random, seed: Input) -> Input:
        """Return a mutation of an input: by structure, by byte, or both."""
        data = seed.data
        for _ in range(random.choice((1, 1, 1, 2, 3))):
            data = self.restructure(random, data) if random.random() < 0.6 else mutate_bytes(random, data)
        return seed._replace(data=data)

    def restructure(self, random: Random, data: bytes) -> bytes:
        """Return the data with a mutation of their structure."""
        return mutate_bytes(random, data)

    @abstractmethod
    def read(self, path: Path) -> Any:
        """Read the file with the function that the program calls."""

    @abstractmethod
    def reference(self, path: Path) -> Any:
        """Read the file in the plainest way.

        Raises:
            InvalidInput: the file is invalid.
            Unknown: the reference does not decide.
        """

    def agrees(self, actual: Any, expected: Any) -> bool:
        """Return whether the rows are the same."""
        return bool(actual == expected)

    def names_file(self, message: str, path: Path) -> bool:
        """Return whether a message names the file."""
        return path.name in message

    def names_location(self, message: str, data: bytes) -> bool:
        """Return whether a message names where the fault is; an empty file or one of another kind has no location.

        Args:
            message: the message without the path of the file.
            data: the content of the file.
        """
        return LOCATION.search(message) is not None or WHOLE.search(message) is not None
