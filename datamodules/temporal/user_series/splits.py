"""Assigns records to training, validation and test: by file, or by a hash of the record."""

import hashlib
import logging
import re
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from datamodules.temporal.series.series_question import SeriesQuestion
from datamodules.temporal.user_series.record_files import SUFFIXES

log = logging.getLogger("lockstep")

SPLITS = ("train", "validation", "test")
_NAMES = {"train": ("train",), "validation": ("validation", "valid", "val", "dev"), "test": ("test",)}
_PART = re.compile(r"-\d+-of-\d+$")
"""End of the names that the Hugging Face Hub gives to parts: train-00000-of-00002.parquet"""
_SHARES = {"validation": 0.1, "test": 0.1}


def split_files(path: Path) -> dict[str, list[Path]]:
    """Return the files of each split; of a single file, under the key `all`.

    A folder has a file, files named as on the Hugging Face Hub (`train-00000-of-00002.parquet`), or a folder for each
    split, named `train`, `validation` (or `valid`, `val`, `dev`) and `test`. Other files are logged. Without any such
    name, all its files together are split by hash.

    Raises:
        ValueError: the path does not exist, or the folder has no file of a known format.
    """
    if path.is_file():
        return {"all": [path]}
    if not path.is_dir():
        raise ValueError(f"{path}: not found, expected a file of series and questions, or a folder of such files")
    found: dict[str, list[Path]] = {}
    for split, names in _NAMES.items():
        entries = [entry for entry in sorted(path.iterdir()) if _PART.sub("", entry.stem.lower()) in names]
        files = [file for entry in entries for file in ([entry] if entry.is_file() else _files(entry))]
        if readable := [file for file in files if file.suffix.lower() in SUFFIXES]:
            found[split] = readable
    if found:
        used = {file for files in found.values() for file in files}
        for file in (file for file in _files(path) if file not in used):
            log.warning("%s is of no split and is not read: its name is none of train, validation and test", file)
        return found
    if files := _files(path):
        return {"all": files}
    raise ValueError(f"{path}: found no file that ends in {', '.join(SUFFIXES)}, expected series and questions")


def _files(folder: Path) -> list[Path]:
    visible = [file for file in sorted(folder.iterdir()) if not file.name.startswith(".")]
    return [file for file in visible if file.suffix.lower() in SUFFIXES and file.is_file()]


def split_of(question: SeriesQuestion) -> str:
    """Return the split of a question: 80 % train, 10 % validation, 10 % test, by a hash of its key, or of its series.

    Questions without a key about the same series are in the same split, so that no series of the test is trained on.
    """
    digest = hashlib.sha256(question.key.encode())
    if not question.key:
        for series in question.series:
            digest.update(np.ascontiguousarray(series.values).tobytes())
    # A uniform number in [0, 1) that is the same on every machine; Python's own `hash` of texts is not.
    share = int.from_bytes(digest.digest()[:8], "big") / 2**64
    return next((split for split, limit in _limits().items() if share < limit), "train")


def _limits() -> Mapping[str, float]:
    return {"validation": _SHARES["validation"], "test": sum(_SHARES.values())}
