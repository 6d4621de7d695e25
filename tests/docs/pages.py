"""Pages of the documentation, and their parts: prose, code, tables, commands."""

import re
import shlex
from string import Template

from tests.conftest import REPOSITORY

PAGES = sorted(
    path.relative_to(REPOSITORY).as_posix()
    for folder in ("", "docs/**/", "deploy/**/", "tests/")
    for path in REPOSITORY.glob(f"{folder}*.md")
)
LAUNCHERS = r"(?:\w+=\S+ )*(?:python|torchrun|srun|accelerate|sbatch)\b"
PROGRAM = r"(?:train\.py|(?:train|sweep)\.sbatch)"


def read(page: str) -> str:
    """The text of a page, which is named from the root of the repository."""
    return (REPOSITORY / page).read_text(encoding="utf-8")


def prose(text: str) -> str:
    """The text without fenced blocks, in which brackets are not links and # does not begin a heading."""
    return re.sub(r"^```.*?^```\n", "", text, flags=re.MULTILINE | re.DOTALL)


def code(text: str) -> str:
    """Text in backticks, in indented blocks and in fenced blocks except those of Python, which tests run."""
    text = re.sub(r"^```python\n.*?^```\n", "", text, flags=re.MULTILINE | re.DOTALL)
    fenced = re.findall(r"^```.*\n((?:.*\n)*?)```$", text, flags=re.MULTILINE)
    return "\n".join([*fenced, *re.findall(r"^    .*$|`[^`\n]+`", prose(text), flags=re.MULTILINE)])


def tables(text: str) -> list[list[list[str]]]:
    """Cells of each row of each table. The head is the first row, the line below it is skipped."""
    found = re.findall(r"(?:^\|.*\n?)+", prose(text), flags=re.MULTILINE)
    return [[_cells(line) for line in table.splitlines() if not re.match(r"\|[ :|-]+$", line)] for table in found]


def _cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip().strip("|").split(" | ")]


def commands(page: str) -> list[list[str]]:
    """Words of each line, and of each text in backticks, that runs train.py.

    Continued lines are joined, and variables that the page exports have their values. Comments are skipped. Of several
    commands on a line only the first is returned.
    """
    text = prose(read(page)).replace("\\\n", " ")
    exported = dict(re.findall(r"(\w+)=(\S+)", " ".join(re.findall(r"^    export (.*)$", text, flags=re.MULTILINE))))
    lines = re.findall(rf"(?:^    |`)({LAUNCHERS}[^`\n]* (?:\S+/)?{PROGRAM}\b[^`\n]*)", text, flags=re.MULTILINE)
    firsts = (re.split(r"; | \| ", Template(line).safe_substitute(exported))[0] for line in lines)
    return [shlex.split(line, comments=True) for line in firsts]


def arguments(command: list[str]) -> list[str]:
    """Arguments that train.py gets, also from a launcher or from the scripts of deploy/slurm."""
    index = next(index for index, word in enumerate(command) if re.search(rf"(^|/){PROGRAM}$", word))
    script = command[index].rpartition("/")[2]
    return {"train.sbatch": ["fit"], "sweep.sbatch": ["sweep"]}.get(script, []) + command[index + 1 :]
