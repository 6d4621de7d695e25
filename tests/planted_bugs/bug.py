"""Describes a planted bug: a text of a file, its replacement, and the tests that are run first."""

from typing import NamedTuple


class Bug(NamedTuple):
    """One change of one file that keeps the program running and makes it wrong."""

    name: str
    sentence: str
    """What goes wrong."""
    file: str
    """Relative to the repository."""
    old: str
    """Occurs exactly once in the file."""
    new: str
    tests: tuple[str, ...]
    """Files and folders of tests that are likely to find it, the likeliest first."""

    def planted(self, source: str) -> str:
        """The source with the bug.

        Raises:
            ValueError: `old` does not occur exactly once.
        """
        found = source.count(self.old)
        if found != 1:
            raise ValueError(
                f"{self.name}: {self.file} has {found} times {self.old!r}, expected once: adapt the bug to the source"
            )
        return source.replace(self.old, self.new)
