"""Tests samples in WebDataset's layout: grouping, order of images, chats in every format, captions."""

import pytest

from datamodules.vision_language.chat_file import ImageChat
from datamodules.vision_language.shards import tar_index, webdataset_samples
from datamodules.vision_language.shards.chat_reader import read_sample
from datamodules.vision_language.shards.shard import Shard
from engine.data.errors import BadSampleError
from tests.support.data_files.tar_files import tar_of

LLAVA = {
    "id": "7",
    "image": "x.jpg",
    "conversations": [{"from": "human", "value": "<image>\nWhat?"}, {"from": "gpt", "value": "A dog."}],
}


def chat(*contents):
    return [{"role": role, "content": text} for role, text in zip(("user", "assistant") * 9, contents, strict=False)]


def read(path):
    return [read_sample(location) for location in Shard(str(path)).locations()]


def test_every_form_of_a_sample_is_read_from_a_shard(write_shard):
    path = write_shard(
        "a.tar",
        {
            "000012.jpg": b"one",
            "000012.json": LLAVA,
            "many.10.PNG": b"ten",
            "many.2.png": b"two",
            "many.json": {"messages": chat("Compare.", "No.")},
            "folder/caption.txt": b" a dog\n",
            "folder/caption.webp": b"dog",
            "__notes__.json": {},
            ".hidden.json": {},
            "folder/._caption.jpg": b"",
            "text.cls": b"7",
            "text.json": chat("Hello?", "Hi."),
            "crawled.json": {"url": "http://a", "width": 3},
            "crawled.txt": "ü".encode(),
            "crawled.jpeg": b"j",
        },
    )
    assert read(path) == [
        ImageChat(f"{path}, sample 0 (000012)", chat("<image>\nWhat?", "A dog."), [b"one"]),
        ImageChat(f"{path}, sample 1 (many)", chat("<image>\n<image>\nCompare.", "No."), [b"two", b"ten"]),
        ImageChat(f"{path}, sample 2 (folder/caption)", chat("<image>", "a dog"), [b"dog"]),
        ImageChat(f"{path}, sample 3 (text)", chat("Hello?", "Hi."), []),
        ImageChat(f"{path}, sample 4 (crawled)", chat("<image>", "ü"), [b"j"]),
    ]


def test_a_streamed_sample_holds_its_contents(write_shard):
    path = write_shard("a.tar", {"1.jpg": b"one", "1.txt": b"a dog"})
    [location] = list(Shard(f"file://{path}").locations())
    path.unlink()
    assert read_sample(location) == ImageChat(f"file://{path}, sample 0 (1)", chat("<image>", "a dog"), [b"one"])


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"1.jpg": b"j"}, "expected a .json with one of messages.* found jpg"),
        ({"1.jpg": b"j", "1.json": {"url": ""}}, "found jpg, json"),
        ({"1.txt": b"a dog"}, "an image and a .txt"),
        ({"1.jpg": b"j", "1.txt": b" "}, "the .txt is empty"),
        ({"1.jpg": b"j", "1.txt": b"\xff"}, "the .txt is not UTF-8"),
        ({"1.jpg": b"j", "1.json": b"{"}, "the .json is not JSON"),
        ({"1.jpg": b"j", "1.json": b"[" * 100_000}, "the .json is not JSON"),
        ({"1.jpg": b"j", "1.json": 7}, "a.tar, sample 0 .1."),
        ({"1.jpg": b"j", "1.json": {"messages": chat("<image><image>", "a")}}, "found <image> 2 times"),
        ({"1.json": {"image": "1.jpg", "messages": chat("What?", "a")}}, "names the image '1.jpg', but .* no image"),
        ({"1.json": {"images": ["1.jpg"], "texts": chat("What?", "a")}}, "names the images .* has no image"),
        ({"1.avif": b"j", "1.json": chat("What?", "a")}, "found the image .avif, expected one of jpg, .*; convert it"),
        ({"1.mask.TIFF": b"j", "1.txt": b"a dog"}, "found the image .mask.tiff, expected one of jpg"),
        ({"1.jpg": b"j" * 2000, "1.txt": b"a dog"}, "1.jpg has 2,000 bytes, expected at most 1,000"),
    ],
)
def test_a_sample_that_cannot_be_used_is_named(write_shard, monkeypatch, files, message):
    if b"j" * 2000 in files.values():
        for module in (tar_index, webdataset_samples):
            monkeypatch.setattr(module, "MAX_BYTES", 1000)
    path = write_shard("a.tar", files)
    for name in (path, f"file://{path}"):
        with pytest.raises(BadSampleError, match=message) as error:
            read(name)
        assert f"{name}, sample 0 (1)" in str(error.value)


def test_a_chat_without_images_is_read_as_such(write_shard):
    path = write_shard(
        "a.tar",
        {
            "1.json": {"image": "", "messages": chat("Hello?", "Hi.")},
            "2.json": {"images": [], "image": None, "messages": chat("Hello?", "Hi.")},
            "3.jpg": b"j",
            "3.mask.tif": b"m",
            "3.json": chat("What?", "A dog."),
        },
    )
    assert [len(sample.images) for sample in read(path)] == [0, 0, 1]


def test_a_file_that_stands_there_twice_is_a_fault_of_the_shard(write_shard):
    path = write_shard("a.tar", {"1.jpg": b"j", "1.JPG": b"j"})
    with pytest.raises(ValueError, match="a.tar: 1.JPG occurs twice in sample 0") as error:
        read(path)
    assert not isinstance(error.value, BadSampleError)


def test_the_parts_of_a_sample_that_are_apart_are_a_fault_of_the_shard(write_shard):
    """Otherwise its chat would be learned as a chat without an image."""
    words = chat("What?", "A dog.")
    path = write_shard("a.tar", {"1.json": words, "2.json": words, "2.jpg": b"j", "1.jpg": b"j"})
    for name in (path, f"file://{path}"):
        message = r"a.tar: the files of 1 are apart: \.json as sample 0, \.jpg as sample 2; write .* next to each other"
        with pytest.raises(ValueError, match=message) as error:
            read(name)
        assert not isinstance(error.value, BadSampleError)


def test_two_whole_samples_of_the_same_name_are_two_samples(tmp_path):
    samples = [("1.txt", b"x"), ("1.jpg", b"a"), ("2.txt", b"y"), ("2.jpg", b"b"), ("1.txt", b"z"), ("1.jpg", b"c")]
    (tmp_path / "a.tar").write_bytes(tar_of(samples))
    assert [sample.images for sample in read(tmp_path / "a.tar")] == [[b"a"], [b"b"], [b"c"]]


def test_a_sample_has_no_end_of_files(write_shard):
    with pytest.raises(ValueError, match="has more than 1000 files"):
        read(write_shard("a.tar", {f"1.{number}.jpg": b"" for number in range(1001)}))


def test_a_shard_that_has_become_shorter_is_no_fault_of_a_sample(write_shard):
    path = write_shard("a.tar", {"1.jpg": b"j" * 2000, "1.txt": b"a dog"})
    [sample] = list(Shard(str(path)).locations())
    path.write_bytes(path.read_bytes()[:1000])
    with pytest.raises(ValueError, match="a.tar: the archive ends in 1.jpg") as error:
        read_sample(sample)
    assert not isinstance(error.value, BadSampleError)
