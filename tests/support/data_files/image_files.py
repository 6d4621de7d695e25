"""Writes small image files, and archives in CIFAR's format."""

import hashlib
from pathlib import Path

import numpy as np
from PIL import Image

from tests.support.data_files.tar_files import tar_of

COLORS = {"red": (220, 30, 20), "blue": (20, 40, 210), "green": (20, 200, 40)}


def write_colors(folder: Path, number: int, classes: tuple[str, ...] = ("blue", "red")) -> None:
    """`number` files of noise around a color, in a folder for each class."""
    random = np.random.default_rng(number)
    for name in classes:
        (folder / name).mkdir(parents=True, exist_ok=True)
        for file in range(number):
            noise = random.integers(-20, 21, (12, 10 + file, 3))
            pixels = np.clip(np.array(COLORS[name]) + noise, 0, 255).astype(np.uint8)
            Image.fromarray(pixels).save(folder / name / f"{file}.png")


def cifar_archive(dataset: str, records: int = 20) -> tuple[bytes, str]:
    """An archive with `records` images in each of its files, and its checksum."""
    random = np.random.default_rng(0)
    ten = dataset == "cifar10"
    folder, classes = ("cifar-10-batches-bin", 10) if ten else ("cifar-100-binary", 100)
    names = [*(f"data_batch_{n}.bin" for n in range(1, 6)), "test_batch.bin"] if ten else ["train.bin", "test.bin"]
    files = {}
    for name in names:
        labels = random.integers(0, classes, (records, 1 if ten else 2), np.uint8)
        labels[:, -1] = np.arange(records) % classes
        files[name] = np.hstack([labels, random.integers(0, 256, (records, 3072), np.uint8)]).tobytes()
    titles = "\n".join(f"class_{number}" for number in range(classes)) + "\n\n"
    files["batches.meta.txt" if ten else "fine_label_names.txt"] = titles.encode()
    return packed({f"{folder}/{name}": content for name, content in files.items()})


def packed(files: dict[str, bytes]) -> tuple[bytes, str]:
    """A .tar.gz of files, and its checksum."""
    archive = tar_of(files.items(), "w:gz")
    return archive, hashlib.md5(archive).hexdigest()
