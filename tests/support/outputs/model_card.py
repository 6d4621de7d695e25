"""Reads a model card as the hub does (front matter), and runs its code as a user does."""

import os
import re
from pathlib import Path
from typing import Any

from huggingface_hub import ModelCard


def read_card(folder: Path) -> ModelCard:
    """Read a model card as the hub does. Raises an error where the hub would complain."""
    card = ModelCard((folder / "README.md").read_text(encoding="utf-8"))
    data = card.data.to_dict()
    assert data["license"] == "unknown"
    assert "lockstep" in data["tags"]
    return card


def run_code(folder: Path) -> list[dict[str, Any]]:
    """Runs the card's pieces of Python one after the other in the export's folder; the names after each."""
    pieces = re.findall(r"^```python\n(.*?)^```", (folder / "README.md").read_text(encoding="utf-8"), re.M | re.S)
    assert pieces
    names: dict[str, Any] = {}
    after, before = [], os.getcwd()
    os.chdir(folder)
    try:
        for piece in pieces:
            exec(compile(piece, "README.md", "exec"), names)
            after.append(dict(names))
    finally:
        os.chdir(before)
    return after
