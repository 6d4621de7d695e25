"""Tests CIFAR's binary version: download, checks, unpacking by name, records."""

import hashlib
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from datamodules.download import DownloadError
from datamodules.image_classifier.datamodule import LabelledImages
from datamodules.image_classifier.sources import cifar
from datamodules.image_classifier.sources.cifar import download_cifar, read_cifar
from tests.support.data_files.image_files import cifar_archive, packed
from tests.support.http_server import serve_folder


@pytest.fixture
def served(tmp_path, monkeypatch) -> Iterator[str]:
    """Return the address of a server with small archives of both data sets and matching checksums."""
    folder = tmp_path / "server"
    folder.mkdir()
    for dataset in ("cifar10", "cifar100"):
        offer(folder, monkeypatch, dataset, *cifar_archive(dataset))
    with serve_folder(folder) as address:
        yield address


def offer(folder: Path, monkeypatch, dataset: str, content: bytes, md5: str) -> None:
    archive = cifar._ARCHIVES[dataset]
    (folder / archive.name).write_bytes(content)
    monkeypatch.setitem(cifar._ARCHIVES, dataset, archive._replace(md5=md5))


@pytest.mark.parametrize("dataset, train, classes", [("cifar10", 100, 10), ("cifar100", 20, 100)])
def test_cifar_is_downloaded_once(served, tmp_path, dataset, train, classes):
    root = tmp_path / "data" / dataset
    download_cifar(dataset, root, base_url=served)
    assert not list(root.parent.glob("*.tar.gz")), "nothing else is left"
    assert not list(root.parent.glob(".*")), "nothing else is left"
    download_cifar(dataset, root, base_url="http://127.0.0.1:1")  # not asked
    splits = read_cifar(dataset, root, 0.1)
    assert [len(part.labels) for part in splits[1:]] == [train * 9 // 10, train // 10, 20]
    assert splits.classes == [f"class_{number}" for number in range(classes)]
    assert splits.test.pixels.shape == (20, 3, 32, 32)
    np.testing.assert_array_equal(splits.test.labels, np.arange(20) % classes)
    # A record: its labels, the last of which is the class, then red, green and blue, row by row.
    record = np.fromfile(root / cifar._ARCHIVES[dataset].test, np.uint8).reshape(20, -1)[7]
    assert splits.test.pixels[7, 1, 2, 3] == record[-3072 + 1024 + 2 * 32 + 3]
    data = LabelledImages(dataset, str(root), batch_size=10)
    data.prepare()
    assert len(data.train_set) == train * 9 // 10


def test_a_folder_is_not_a_download(served, tmp_path):
    root = tmp_path / "cifar10"
    root.mkdir()
    with pytest.raises(FileNotFoundError, match="cifar10 lacks data_batch_1.bin; .*prepare"):
        read_cifar("cifar10", root, 0.1)
    download_cifar("cifar10", root, base_url=served)  # into an empty one
    (root / "test_batch.bin").unlink()
    with pytest.raises(FileExistsError, match="cifar10 exists but lacks test_batch.bin; expected a folder that is"):
        download_cifar("cifar10", root, base_url=served)


def test_without_a_download_the_error_has_the_remedy(tmp_path):
    with pytest.raises(FileNotFoundError, match="train.py prepare --config ...` downloads cifar10"):
        LabelledImages("cifar10", str(tmp_path / "none"), batch_size=10).setup("fit")


def test_an_archive_that_was_altered_is_refused(served, tmp_path, monkeypatch):
    archive = cifar._ARCHIVES["cifar10"]
    monkeypatch.setitem(cifar._ARCHIVES, "cifar10", archive._replace(md5="0" * 32))
    with pytest.raises(DownloadError, match="checksum is md5:"):
        download_cifar("cifar10", tmp_path / "cifar10", base_url=served)
    assert not (tmp_path / "cifar10").exists()


@pytest.mark.parametrize(
    "files, messages",
    [
        ({"cifar-100-binary/train.bin": b"x" * 3074}, "it lacks cifar-100-binary/test.bin"),
        ({"cifar-100-binary/train.bin": b"x" * 4000}, "has 4,000 bytes, expected at most"),
        ({f"{number}": b"" for number in range(40)}, "is file 33"),
        ({"../test.bin": b"x", "/train.bin": b"x"}, "it lacks cifar-100-binary/train.bin"),
    ],
)
def test_a_strange_archive_leaves_nothing_behind(served, tmp_path, monkeypatch, files, messages):
    monkeypatch.setattr(cifar, "_LARGEST", 3999)
    offer(tmp_path / "server", monkeypatch, "cifar100", *packed(files))
    with pytest.raises(DownloadError, match=messages):
        download_cifar("cifar100", tmp_path / "data/cifar100", base_url=served)
    assert [path.name for path in (tmp_path / "data").iterdir()] == ["cifar-100-binary.tar.gz"]
    assert not (tmp_path / "test.bin").exists()


def test_a_file_that_is_no_archive(served, tmp_path, monkeypatch):
    content = cifar_archive("cifar100")[0][:-200]
    offer(tmp_path / "server", monkeypatch, "cifar100", content, hashlib.md5(content).hexdigest())
    with pytest.raises(DownloadError, match="not the expected archive"):
        download_cifar("cifar100", tmp_path / "data/cifar100", base_url=served)
    assert not (tmp_path / "data/cifar100").exists()


def test_a_corrupt_file_is_named(served, tmp_path):
    root = tmp_path / "cifar10"
    download_cifar("cifar10", root, base_url=served)
    content = (root / "test_batch.bin").read_bytes()
    (root / "test_batch.bin").write_bytes(content[:-1])
    with pytest.raises(ValueError, match="test_batch.bin: found 61,459 bytes, expected whole records of 3073"):
        read_cifar("cifar10", root, 0.1)
    (root / "test_batch.bin").write_bytes(content[: 4 * 3073] + b"\x0b" + content[4 * 3073 + 1 :])
    with pytest.raises(ValueError, match="record 4 has class 11, expected less than 10"):
        read_cifar("cifar10", root, 0.1)
