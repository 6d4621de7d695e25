"""Chats with images: LLaVA's JSON, JSON lines, Parquet, tar shards. References: json, pyarrow and tarfile.

The messages have a weaker oracle: the texts of the turns, in order, without the markers of images; the roles alternate
in ways that three published formats write differently. Images are compared byte by byte.
"""

import atexit
import contextlib
import io
import json
import tarfile
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

import pytest

from tests.fuzz import plain_json
from tests.fuzz.mutations.byte_strings import mutate_bytes
from tests.fuzz.mutations.parquet_tables import parquet_bytes
from tests.fuzz.mutations.records import line_record_mutation, record_mutation
from tests.fuzz.reader import Input, InvalidInput, Reader, Unknown
from tests.fuzz.readers.chat_rows import IMAGES, KEYS, RECORDS, row_of, shard_row, words
from tests.support.data_files.tar_files import tar_of


class Chats(Reader):
    """Rows of (texts, images)."""

    def surround(self, folder: Path) -> None:
        for name, data in IMAGES.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes(data)

    def read(self, path: Path) -> Any:
        from datamodules.vision_language.source_config import SourceSettings

        settings = SourceSettings(str(path))
        settings.prepare(path.parent / "prepared")
        chats = settings.open(path.parent / "prepared")
        rows = []
        for row in range(len(chats)):
            found = chats.read(row)
            rows.append((words(message["content"] for message in found.messages), found.images))
        return rows


class JsonChats(Chats):
    """LLaVA's list, and JSON lines."""

    def seeds(self) -> Sequence[Input]:
        lines = "\n".join(json.dumps(record, ensure_ascii=False) for record in RECORDS)
        return [
            Input("chats.json", json.dumps(RECORDS, indent=1).encode()),
            Input("chats.jsonl", (lines + "\n\n").encode()),
        ]

    def mutate(self, random: Random, seed: Input) -> Input:
        if seed.path.endswith(".json") and random.random() < 0.5:
            return seed._replace(data=record_mutation(KEYS)(random, seed.data))
        return super().mutate(random, seed)

    def restructure(self, random: Random, data: bytes) -> bytes:
        return line_record_mutation(KEYS)(random, data)

    def reference(self, path: Path) -> Any:
        data = path.read_bytes()
        if path.suffix == ".jsonl":
            records = (
                [record for _, record in plain_json.lines(data.replace(b"\n\xef\xbb\xbf", b"\n"))]
                if data.removeprefix(b"\xef\xbb\xbf").strip()
                else []
            )
        else:
            records = plain_json.parse(data.removeprefix(b"\xef\xbb\xbf"))
        if not isinstance(records, list):
            raise InvalidInput("it is no list")
        return [row_of(record, path.parent) for record in records]


class ParquetChats(Chats):
    """The Parquet of minimind-v and of FineVision."""

    def read(self, path: Path) -> Any:
        from datamodules.vision_language.files import parquet_rows

        with pytest.MonkeyPatch.context() as patch:  # a process for all inputs, as for the files of a folder
            patch.setattr(parquet_rows, "FooterCheck", lambda: contextlib.nullcontext(_footers()))
            return super().read(path)

    def seeds(self) -> Sequence[Input]:
        return [Input(name, parquet_bytes(columns, row_group_size=2)) for name, columns in _TABLES.items()]

    def restructure(self, random: Random, data: bytes) -> bytes:
        import pyarrow
        import pyarrow.parquet

        try:
            table = pyarrow.parquet.read_table(io.BytesIO(data), use_threads=False)
            columns = {name: column.to_pylist() for name, column in zip(table.column_names, table.columns, strict=True)}
        except (pyarrow.ArrowException, OSError, ValueError):
            return mutate_bytes(random, data)
        if not columns or not any(columns.values()):
            return mutate_bytes(random, data)
        name = random.choice(list(columns))
        size, kind = len(columns[name]), random.randrange(6)
        strange: tuple[Any, ...] = (
            None,
            [],
            [None],
            1.5,
            True,
            b"",
            b"\xff",
            "",
            "[]",
            "x",
            {"a": 1},
            [{"path": "a.png"}],
        )
        if kind == 0:
            del columns[name]
        elif kind == 1:
            columns[random.choice(KEYS)] = columns.pop(name)
        elif kind == 2:
            columns[name] = [random.choice(strange)] * size
        elif kind == 3 and size and isinstance(columns[name][0], str):
            index = random.randrange(size)
            text = record_mutation(KEYS)(random, str(columns[name][index]).encode())
            columns[name][index] = text.decode("utf-8", "replace")
        elif kind == 4 and size:
            columns[name][random.randrange(size)] = None
        else:
            columns = {key: values[:1] for key, values in columns.items()}
        try:
            return parquet_bytes(columns, row_group_size=2)
        except (pyarrow.ArrowException, ValueError, TypeError):
            return mutate_bytes(random, data)

    def reference(self, path: Path) -> Any:
        import pyarrow
        import pyarrow.parquet

        try:
            records = pyarrow.parquet.read_table(io.BytesIO(path.read_bytes()), use_threads=False).to_pylist()
        except (pyarrow.ArrowException, OSError, ValueError) as error:
            raise Unknown("pyarrow cannot read all columns, and the reader needs only some") from error
        return [row_of(record, path.parent) for record in records]


