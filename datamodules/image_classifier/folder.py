"""Folders of image files: train/CLASS/FILE, and val/ and test/ beside train/ where they are there."""

from pathlib import Path

import numpy as np

from datamodules.image_classifier.sources import FileImages, Splits, hold_out

SUFFIXES = (".jpg", ".jpeg", ".png", ".webp", ".gif", ".bmp")


def read_folder(root: Path, shape: tuple[int, int, int], validation_share: float) -> Splits:
    """Where there is no val/ (or test/), `validation_share` of what is in train/ is held out for it.

    Raises:
        FileNotFoundError: there is no train/, or nothing in it.
        ValueError: val/ or test/ has a class that train/ does not have, or train/ too few images.
    """
    if not (root / "train").is_dir():
        raise FileNotFoundError(
            f"data.init_args.root: there is no folder {root / 'train'}; expected {root}/train/CLASS/FILE.jpg, and val/ "
            "and test/ in the same form where you have them"
        )
    classes = sorted(path.name for path in (root / "train").iterdir() if path.is_dir())
    if len(classes) < 2:
        raise ValueError(f"{root}/train: found {len(classes)} folders, expected one for each of two classes or more")
    train, held = _labelled(root / "train", classes, shape), {}
    for name in ("test", "val"):
        if (root / name).is_dir():
            held[name] = _labelled(root / name, classes, shape)
        else:
            train, held[name] = hold_out(train, validation_share)
    return Splits(classes, train, held["val"], held["test"])


def unlabelled(folder: Path, shape: tuple[int, int, int]) -> FileImages:
    """All images below a folder, in the order of their names, to predict.

    Raises:
        FileNotFoundError: there is no such folder, or no image in it.
    """
    files = _images(folder)
    return FileImages(files, np.full(len(files), -1), shape, folder)


def _labelled(folder: Path, classes: list[str], shape: tuple[int, int, int]) -> FileImages:
    found = sorted(path.name for path in folder.iterdir() if path.is_dir())
    strange = sorted(set(found) - set(classes))
    if strange:
        raise ValueError(f"{folder}: found class {strange[0]!r}, which {folder.parent / 'train'} does not have")
    files = [(file, classes.index(name)) for name in found for file in _images(folder / name)]
    return FileImages([file for file, _ in files], np.array([label for _, label in files], np.int64), shape, folder)


def _images(folder: Path) -> list[Path]:
    files = sorted(path for path in folder.rglob("*") if path.suffix.lower() in SUFFIXES)
    if not files:
        there = "has no image" if folder.is_dir() else "is not there"
        raise FileNotFoundError(f"{folder}: {there}; expected files that end in {', '.join(SUFFIXES)}")
    return files
