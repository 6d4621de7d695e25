"""docs/troubleshooting.md: its words are the program's, its tests are there, nothing that others ask is left out."""

import ast
import inspect
import re
from functools import cache
from typing import NamedTuple

import pytest

from commands.cli import LockstepCLI
from engine.datamodule import LockstepDataModule
from engine.module import LockstepModule
from tests.conftest import REPOSITORY

GUIDE = (REPOSITORY / "docs/troubleshooting.md").read_text(encoding="utf-8")


class Row(NamedTuple):
    symptom: str
    said: str
    remedy: str
    held_by: str


ROWS = [
    Row(*(cell.strip() for cell in line.strip("| ").split(" | ")))
    for line in GUIDE.splitlines()
    if line.startswith("| ") and not line.startswith("| symptom |")
]

# What the troubleshooting sections of the five original guides are about: their errors, causes and settings.
ORIGINAL = (
    "NCCL", "Operation not permitted", "firewall", "CUDA out of memory", "Address already in use", "29500", "hangs",
    "--node_rank", "--nnodes", "--master_addr", "NaN", "DDP environment not properly set up", "single-process",
    "NCCL_DEBUG", "TORCH_DISTRIBUTED_DEBUG", "Processing … batches", "Expected to have finished reduction",
    "DataLoader worker", "killed by signal", "Aborted", "shared memory", "leak", "missing parameter gradients",
    "NCCL_BLOCKING_WAIT", "NCCL_ASYNC_ERROR_HANDLING", "NCCL_IB_DISABLE", "NCCL_SOCKET_IFNAME", "NCCL_TREE_THRESHOLD",
    "NCCL_MIN_NRINGS", "--continue_on_error", "--skip_invalid_loss", "ncclUnhandled", "unhandled system error",
    "unstable", "diverges", "warmup_steps", "gradient_clip", "learning_rate", "num_workers", "bottleneck", "slow disk",
    "显存不足", "nvidia-smi", "OMP_NUM_THREADS", "CUDA_VISIBLE_DEVICES", "nc -zv", "no speed-up", "idle", "too small",
    "unbalanced memory", "micro_batch_size", "precision", "not the same on all processes", "memory grows",
)  # fmt: skip


@cache
def texts() -> list[str]:
    """Every text that the source may say, without docstrings; what is filled in left out."""
    found = []
    for part in ("engine", "callbacks", "commands", "datamodules", "lightning_modules"):
        for path in (REPOSITORY / part).rglob("*.py"):
            tree = ast.parse(path.read_text(encoding="utf-8"))
            documentation = {node.value for node in ast.walk(tree) if isinstance(node, ast.Expr)}
            for node in ast.walk(tree):
                if node in documentation:
                    continue
                if isinstance(node, ast.JoinedStr):
                    found.append("".join(str(p.value) if isinstance(p, ast.Constant) else "\0" for p in node.values))
                elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                    found.append(node.value)
    return found


def test_every_row_has_four_cells():
    assert len(ROWS) >= 35 and all(all(row) for row in ROWS)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.symptom[:40])
def test_the_program_says_it(row):
    quotes = re.findall(r"`([^`]+)`", row.said)
    assert quotes or row.symptom.startswith("does it learn")
    for quote in quotes:
        pattern = re.compile(".*".join(map(re.escape, quote.split("…"))), re.DOTALL)
        assert any(pattern.search(text) for text in texts()), quote


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.symptom[:40])
def test_a_test_provokes_it(row):
    links = re.findall(r"\[(test_\w+)\]\(\.\./(tests/[\w/]+\.py)\)", row.held_by)
    assert links and row.held_by.count("](") == len(links)
    for name, path in links:
        assert re.search(rf"^def {name}\(", (REPOSITORY / path).read_text(encoding="utf-8"), re.MULTILINE), (path, name)


def test_nothing_that_the_original_guides_name_is_left_out():
    named = " ".join(f"{row.symptom} {row.remedy}" for row in ROWS)
    assert [words for words in ORIGINAL if words not in named] == []


def test_every_option_exists(capsys, monkeypatch):
    monkeypatch.chdir(REPOSITORY)
    with pytest.raises(SystemExit):
        LockstepCLI(["fit", "--help"])
    known = set(re.findall(r"--[a-z_]+(?:\.[a-z_]+)*", capsys.readouterr().out))
    for section, kind in (("data", LockstepDataModule), ("model", LockstepModule)):
        known |= {f"--{section}.init_args.{name}" for name in inspect.signature(kind.__init__).parameters}
    named = set(re.findall(r"(?<![\w-])--[a-z_]+\.[a-z_.]+[a-z]", GUIDE)) | {"--distributed_debug"}
    assert len(named) >= 12 and named - known == set()


def test_every_file_is_there():
    for name in re.findall(r"configs/[\w/]+\.yaml", GUIDE) + re.findall(r"\]\((?!\.\./)([\w.-]+\.md)\)", GUIDE):
        assert (REPOSITORY / name).exists() or (REPOSITORY / "docs" / name).exists(), name