class Shards(Chats):
    """Tar shards in WebDataset's layout."""

    def seeds(self) -> Sequence[Input]:
        files: list[tuple[str, bytes]] = []
        for number, record in enumerate(RECORDS[:3]):
            images = [IMAGES[name] for name in record.get("images", [record["image"]] if "image" in record else [])]
            names = ["png"] if len(images) == 1 else [f"{index}.png" for index in range(len(images))]
            files += [(f"{number:06}.{name}", image) for name, image in zip(names, images, strict=True)]
            files.append((f"{number:06}.json", json.dumps(record, ensure_ascii=False).encode()))
        files += [("x/9.jpg", b"an image"), ("x/9.txt", "A caption: ü".encode())]
        return [
            Input("train-0.tar", tar_of(files)),
            Input("long.tar", tar_of([("d" * 120 + "/" + name, data) for name, data in files])),
        ]

    def restructure(self, random: Random, data: bytes) -> bytes:
        try:
            files = _members(data)
        except (tarfile.TarError, ValueError, OSError, MemoryError):
            return mutate_bytes(random, data)
        if not files:
            return mutate_bytes(random, data)
        index, other, kind = random.randrange(len(files)), random.randrange(len(files)), random.randrange(6)
        name, content = files[index]
        if kind == 0:
            del files[index]
        elif kind == 1:
            files.insert(other, files[index])
        elif kind == 2:
            files[index], files[other] = files[other], files[index]
        elif kind == 3:
            names = ("000000.json", "a", ".json", "../x.png", "/etc/x.json", "000001.JSON", "a.b.c.png", "é.json", "x/")
            files[index] = (random.choice(names), content)
        elif kind == 4:
            files[index] = (name, record_mutation(KEYS)(random, content))
        else:
            files[index] = (name, random.choice((b"", b"{}", b"null", content * 2, b"\xff\xfe")))
        return tar_of(files)

    def reference(self, path: Path) -> Any:
        try:
            files = _members(path.read_bytes())
        except (tarfile.TarError, ValueError, OSError) as error:
            raise Unknown("tarfile cannot read it, which ends at some corrupt headers") from error
        groups: list[tuple[str, dict[str, bytes]]] = []
        for name, content in files:
            folder, slash, last = name.rpartition("/")
            stem, _, suffix = last.partition(".")
            key = folder + slash + stem
            if not stem or (stem.startswith("__") and stem.endswith("__")):
                if slash and not stem:
                    raise Unknown("a key is empty")
                continue
            if not groups or groups[-1][0] != key:
                groups.append((key, {}))
            groups[-1][1][suffix.lower()] = content
        return [shard_row(group) for _, group in groups]

    def names_location(self, message: str, data: bytes) -> bool:
        return "the file " in message or super().names_location(message, data)

    def agrees(self, actual: Any, expected: Any) -> bool:
        return len(actual) == len(expected) and all(
            own[0] == other[0] and sorted(own[1]) == sorted(other[1])
            for own, other in zip(actual, expected, strict=True)
        )


READERS = {"chats": JsonChats, "chats_parquet": ParquetChats, "shards": Shards}


@cache
def _footers() -> Any:
    """Return the check of all inputs, whose child starts once; the child ends with this process."""
    from datamodules.multimodal.parquet_footer_check import FooterCheck

    footers = FooterCheck()
    atexit.register(footers.__exit__)
    return footers


_TABLES: dict[str, dict[str, list[Any]]] = {
    "minimind.parquet": {
        "conversations": [json.dumps(record["messages"]) for record in RECORDS if record["id"] in (3, 5)] * 2,
        "image_bytes": [list(IMAGES.values()), [IMAGES["a.png"]]] * 2,
    },
    "finevision.parquet": {
        "images": [[{"bytes": b"an image", "path": None}], [{"bytes": None, "path": "a.png"}], []],
        "texts": [[{"user": f"Question {n}?", "assistant": "ü"}] for n in range(3)],
        "source": ["tests"] * 3,
    },
}


def _members(data: bytes) -> list[tuple[str, bytes]]:
    found = []
    with tarfile.open(fileobj=io.BytesIO(data), mode="r:") as tar:
        for member in tar.getmembers():
            content = tar.extractfile(member) if member.isreg() else None
            if content is not None:
                found.append((member.name, content.read()))
    return found
