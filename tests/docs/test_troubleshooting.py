"""docs/troubleshooting.md: its words are the program's, and nothing that others ask is missing.

test_promises.py holds that each row has a test.
"""

import ast
import re
from functools import cache
from typing import NamedTuple

import pytest

from engine.system.installation import PROGRAM
from tests.conftest import REPOSITORY
from tests.docs.pages import read, tables


class Row(NamedTuple):
    symptom: str
    output: str
    remedy: str


ROWS = [Row(*row) for table in tables(read("docs/troubleshooting.md")) for row in table[1:]]

# What the troubleshooting sections of the five original guides are about: their errors, causes and settings.
ORIGINAL = (
    "NCCL",
    "Operation not permitted",
    "firewall",
    "CUDA out of memory",
    "Address already in use",
    "29500",
    "hangs",
    "--node_rank",
    "--nnodes",
    "--master_addr",
    "NaN",
    "DDP environment not properly set up",
    "single-process",
    "NCCL_DEBUG",
    "TORCH_DISTRIBUTED_DEBUG",
    "Processing … batches",
    "Expected to have finished reduction",
    "DataLoader worker",
    "killed by signal",
    "Aborted",
    "shared memory",
    "leak",
    "missing parameter gradients",
    "NCCL_BLOCKING_WAIT",
    "NCCL_ASYNC_ERROR_HANDLING",
    "NCCL_IB_DISABLE",
    "NCCL_SOCKET_IFNAME",
    "NCCL_TREE_THRESHOLD",
    "NCCL_MIN_NRINGS",
    "--continue_on_error",
    "--skip_invalid_loss",
    "ncclUnhandled",
    "unhandled system error",
    "unstable",
    "diverges",
    "warmup_steps",
    "gradient_clip",
    "learning_rate",
    "num_workers",
    "bottleneck",
    "slow disk",
    "显存不足",
    "nvidia-smi",
    "OMP_NUM_THREADS",
    "CUDA_VISIBLE_DEVICES",
    "nc -zv",
    "no speed-up",
    "idle",
    "too small",
    "unbalanced memory",
    "micro_batch_size",
    "precision",
    "not the same on all ranks",
    "memory grows",
)


@cache
def texts() -> list[str]:
    """Return every text of the source that a message may have, without docstrings and filled-in values."""
    found = []
    for part in ("engine", "callbacks", "commands", "datamodules", "lightning_modules"):
        for path in (REPOSITORY / part).rglob("*.py"):
            tree = ast.parse(path.read_text(encoding="utf-8"))
            documentation = {node.value for node in ast.walk(tree) if isinstance(node, ast.Expr)}
            for node in ast.walk(tree):
                if node in documentation:
                    continue
                if isinstance(node, ast.JoinedStr):
                    found.append("".join(map(written, node.values)))
                elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                    found.append(node.value)
    return found


def written(part: ast.expr) -> str:
    """Return the text of a part of an f-string; of a value only the beginning of a command is known."""
    if isinstance(part, ast.Constant):
        return str(part.value)
    is_program = (
        isinstance(part, ast.FormattedValue) and isinstance(part.value, ast.Name) and part.value.id == "PROGRAM"
    )
    return PROGRAM if is_program else "\0"


def test_every_row_has_three_cells():
    assert len(ROWS) >= 35
    assert all(all(row) for row in ROWS)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.symptom[:40])
def test_the_program_has_these_words(row):
    quotes = re.findall(r"`([^`]+)`", row.output)
    assert quotes or row.symptom.startswith("does it learn")
    for quote in quotes:
        pattern = re.compile(".*".join(map(re.escape, quote.split("…"))), re.DOTALL)
        assert any(pattern.search(text) for text in texts()), quote


def test_everything_that_the_original_guides_name_has_a_row():
    named = " ".join(f"{row.symptom} {row.remedy}" for row in ROWS)
    assert [words for words in ORIGINAL if words not in named] == []
