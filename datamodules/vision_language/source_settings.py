"""What a configuration says of one file of chats, or of several of the same form."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from datamodules.vision_language.files.json_chats import JsonChats
from datamodules.vision_language.files.parquet_chats import ParquetChats, parquet_files, prepare_parquet
from datamodules.vision_language.image_chat import ChatFile
from datamodules.vision_language.shards.index import ShardIndex
from datamodules.vision_language.shards.names import is_remote, shard_names
from datamodules.vision_language.shards.shard import Shard
from datamodules.vision_language.shards.tar_file import TarChats

Form = Literal["llava", "jsonl", "parquet", "tar"]
FileFormat = Literal["auto", "llava", "jsonl", "parquet", "tar"]

SHARDS = "shards"
"""Folder, in that of what `prepare` writes, of the index of tar shards."""

_ENDINGS: dict[str, Form] = {
    ".json": "llava", ".jsonl": "jsonl", ".ndjson": "jsonl", ".parquet": "parquet", ".tar": "tar"
}  # fmt: skip


@dataclass(frozen=True)
class SourceSettings:
    """Chats with images, in a file or several.

    Args:
        path: a file; of Parquet also a folder, or a pattern as data/train-*.parquet; of tar shards also a range, as data/train-{000..099}.tar.
        format: `llava` (a JSON list of records), `jsonl` (a record a line), `parquet`, `tar` (shards in WebDataset's layout); `auto` goes by the file's ending, and takes a folder to be of Parquet files.
        images: folder that images' paths begin in; null for the folder of the file.
        weight: how often each sample is seen in an epoch; 0.25 is another quarter of the samples in each.
        first: only so many samples, from the first on; null for all.
        system: system message of chats that have none; null for none.
    """  # noqa: E501

    path: str
    format: FileFormat = "auto"
    images: str | None = None
    weight: float = 1.0
    first: int | None = None
    system: str | None = None

    def check(self, name: str = "") -> None:
        """
        Args:
            name: of these settings, for errors.

        Raises:
            ValueError: a value cannot be used.
        """
        if not 0 < self.weight <= 1000:
            raise ValueError(f"{name}weight of {self.path} must be above 0 and at most 1000, got {self.weight}")
        if self.first is not None and self.first < 1:
            raise ValueError(f"{name}first of {self.path} must be at least 1, or null for all; got {self.first}")
        if self.form == "tar" and self.images is not None:
            raise ValueError(f"{name}images of {self.path}: tar shards have their images in them")

    @property
    def form(self) -> Form:
        """The format, found out if it is `auto`.

        Raises:
            ValueError: the path does not tell.
        """
        if self.format != "auto":
            return self.format
        path = Path(self.path)
        found = _ENDINGS.get(path.suffix.lower()) or ("parquet" if path.is_dir() else None)
        if found is None:
            raise ValueError(
                f"{self.path}: cannot tell its format from its ending; name it (format: llava, jsonl, parquet or tar)"
            )
        return found

    def open(self, root: str | Path) -> ChatFile:
        """The file's chats.

        Args:
            root: folder of what `prepare` wrote.

        Raises:
            ValueError: the file is not of its form, or must be prepared first.
            OSError: it cannot be read.
        """
        if self.form == "parquet":
            return ParquetChats(self.path, root, self.images)
        if self.form == "tar":
            return TarChats(self.shards(root))
        return JsonChats(self.path, lines=self.form == "jsonl", images=self.images)

    def files(self) -> set[str]:
        """Where its files are: paths without links, or addresses.

        Raises:
            FileNotFoundError, ValueError: there are none.
        """
        if self.form == "tar":
            return {name if is_remote(name) else os.path.realpath(name) for name in shard_names(self.path)}
        return set(map(os.path.realpath, parquet_files(self.path) if self.form == "parquet" else [self.path]))

    def prepare(self, root: str | Path) -> list[Path]:
        """Writes into `root` what `open` needs besides the file itself; the paths of what was written now."""
        if self.form == "tar":
            self.index(root)
        return prepare_parquet(self.path, root) if self.form == "parquet" else []

    def shards(self, root: str | Path) -> list[Shard]:
        """The tar shards, with what `index` has found out. Errors as of `shard_names` and `ShardIndex`."""
        return ShardIndex(Path(root) / SHARDS).shards(shard_names(self.path))

    def index(self, root: str | Path, files_alone: bool = False) -> None:
        """Looks at the tar shards that are new, and writes down in `root` where their samples are.

        Args:
            root: folder of what `prepare` writes.
            files_alone: leave out what is not among this machine's files: it would be read through.

        Raises:
            ValueError, OSError: as of `ShardIndex.add`.
        """
        names = [name for name in shard_names(self.path) if not (files_alone and is_remote(name))]
        ShardIndex(Path(root) / SHARDS).add(names)


def shared_files(first: Sequence[SourceSettings], second: Sequence[SourceSettings]) -> list[str]:
    """The files that both sets have; of those that are there."""
    return sorted(_files_of(first) & _files_of(second))


def _files_of(sources: Sequence[SourceSettings]) -> set[str]:
    found: set[str] = set()
    for source in sources:
        try:
            found |= source.files()
        except (FileNotFoundError, ValueError):
            pass  # a set that is not used need not be there; of one that is used, whoever opens it says what is wrong
    return found


def check_sources(sources: Sequence[SourceSettings], name: str) -> None:
    """
    Args:
        sources: of one set.
        name: its key, for errors.

    Raises:
        ValueError: there are none, or one cannot be used.
    """
    if not sources:
        raise ValueError(f"{name} names no file; expected a list of sources, each with a path")
    for place, source in enumerate(sources):
        source.check(f"{name}[{place}].")


def check_streamed(sources: Sequence[SourceSettings], name: str) -> None:
    """
    Args:
        sources: to be read as a stream.
        name: their key, for errors.

    Raises:
        ValueError: one cannot be.
    """
    for place, source in enumerate(sources):
        if source.form != "tar" or source.weight != 1 or source.first is not None:
            raise ValueError(
                f"{name}[{place}] ({source.path}): with data.init_args.shuffle_window, training is one stream of tar "
                "shards, each seen once an epoch: not with files of another format, weight or first. Without it tar "
                "shards are read at random and mixed with any files"
            )
