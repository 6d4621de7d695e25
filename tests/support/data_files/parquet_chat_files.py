"""Writes Parquet tables of chats, and reads chats back as samples."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import pyarrow.parquet
from PIL import Image

from tests.support.data_files.vision_language_files import Sample, png

SEVERAL = Sample(
    [("user", "<image>\n<image>\nSame?"), ("assistant", "No."), ("user", "Sure?"), ("assistant", "Yes.")],
    [png((255, 0, 0)), png((0, 255, 0))],
)
TEXT = Sample([("user", "Sag hallo."), ("assistant", "Hallo.")], [])
CHAT = json.dumps([{"role": "user", "content": "What?"}, {"role": "assistant", "content": "A dog."}])


def plain(sample: Sample) -> Sample:
    """Return a sample with lists, as `as_sample` does."""
    return Sample(list(sample.turns), list(sample.images))


def write_table(path: Path, **columns: Any) -> Path:
    """Write a file with these columns."""
    pyarrow.parquet.write_table(pyarrow.table(columns), path)
    return path


def write_parts(folder: Path, **parts: Mapping[str, Any]) -> Path:
    """Write a folder with a file for each part, from its columns."""
    folder.mkdir()
    for name, table in parts.items():
        pyarrow.parquet.write_table(pyarrow.table(table), folder / f"{name}.parquet")
    return folder


def noise() -> Image.Image:
    """Return a picture that does not compress."""
    pixels = np.random.default_rng(0).integers(0, 256, (32, 32, 3), np.uint8)
    return Image.fromarray(pixels)
