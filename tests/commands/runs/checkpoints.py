"""Writes small checkpoints for tests of run directories."""

import os
from pathlib import Path

import torch


def write_checkpoint(
    folder: Path, name: str, age: int = 0, *, with_time: bool = True, within: str = "checkpoints"
) -> Path:
    """Write a checkpoint saved `age` seconds before the others; without `with_time` only its file has the time."""
    path = folder / within / name
    path.parent.mkdir(parents=True, exist_ok=True)
    now = 1_700_000_000
    content = {"state_dict": {"weight": torch.arange(4096.0)}, "pytorch-lightning_version": "2.6.6"}
    torch.save(content | ({"saved_at": float(now - age)} if with_time else {}), path)
    os.utime(path, (now, now) if with_time else (now - age, now - age))
    return path


def corrupt(path: Path) -> Path:
    octets = bytearray(path.read_bytes())
    octets[len(octets) // 2] ^= 1
    path.write_bytes(octets)
    return path
