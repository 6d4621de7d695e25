"""Tests files in folders of classes."""

import os
import re
import shutil

import numpy as np
import pytest
from PIL import Image

from datamodules.image_classifier.datamodule import LabelledImages
from datamodules.image_classifier.sources.image_folder import read_folder, read_unlabeled
from engine.data.errors import BadSampleError
from engine.data.samplers import MicroBatchRequest
from tests.support.data_files.image_files import write_colors

SHAPE = 3, 8, 8


def test_classes_are_folders_and_images_have_one_size(tmp_path):
    write_colors(tmp_path / "train", 4)
    write_colors(tmp_path / "test", 2)
    splits = read_folder(tmp_path, SHAPE, 0.25)
    assert splits.classes == ["blue", "red"]
    assert [len(part.labels) for part in splits[1:]] == [6, 2, 4]
    for part in splits[1:]:
        pixels = part.read(np.arange(len(part.labels)))
        assert pixels.shape[1:] == SHAPE
        assert pixels.dtype == np.uint8
        # Red is channel 0 and blue channel 2.
        np.testing.assert_array_equal(pixels.mean((2, 3)).argmax(1), np.where(part.labels == 1, 0, 2))
    assert splits.test.name(0) == str(tmp_path / "test/blue/0.png")


def test_an_image_more_leaves_the_others_where_they_were(tmp_path):
    """Wherever the folder is: who is held out follows from the names in it."""
    for folder in ("a", "b"):
        write_colors(tmp_path / folder / "train", 40)
    shutil.copy(tmp_path / "b/train/blue/0.png", tmp_path / "b/train/blue/00.png")  # stands before the others
    before, after = (read_folder(tmp_path / folder, SHAPE, 0.2) for folder in ("a", "b"))
    changed = []
    for old, new in zip(before[1:], after[1:], strict=True):
        names = [{str(file.relative_to(part.folder)) for file in part.files} for part in (old, new)]
        changed.append(len(names[0] ^ names[1]))
    assert [len(part.labels) for part in before[1:]] == [51, 13, 16]
    assert 1 <= sum(changed) <= 5, "it, and of each of the two that are held out one at most"


def test_a_picture_is_scaled_and_cropped_at_its_middle(tmp_path):
    wide = np.zeros((16, 48), np.uint8)
    wide[:, 16:32] = 200
    Image.fromarray(wide).save(tmp_path / "wide.png")
    pixels = read_unlabeled(tmp_path, (1, 8, 8)).read(np.array([0]))
    assert pixels.shape == (1, 1, 8, 8)
    assert (pixels > 150).all()


def test_a_wrong_folder_layout_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"found no folder .*train; expected .*train/CLASS/FILE"):
        read_folder(tmp_path, SHAPE, 0.1)
    (tmp_path / "train/red").mkdir(parents=True)
    with pytest.raises(ValueError, match="found 1 folders, expected one per class, at least two"):
        read_folder(tmp_path, SHAPE, 0.1)
    (tmp_path / "train/blue").mkdir()
    with pytest.raises(FileNotFoundError, match="train/blue: has no image"):
        read_folder(tmp_path, SHAPE, 0.1)
    write_colors(tmp_path / "train", 1)
    write_colors(tmp_path / "val", 1, classes=("green", "red"))
    with pytest.raises(ValueError, match="val: found class 'green', which .*train lacks"):
        read_folder(tmp_path, SHAPE, 0.5)
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken/one.jpg").write_bytes(b"no image")
    with pytest.raises(BadSampleError, match="broken/one.jpg: found 8 bytes"):
        read_unlabeled(tmp_path / "broken", SHAPE).read(np.array([0]))
    with pytest.raises(FileNotFoundError, match="nowhere: does not exist"):
        read_unlabeled(tmp_path / "nowhere", SHAPE)


def test_impossible_settings_of_a_folder_are_refused(tmp_path):
    with pytest.raises(ValueError, match="root is null"):
        LabelledImages(dataset="folder", batch_size=4)
    with pytest.raises(ValueError, match="validation_share must be more than 0 and less than 1, got 1.0"):
        LabelledImages(validation_share=1.0, batch_size=4)


def test_predict_reads_a_folder(tmp_path):
    write_colors(tmp_path / "train", 10)
    data = LabelledImages("folder", str(tmp_path), 8, predict_folder=str(tmp_path / "train/red"), batch_size=4)
    data.setup("predict")
    assert len(data.predict_set) == 10
    assert data.image_name(3) == str(tmp_path / "train/red/3.png")
    assert data.predict_set[MicroBatchRequest(0, np.array([3]))].labels.tolist() == [[-1]]


def test_files_that_are_not_read_are_named(tmp_path, caplog):
    write_colors(tmp_path / "train", 2)
    for name in ("train/red/scan.tif", "train/red/notes.txt", "train/labels.csv", "train/red/.a.png", "train/.cache"):
        (tmp_path / name).touch()
    (tmp_path / "train/.ipynb_checkpoints").mkdir()
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "train/blue/linked").symlink_to(tmp_path / "elsewhere")
    splits = read_folder(tmp_path, SHAPE, 0.3)
    assert splits.classes == ["blue", "red"]
    assert sum(len(part.labels) for part in (splits.train, splits.validation, splits.test)) == 4
    for output in (
        "train: 1 files are not read, .*: labels.csv",
        "red: 2 files .*: notes.txt, scan.tif",
        "blue: 1 .*: linked",
    ):
        assert re.search(output, caplog.text)


@pytest.mark.parametrize("kind", ["dangling", "folder", "pipe", "text", "empty", "cut", "large"])
def test_a_file_that_is_no_image_is_a_bad_sample(tmp_path, kind):
    write_colors(tmp_path, 1, classes=("red",))
    path = tmp_path / "red/bad.png"
    if kind == "dangling":
        path.symlink_to("gone")
    elif kind == "folder":
        path.mkdir()
    elif kind == "pipe":
        os.mkfifo(path)
    else:
        good = (tmp_path / "red/0.png").read_bytes()
        path.write_bytes({"text": b"no image", "empty": b"", "cut": good[:-40], "large": good}[kind])
        if kind == "large":
            os.truncate(path, 2**28 + 1)  # sparse
    images = read_unlabeled(tmp_path, SHAPE)
    assert len(images.labels) == 2
    assert images.read(np.array([0])).shape == (1, *SHAPE)
    with pytest.raises(BadSampleError, match=r"red/bad.png(:| )") as error:
        images.read(np.array([1]))
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("target", [".", "..", "../.."])
def test_a_class_that_links_to_all_classes_is_refused(tmp_path, target):
    write_colors(tmp_path / "root/train", 2)
    (tmp_path / "root/train/all").symlink_to(target)
    with pytest.raises(ValueError, match="train/all: a link to .*, which contains all classes; remove the link"):
        read_folder(tmp_path / "root", SHAPE, 0.5)


def test_a_class_may_be_a_link_to_its_folder(tmp_path):
    write_colors(tmp_path / "root/train", 2)
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "root/train/blue").rename(tmp_path / "elsewhere/blue")
    (tmp_path / "root/train/blue").symlink_to(tmp_path / "elsewhere/blue")
    splits = read_folder(tmp_path / "root", SHAPE, 0.25)
    assert "blue" in splits.classes
