"""Writes chats with images in published formats, for tests and benchmarks.

A sample is a list of turns (role, text) and its images; the text of a user has a marker for each image.
"""

import io
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from PIL import Image

from tests.support.data_files.tar_files import tar_of

if TYPE_CHECKING:
    import pyarrow

    from datamodules.vision_language.chat_file import ImageChat


class Sample(NamedTuple):
    """A chat as it is to be read again."""

    turns: Sequence[tuple[str, str]]
    images: Sequence[bytes] = ()


def png(color: tuple[int, int, int], size: int = 8, kind: str = "PNG") -> bytes:
    """Return a single-colored square."""
    return encoded(Image.new("RGB", (size, size), color), kind)


def encoded(image: Image.Image, kind: str = "PNG", **options: Any) -> bytes:
    """Return the bytes of an image file, with options of Pillow's writer."""
    file = io.BytesIO()
    image.save(file, kind, **options)
    return file.getvalue()


def colored(number: int, size: int = 8) -> Sample:
    """A sample whose picture and texts encode its number."""
    color = (number % 256, number // 256 % 256, 128)
    turns = [("user", f"<image>\nWhich number is this? {number}"), ("assistant", f"It is {number}.")]
    return Sample(turns, [png(color, size)])


VARIED_SAMPLES = [
    colored(0),
    Sample([("system", "Sei kurz."), ("user", 'Wie? [,]{"}\\ é 图'), ("assistant", "Schön.")], []),
    Sample(
        [("user", "<image> or <image>?"), ("assistant", "Red."), ("user", "Sure?"), ("assistant", "Yes.")],
        [png((255, 0, 0)), png((0, 255, 0))],
    ),
    Sample([("user", "Say hello.")], []),
]
"""Samples with one, no and two images; with a system turn, an open turn, and characters that JSON escapes."""


def as_sample(chat: "ImageChat") -> Sample:
    """Return a chat that was read as it was written."""
    return Sample([(message["role"], message["content"]) for message in chat.messages], list(chat.images))


def write_llava(path: Path, samples: Sequence[Sample], images: Path | None = None) -> Path:
    """A JSON list of records and a folder of images; one image by its path, several as a list, none without a key."""
    records = []
    for number, sample in enumerate(samples):
        speakers = {"user": "human", "assistant": "gpt", "system": "system"}
        turns = [{"from": speakers[role], "value": text} for role, text in sample.turns]
        paths = _in_folder(images or path.parent, number, sample.images)
        record: dict[str, Any] = {"id": f"{number:06}", "conversations": turns}
        if paths:
            record["image"] = paths[0] if len(paths) == 1 else paths
        records.append(record)
    path.write_text(json.dumps(records, ensure_ascii=False, indent=1), encoding="utf-8")
    return path


def write_jsonl(path: Path, samples: Sequence[Sample], images: Path | None = None) -> Path:
    """A record on each line: messages, and images by their paths."""
    lines = []
    for number, sample in enumerate(samples):
        record = {"messages": _messages(sample), "images": _in_folder(images or path.parent, number, sample.images)}
        lines.append(json.dumps(record, ensure_ascii=False))
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def write_minimind_parquet(path: Path, samples: Sequence[Sample], row_group_size: int | None = None) -> Path:
    """Columns `conversations` (JSON) and `image_bytes`: one or, if any sample has several, a list of them.

    A sample without an image has a black one of 8 x 8 pixels, as minimind-v's text has.
    """
    import pyarrow

    images = [list(sample.images) or [png((0, 0, 0), kind="JPEG")] for sample in samples]
    single = all(len(pictures) == 1 for pictures in images)
    kind = pyarrow.binary() if single else pyarrow.list_(pyarrow.binary())
    table = pyarrow.table(
        {
            "conversations": [json.dumps(_messages(sample), ensure_ascii=False) for sample in samples],
            "image_bytes": pyarrow.array([pictures[0] for pictures in images] if single else images, kind),
        }
    )
    return _write(path, table, row_group_size)


def write_finevision_parquet(path: Path, samples: Sequence[Sample], row_group_size: int | None = None) -> Path:
    """Columns `images` (list of bytes and path) and `texts` (list of user and assistant), without markers."""
    import pyarrow

    structs = pyarrow.list_(pyarrow.struct([("bytes", pyarrow.binary()), ("path", pyarrow.string())]))
    table = pyarrow.table(
        {
            "images": pyarrow.array([[{"bytes": data, "path": None} for data in s.images] for s in samples], structs),
            "texts": [_pairs(sample) for sample in samples],
            "source": ["tests"] * len(samples),
            "relevance_ratings": [[5] * len(_pairs(sample)) for sample in samples],
        }
    )
    return _write(path, table, row_group_size)


def write_tar(path: Path, samples: Sequence[Sample], first: int = 0) -> Path:
    """A shard in WebDataset's layout: `000012.json`, and `000012.png` or `000012.0.png`, `000012.1.png`."""
    files: dict[str, bytes] = {}
    for number, sample in enumerate(samples, first):
        names = ["png"] if len(sample.images) == 1 else [f"{index}.png" for index in range(len(sample.images))]
        files |= {f"{number:06}.{name}": image for name, image in zip(names, sample.images, strict=True)}
        files[f"{number:06}.json"] = json.dumps({"messages": _messages(sample)}).encode()
    return write_files_in_tar(path, files)


def write_files_in_tar(path: Path, files: Mapping[str, bytes]) -> Path:
    path.write_bytes(tar_of(files.items()))
    return path


def _messages(sample: Sample) -> list[dict[str, str]]:
    return [{"role": role, "content": text} for role, text in sample.turns]


def _pairs(sample: Sample) -> list[dict[str, str]]:
    """Questions with their answers; data sets in this format have no markers."""
    texts = [text.replace("<image>\n", "") for role, text in sample.turns if role != "system"]
    return [{"user": user, "assistant": output} for user, output in zip(texts[::2], texts[1::2], strict=True)]


def _in_folder(folder: Path, number: int, images: Sequence[bytes]) -> list[str]:
    paths = []
    for index, image in enumerate(images):
        paths.append(f"images/{number:06}-{index}.png")
        (folder / paths[-1]).parent.mkdir(parents=True, exist_ok=True)
        (folder / paths[-1]).write_bytes(image)
    return paths


def _write(path: Path, table: "pyarrow.Table", row_group_size: int | None) -> Path:
    import pyarrow.parquet

    pyarrow.parquet.write_table(table, path, row_group_size=row_group_size)
    return path
