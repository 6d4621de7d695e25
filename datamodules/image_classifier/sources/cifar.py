"""Downloads and reads CIFAR-10 and CIFAR-100 in the binary version, which needs no pickle.

Alex Krizhevsky, "Learning Multiple Layers of Features from Tiny Images", 2009. Format, addresses and checksums:
https://www.cs.toronto.edu/~kriz/cifar.html
"""

import shutil
import tarfile
import tempfile
import zlib
from pathlib import Path
from typing import NamedTuple

import numpy as np

from datamodules.download import DownloadError, download
from datamodules.image_classifier.sources.image_source import ArrayImages, ImageSplits, hold_out
from engine.system.installation import PROGRAM

BASE_URL = "https://www.cs.toronto.edu/~kriz"

_SHAPE = 3, 32, 32
_LARGEST = 256 << 20  # largest unpacked size of a file in bytes; the largest file has 153,700,000
_MAX_FILES = 32  # largest number of files in an archive, which has 8


class _Archive(NamedTuple):
    name: str
    md5: str
    folder: str  # folder of the files within the archive
    train: tuple[str, ...]
    test: str
    classes: str
    labels: int  # bytes before the pixels of a record; the last is the class


_ARCHIVES = {
    "cifar10": _Archive(
        name="cifar-10-binary.tar.gz",
        md5="c32a1d4ab5d03f1284b67883e8d87530",
        folder="cifar-10-batches-bin",
        train=tuple(f"data_batch_{number}.bin" for number in range(1, 6)),
        test="test_batch.bin",
        classes="batches.meta.txt",
        labels=1,
    ),
    "cifar100": _Archive(
        name="cifar-100-binary.tar.gz",
        md5="03b5dce01913d631647c71ecec9e9cb8",
        folder="cifar-100-binary",
        train=("train.bin",),
        test="test.bin",
        classes="fine_label_names.txt",
        labels=2,
    ),
}


def download_cifar(dataset: str, root: Path, *, base_url: str = BASE_URL, wait: float = 1.0) -> None:
    """Download and unpack a data set into the folder `root`, unless it is complete.

    Args:
        dataset: `cifar10` or `cifar100`.
        root: folder of the data set.
        base_url: address of the archives, or of a mirror.
        wait: see `datamodules.download`.

    Raises:
        DownloadError: the connection failed, or the archive has a wrong checksum or content.
        FileExistsError: the folder has other content.
    """
    archive = _ARCHIVES[dataset]
    missing = _missing(archive, root)
    if not missing:
        return
    if root.exists() and any(root.iterdir()):
        raise FileExistsError(
            f"data.init_args.root: {root} exists but lacks {missing[0]}; expected a folder that is empty or does not "
            f"exist, to download {dataset} into"
        )
    packed = download(f"{base_url}/{archive.name}", root.parent / archive.name, f"md5:{archive.md5}", wait=wait)
    _unpack(packed, archive, root)
    packed.unlink()


def read_cifar(dataset: str, root: Path, validation_share: float) -> ImageSplits:
    """Read a data set from the folder `root`.

    Raises:
        FileNotFoundError: the data set has not been downloaded, or is incomplete.
        ValueError: a file has incomplete records or unknown classes.
    """
    archive = _ARCHIVES[dataset]
    if missing := _missing(archive, root):
        found = f"lacks {missing[0]}" if root.is_dir() else "does not exist"
        raise FileNotFoundError(
            f"data.init_args.root: {root} {found}; `{PROGRAM} prepare --config ...` downloads {dataset}"
        )
    classes = (root / archive.classes).read_text(encoding="ascii", errors="replace").split()
    train = [_records(root / name, archive.labels, len(classes)) for name in archive.train]
    pixels, labels = (np.concatenate(parts) for parts in zip(*train, strict=True))
    everything = ArrayImages(pixels, labels, f"{dataset} train")
    test = ArrayImages(*_records(root / archive.test, archive.labels, len(classes)), f"{dataset} test")
    return ImageSplits(classes, *hold_out(everything, validation_share), test)


def _missing(archive: _Archive, root: Path) -> list[str]:
    """Return the files of the data set that are missing in the folder `root`."""
    return [name for name in (*archive.train, archive.test, archive.classes) if not (root / name).is_file()]


def _records(path: Path, labels: int, classes: int) -> tuple[np.ndarray, np.ndarray]:
    """Return pixels [N, 3, 32, 32] uint8 and classes [N] int64 of a file."""
    data, size = np.fromfile(path, np.uint8), labels + int(np.prod(_SHAPE))
    if not len(data) or len(data) % size:
        raise ValueError(f"{path}: found {len(data):,} bytes, expected whole records of {size}; prepare it again")
    records = data.reshape(-1, size)
    # CIFAR-100 has two labels in a record: the coarse class, which is not used, and the fine class.
    class_labels = records[:, labels - 1].astype(np.int64)
    if class_labels.max() >= classes:
        row = int(class_labels.argmax())
        raise ValueError(
            f"{path}: record {row} has class {class_labels[row]}, expected less than {classes}; prepare it again"
        )
    return records[:, labels:].reshape(-1, *_SHAPE), class_labels


def _unpack(packed: Path, archive: _Archive, root: Path) -> None:
    """Extract the expected files by name into a temporary folder and rename it; no path of the archive is used."""
    members = {f"{archive.folder}/{name}": name for name in (*archive.train, archive.test, archive.classes)}
    beside = Path(tempfile.mkdtemp(prefix=f".{root.name}.", suffix=".partial", dir=root.parent))
    try:
        with tarfile.open(packed, "r:gz") as opened:
            # The sizes are in the headers; a tar file cannot unpack to more than its headers state.
            for number, member in enumerate(opened):
                if number == _MAX_FILES or member.size > _LARGEST:
                    raise DownloadError(
                        f"{packed}: {member.name} is file {number + 1} and has {member.size:,} bytes, expected at most "
                        f"{_MAX_FILES} files of {_LARGEST:,} bytes; not unpacked"
                    )
                source = opened.extractfile(member) if member.isfile() and member.name in members else None
                if source is not None:
                    with source, (beside / members.pop(member.name)).open("wb") as file:
                        shutil.copyfileobj(source, file)
    except (tarfile.TarError, EOFError, OSError, zlib.error) as error:
        shutil.rmtree(beside)
        if isinstance(error, DownloadError):
            raise
        raise DownloadError(f"{packed}: not the expected archive: {error}; delete it") from error
    if members:
        shutil.rmtree(beside)
        raise DownloadError(f"{packed}: not the expected archive: it lacks {', '.join(members)}; delete it")
    # mkdtemp creates a folder that only its owner can read.
    beside.chmod(0o755)
    if root.is_dir():
        root.rmdir()  # it is empty
    beside.rename(root)
