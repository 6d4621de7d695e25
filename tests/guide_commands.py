"""The commands that a page of the documentation says to type."""

import re
import shlex

from tests.conftest import REPOSITORY

LAUNCHERS = r"(?:\w+=\S+ )*(?:python|torchrun|srun|accelerate)\b"


def commands(page: str) -> list[list[str]]:
    """The words of each line that runs train.py, with continued lines joined, without what is said beside them.

    Args:
        page: a file of the repository, `docs/quickstart.md`.
    """
    text = (REPOSITORY / page).read_text(encoding="utf-8").replace("\\\n", " ")
    lines = re.findall(rf"^    ({LAUNCHERS}.*\btrain\.py .*)$", text, flags=re.MULTILINE)
    return [shlex.split(line, comments=True) for line in lines]


def options(command: list[str]) -> list[str]:
    """What train.py is given."""
    return command[command.index("train.py") + 1 :]
