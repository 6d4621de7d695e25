"""Reads folders of image files: train/CLASS/FILE, and optionally val/ and test/."""

import logging
from pathlib import Path

import numpy as np

from datamodules.image_classifier.sources.image_source import FileImages, ImageSource, ImageSplits, hold_out
from engine.io.folder_walk import walk_visible
from engine.io.json_records import describe_names

SUFFIXES = (".jpg", ".jpeg", ".png", ".webp", ".gif", ".bmp")

log = logging.getLogger("lockstep")


def read_folder(root: Path, shape: tuple[int, int, int], validation_share: float) -> ImageSplits:
    """Read a folder. Without val/ (or test/), `validation_share` of the images in train/ is held out for it.

    Raises:
        FileNotFoundError: train/ does not exist, or is empty.
        ValueError: val/ or test/ has a class that train/ lacks, train/ has too few images, or a class is a link to a
            folder that contains all classes.
    """
    if not (root / "train").is_dir():
        raise FileNotFoundError(
            f"data.init_args.root: found no folder {root / 'train'}; expected {root}/train/CLASS/FILE.jpg, and "
            "optionally val/ and test/ with the same structure"
        )
    classes = _folders(root / "train")
    if len(classes) < 2:
        raise ValueError(f"{root}/train: found {len(classes)} folders, expected one per class, at least two")
    train: ImageSource = _label_files(root / "train", classes, shape)
    sources: dict[str, ImageSource] = {}
    # The test set first: the images held out for it do not depend on whether there is a val/.
    for name in ("test", "val"):
        if (root / name).is_dir():
            sources[name] = _label_files(root / name, classes, shape)
        else:
            train, sources[name] = hold_out(train, validation_share)
    return ImageSplits(classes, train, sources["val"], sources["test"])


def read_unlabeled(folder: Path, shape: tuple[int, int, int]) -> FileImages:
    """Return all images below a folder, sorted by name, for prediction.

    Raises:
        FileNotFoundError: the folder does not exist, or has no images.
    """
    files = _images(folder)
    return FileImages(files, np.full(len(files), -1), shape, folder)


def _label_files(folder: Path, classes: list[str], shape: tuple[int, int, int]) -> FileImages:
    folders = _folders(folder)
    _warn(folder, sorted(path for path in folder.iterdir() if not path.name.startswith(".") and not path.is_dir()))
    unknown = sorted(set(folders) - set(classes))
    if unknown:
        raise ValueError(f"{folder}: found class {unknown[0]!r}, which {folder.parent / 'train'} lacks")
    for name in folders:
        # Its files would be those of all classes, each a second time and with this label.
        if (target := (folder / name).resolve()) in (folder.resolve(), *folder.resolve().parents):
            raise ValueError(f"{folder / name}: a link to {target}, which contains all classes; remove the link")
    files = [(file, classes.index(name)) for name in folders for file in _images(folder / name)]
    return FileImages([file for file, _ in files], np.array([label for _, label in files], np.int64), shape, folder)


def _folders(folder: Path) -> list[str]:
    """Return the names of the classes: all folders that are not hidden (.ipynb_checkpoints is)."""
    return sorted(path.name for path in folder.iterdir() if path.is_dir() and not path.name.startswith("."))


def _images(folder: Path) -> list[Path]:
    """Return the image files below a folder, sorted; other files are named in a warning, hidden files are ignored.

    A link that leads nowhere, or whatever else has the name of an image, is listed: it is a bad sample with its name.
    """
    visible = sorted(walk_visible(folder))
    files = [path for path in visible if path.suffix.lower() in SUFFIXES]
    if not files:
        problem = "has no images" if folder.is_dir() else "does not exist"
        raise FileNotFoundError(f"{folder}: {problem}; expected files that end in {', '.join(SUFFIXES)}")
    _warn(folder, [path for path in visible if path.suffix.lower() not in SUFFIXES and _is_not_read(path)])
    return files


def _is_not_read(path: Path) -> bool:
    return not path.is_dir() or path.is_symlink()  # rglob does not follow a link to a folder


def _warn(folder: Path, others: list[Path]) -> None:
    if others:
        log.warning(
            "%s: %d files are not read, expected %s: %s", folder, len(others), ", ".join(SUFFIXES),
            describe_names(path.relative_to(folder) for path in others),
        )  # fmt: skip
