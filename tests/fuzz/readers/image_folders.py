"""Mutates name and content of an image in a folder of classes. The reference lists the files."""

from collections.abc import Sequence
from pathlib import Path, PurePosixPath
from random import Random
from typing import Any, ClassVar

from tests.fuzz.reader import Input, InvalidInput, Reader, Unknown
from tests.fuzz.readers.images import Images

_ROOT = "pictures"
_SUFFIXES = (".jpg", ".jpeg", ".png", ".webp", ".gif", ".bmp")
_PARTS = (
    "train",
    "val",
    "test",
    "Train",
    ".train",
    "red",
    "blue",
    "green",
    "RED",
    ".red",
    "a.png",
    "é",
    "-x",
    " ",
    "x" * 200,
)
_NAMES = ("9.png", "9.PNG", "9.png.txt", ".9.png", "9.jpeg", "9", "9.tif", "é ü.png", "\udcff.png", "a\nb.png", "9.bmp")


class ImageFolders(Reader):
    """Classes, and (file, class) of every image of a folder; each image is decoded."""

    slow_tier: ClassVar[int] = 100

    def seeds(self) -> Sequence[Input]:
        pictures = {seed.path: seed.data for seed in Images().seeds()}
        paths = {"train/red/9.png": "rgb.png", "test/blue/deep/9.png": "grey.png", "val/red/9.png": "palette.png"}
        return [Input(f"{_ROOT}/{path}", pictures[name]) for path, name in paths.items()]

    def surround(self, folder: Path) -> None:
        png = self.seeds()[0].data
        for part in ("train", "test"):
            for name in ("red", "blue"):
                (folder / _ROOT / part / name).mkdir(parents=True)
                for number in range(3):
                    (folder / _ROOT / part / name / f"{number}.png").write_bytes(png)

    def mutate(self, random: Random, seed: Input) -> Input:
        parts = list(PurePosixPath(seed.path).parts)
        if random.random() < 0.6:
            index = random.randrange(1, len(parts))
            parts[index] = random.choice(_NAMES if index == len(parts) - 1 else _PARTS)
        if random.random() < 0.2:
            parts.insert(random.randrange(1, len(parts)), random.choice(_PARTS))
        data = seed.data if random.random() < 0.3 else Images().mutate(random, seed).data
        return Input("/".join(parts), data)

    def read(self, path: Path) -> Any:
        import numpy as np

        from datamodules.image_classifier.sources.image_folder import read_folder

        root = _root(path)
        splits = read_folder(root, (3, 8, 8), 0.3)
        rows = []
        for split in (splits.train, splits.validation, splits.test):
            count = len(split.labels)
            assert split.read(np.arange(count)).shape == (count, 3, 8, 8)
            files = [PurePosixPath(split.name(row)).relative_to(root).as_posix() for row in range(count)]
            rows += list(zip(files, (splits.classes[label] for label in split.labels), strict=True))
        return splits.classes, sorted(rows)

    def reference(self, path: Path) -> Any:
        root = _root(path)
        classes = sorted(part.name for part in (root / "train").iterdir() if part.is_dir() and part.name[0] != ".")
        rows = []
        for file in root.rglob("*"):
            part, name, *rest = (*file.relative_to(root).parts, "")[:3]
            inside = (*file.relative_to(root).parts,)
            hidden = any(step.startswith(".") for step in inside)
            is_image = file.suffix.lower() in _SUFFIXES and len(inside) > 2
            if part in ("train", "val", "test") and is_image and not hidden:
                if file.is_dir():
                    raise InvalidInput(f"{file.name} is a folder")
                rows.append((file.relative_to(root).as_posix(), name))
        if any(name not in classes for _, name in rows):
            raise InvalidInput("a class has no training images")
        if {name for inside, name in rows if inside.startswith("train")} != set(classes):
            raise InvalidInput("a class has no images")
        if path.suffix.lower() in _SUFFIXES and not path.read_bytes().startswith(b"\x89PNG"):
            raise Unknown("only PNG has a plain reference")
        return classes, sorted(rows)

    def names_file(self, message: str, path: Path) -> bool:
        inside = path.relative_to(_root(path)).parts
        return any(part in message or repr(part)[1:-1] in message for part in inside[1:])

    def names_location(self, message: str, data: bytes) -> bool:
        return True  # an offset in an image does not help the user


READERS = {"image_folder": ImageFolders}


def _root(path: Path) -> Path:
    return next(parent for parent in reversed(path.parents) if parent.name == _ROOT)
