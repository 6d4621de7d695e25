"""Keeps the files of visitors in memory, up to a limit. The least recently used files are dropped first."""

import secrets
from collections import OrderedDict

from commands.answers.answer_service import MEGABYTE, UploadedFile, UserInputError

_NAME_LENGTH = 200


class FileStore:
    """Files by identifiers that visitors cannot guess.

    Args:
        max_bytes: largest size of all files together.
        max_files: largest number of files.
    """

    def __init__(self, max_bytes: int = 256 * MEGABYTE, max_files: int = 500) -> None:
        self._max_bytes, self._max_files = max_bytes, max_files
        self._files: OrderedDict[str, UploadedFile] = OrderedDict()
        self._bytes = 0
        self._kept: dict[str, UploadedFile] = {}

    def keep(self, file: UploadedFile) -> str:
        """Keep a file of the page itself, which is never forgotten; return its identifier."""
        identifier = secrets.token_urlsafe(16)
        self._kept[identifier] = file
        return identifier

    def add(self, file: UploadedFile) -> str:
        """Keep a file; return its identifier."""
        identifier = secrets.token_urlsafe(16)
        self._files[identifier] = file
        self._bytes += len(file.content)
        # The newest file stays, even if it exceeds the limit by itself.
        while len(self._files) > 1 and (self._bytes > self._max_bytes or len(self._files) > self._max_files):
            _, forgotten = self._files.popitem(last=False)
            self._bytes -= len(forgotten.content)
        return identifier

    def get(self, identifier: str) -> UploadedFile:
        """Return a file. Raises UserInputError if it is not kept."""
        if identifier in self._kept:
            return self._kept[identifier]
        if identifier not in self._files:
            raise UserInputError("the file is no longer kept here; give it again")
        self._files.move_to_end(identifier)
        return self._files[identifier]


def shorten_name(name: str) -> str:
    """Return the name of a file without its folders and control characters, at most _NAME_LENGTH long."""
    plain = "".join(character for character in name.replace("\\", "/").rpartition("/")[2] if character.isprintable())
    return plain[-_NAME_LENGTH:] or "file"
