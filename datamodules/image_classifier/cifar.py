"""CIFAR-10 and CIFAR-100, in the binary version: fixed records of bytes, no pickle.

Alex Krizhevsky, "Learning Multiple Layers of Features from Tiny Images", 2009. Layout, addresses and checksums:
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
from datamodules.image_classifier.sources import ArrayImages, Splits, hold_out

BASE_URL = "https://www.cs.toronto.edu/~kriz"

_SHAPE = 3, 32, 32
_LARGEST = 256 << 20  # bytes that a file of an archive may unpack to; the largest has 153,700,000
_MOST = 32  # files in an archive; it has 8


class _Archive(NamedTuple):
    name: str
    md5: str
    folder: str  # in which its files lie
    train: tuple[str, ...]
    test: str
    classes: str
    labels: int  # bytes before the pixels of a record; the last of them is the class


_ARCHIVES = {
    "cifar10": _Archive(
        "cifar-10-binary.tar.gz", "c32a1d4ab5d03f1284b67883e8d87530", "cifar-10-batches-bin",
        tuple(f"data_batch_{number}.bin" for number in range(1, 6)), "test_batch.bin", "batches.meta.txt", 1,
    ),
    "cifar100": _Archive(
        "cifar-100-binary.tar.gz", "03b5dce01913d631647c71ecec9e9cb8", "cifar-100-binary",
        ("train.bin",), "test.bin", "fine_label_names.txt", 2,
    ),
}  # fmt: skip


def download_cifar(dataset: str, root: Path, *, base_url: str = BASE_URL, wait: float = 1.0) -> None:
    """Downloads and unpacks a data set into the folder `root`, unless it has it.

    Args:
        dataset: `cifar10` or `cifar100`.
        base_url: where the archive lies, for a mirror.
        wait: see `datamodules.download`.

    Raises:
        DownloadError: no connection, a wrong checksum, or an archive that is not what it should be.
        FileExistsError: the folder is there with something else in it.
    """
    archive = _ARCHIVES[dataset]
    missing = _missing(archive, root)
    if not missing:
        return
    if root.exists() and any(root.iterdir()):
        raise FileExistsError(
            f"data.init_args.root: {root} is there but has no {missing[0]}; expected a folder that is not there, or "
            f"is empty, to download {dataset} into"
        )
    packed = download(f"{base_url}/{archive.name}", root.parent / archive.name, f"md5:{archive.md5}", wait=wait)
    _unpack(packed, archive, root)
    packed.unlink()


def read_cifar(dataset: str, root: Path, validation_share: float) -> Splits:
    """
    Raises:
        FileNotFoundError: it has not been downloaded, or not all of it is there.
        ValueError: a file does not consist of whole records of known classes.
    """
    archive = _ARCHIVES[dataset]
    if missing := _missing(archive, root):
        found = f"has no {missing[0]}" if root.is_dir() else "does not exist"
        raise FileNotFoundError(
            f"data.init_args.root: {root} {found}; `python train.py prepare --config ...` downloads {dataset}"
        )
    classes = (root / archive.classes).read_text(encoding="ascii").split()
    train = [_records(root / name, archive.labels, len(classes)) for name in archive.train]
    everything = ArrayImages(*(np.concatenate(parts) for parts in zip(*train, strict=True)), f"{dataset} train")
    test = ArrayImages(*_records(root / archive.test, archive.labels, len(classes)), f"{dataset} test")
    return Splits(classes, *hold_out(everything, validation_share), test)


def _missing(archive: _Archive, root: Path) -> list[str]:
    """The files of the data set that are not in the folder `root`."""
    return [name for name in (*archive.train, archive.test, archive.classes) if not (root / name).is_file()]


def _records(path: Path, labels: int, classes: int) -> tuple[np.ndarray, np.ndarray]:
    """([N, 3, 32, 32] uint8, [N] int64)"""
    data, size = np.fromfile(path, np.uint8), labels + int(np.prod(_SHAPE))
    if not len(data) or len(data) % size:
        raise ValueError(f"{path}: found {len(data):,} bytes, expected whole records of {size}; prepare it anew")
    records = data.reshape(-1, size)
    found = records[:, labels - 1].astype(np.int64)
    if found.max() >= classes:
        row = int(found.argmax())
        raise ValueError(f"{path}: record {row} has class {found[row]}, expected less than {classes}; prepare it anew")
    return records[:, labels:].reshape(-1, *_SHAPE), found


def _unpack(packed: Path, archive: _Archive, root: Path) -> None:
    """Takes the wanted files out by name, beside `root`, and renames: no path of the archive becomes one here."""
    wanted = {f"{archive.folder}/{name}": name for name in (*archive.train, archive.test, archive.classes)}
    beside = Path(tempfile.mkdtemp(prefix=f".{root.name}.", suffix=".partial", dir=root.parent))
    try:
        with tarfile.open(packed, "r:gz") as opened:
            for number, member in enumerate(opened):
                if number == _MOST or member.size > _LARGEST:
                    raise DownloadError(
                        f"{packed}: {member.name} is file {number + 1} and has {member.size:,} bytes, expected at most "
                        f"{_MOST} files of {_LARGEST:,}; refused"
                    )
                if member.isfile() and member.name in wanted:
                    with opened.extractfile(member) as source, (beside / wanted.pop(member.name)).open("wb") as file:
                        shutil.copyfileobj(source, file)
    except (tarfile.TarError, EOFError, OSError, zlib.error) as error:
        shutil.rmtree(beside)
        if isinstance(error, DownloadError):
            raise
        raise DownloadError(f"{packed}: not the archive that was expected: {error}; delete it") from error
    if wanted:
        shutil.rmtree(beside)
        raise DownloadError(f"{packed}: not the archive that was expected: it has no {', '.join(wanted)}; delete it")
    beside.chmod(0o755)
    if root.is_dir():
        root.rmdir()  # it is empty
    beside.rename(root)
