"""What `prepare` has to do with; while none of it changes there is nothing to do again."""

from pathlib import Path
from typing import NamedTuple


class PreparedFiles(NamedTuple):
    """Files, and folders with everything in them."""

    read: tuple[Path, ...]
    written: tuple[Path, ...]
