"""Configures a source of chats, one file or several of the same format, and opens its reader."""

import logging
import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from datamodules.vision_language.chat_file import ChatFile
from datamodules.vision_language.files.json_chats import JsonChats
from datamodules.vision_language.files.parquet_chats import ParquetChats, chat_columns
from datamodules.vision_language.files.parquet_rows import parquet_files, prepare_rows
from datamodules.vision_language.files.question_tables import (
    TEXT_DELIMITERS,
    QuestionParquet,
    QuestionText,
    question_columns,
)
from datamodules.vision_language.shards.random_access import TarChats
from datamodules.vision_language.shards.shard import Shard
from datamodules.vision_language.shards.shard_index import ShardIndex
from datamodules.vision_language.shards.url_expansion import is_remote, shard_names
from engine.number_check import check_number

log = logging.getLogger("lockstep")

Form = Literal["llava", "jsonl", "parquet", "tar", "questions"]
FileFormat = Literal["auto", "llava", "jsonl", "parquet", "tar", "questions"]

SHARDS = "shards"
"""Name of the folder with the index of tar shards, below the folder that `prepare` writes to."""

_SUFFIXES: dict[str, Form] = {
    ".json": "llava", ".jsonl": "jsonl", ".ndjson": "jsonl", ".parquet": "parquet", ".tar": "tar",
    **dict.fromkeys(TEXT_DELIMITERS, "questions"),
}  # fmt: skip


@dataclass(frozen=True)
class SourceSettings:
    """Chats with images, in one file or several.

    Args:
        path: a file; for Parquet also a folder or a pattern such as data/train-*.parquet; for tar shards also a range
            such as data/train-{000..099}.tar.
        format: `llava` (a JSON list of records), `jsonl` (one record per line), `parquet`, `tar` (WebDataset shards) or
            `questions` (Parquet, TSV or CSV with a question in each row, as benchmarks have it); `auto` uses the suffix
            of the path, and assumes Parquet files of chats in a folder.
        images: base folder of the paths of images; null for the folder of the file.
        weight: how often each sample is drawn in an epoch; with 0.25 each epoch draws another quarter of the samples.
        first: use the first samples only, up to this number; null for all.
        system: system message of chats that have none; null for none.
    """

    path: str
    format: FileFormat = "auto"
    images: str | None = None
    weight: float = 1.0
    first: int | None = None
    system: str | None = None

    def check(self, name: str = "") -> None:
        """Validate the settings.

        Args:
            name: prefix of the settings' keys, for errors.

        Raises:
            ValueError: a value is invalid.
        """
        check_number(f"{name}weight of {self.path}", self.weight, above=0, at_most=1000)
        check_number(f"{name}first of {self.path}", self.first, at_least=1)
        if self.form == "tar" and self.images is not None:
            raise ValueError(f"{name}images of {self.path}: tar shards contain their images; remove it")

    @property
    def form(self) -> Form:
        """Format of the files, detected if it is `auto`.

        Raises:
            ValueError: the path does not reveal the format.
        """
        if self.format != "auto":
            return self.format
        path = Path(self.path)
        found = _SUFFIXES.get(path.suffix.lower()) or ("parquet" if path.is_dir() else None)
        if found is None:
            raise ValueError(
                f"{self.path}: cannot detect the format from the suffix; set format to llava, jsonl, parquet, tar or "
                "questions"
            )
        return found

    @property
    def _is_text_table(self) -> bool:
        return Path(self.path).suffix.lower() in TEXT_DELIMITERS

    @property
    def _is_parquet(self) -> bool:
        return self.form == "parquet" or (self.form == "questions" and not self._is_text_table)

    def open(self, root: str | Path) -> ChatFile:
        """Open the chats of the source.

        Args:
            root: folder of what `prepare` wrote.

        Raises:
            ValueError: the file has another format, or must be prepared first.
            OSError: the file cannot be read.
        """
        if self.form == "parquet":
            return ParquetChats(self.path, root, self.images)
        if self.form == "tar":
            return TarChats(self.shards(root))
        if self.form == "questions":
            if self._is_text_table:
                return QuestionText(self.path, self.images)
            return QuestionParquet(self.path, root, self.images)
        return JsonChats(self.path, lines=self.form == "jsonl", images=self.images)

    def files(self) -> set[str]:
        """Return the files of the source: resolved paths, or URLs.

        Raises:
            FileNotFoundError, ValueError: there are none.
        """
        if self.form == "tar":
            # Resolved, so that a link and its target count as the same file.
            return {name if is_remote(name) else os.path.realpath(name) for name in shard_names(self.path)}
        return set(map(os.path.realpath, parquet_files(self.path) if self._is_parquet else [self.path]))

    def prepare(self, root: str | Path) -> list[Path]:
        """Write to `root` what `open` needs besides the source, and return the paths that were written now."""
        if self.form == "tar":
            self.index(root)
        columns = chat_columns if self.form == "parquet" else question_columns
        return prepare_rows(self.path, root, columns) if self._is_parquet else []

    def shards(self, root: str | Path) -> list[Shard]:
        """Return the tar shards with their index entries. Raises the errors of `shard_names` and `ShardIndex`."""
        return ShardIndex(Path(root) / SHARDS).shards(shard_names(self.path))

    def index(self, root: str | Path, local_only: bool = False) -> None:
        """Index the samples of new tar shards.

        Args:
            root: folder that `prepare` writes to.
            local_only: skip remote shards, which would be downloaded as a whole.

        Raises:
            ValueError, OSError: see `ShardIndex.add`.
        """
        names = [name for name in shard_names(self.path) if not (local_only and is_remote(name))]
        ShardIndex(Path(root) / SHARDS).add(names)


def warn_about_shared_files(
    train: Sequence[SourceSettings], validation: Sequence[SourceSettings] | None, test: Sequence[SourceSettings] | None
) -> None:
    """Log a warning for each evaluation that has a file of the training; files that are missing are ignored."""
    for name, sources in (("validation", validation), ("test", test)):
        shared = sorted(_files_of(train) & _files_of(sources or []))
        if shared:
            more = f" and {len(shared) - 3} more" if len(shared) > 3 else ""
            log.warning(
                "%s%s: in data.init_args.train and in data.init_args.%s: the model is evaluated on its training data, "
                "so the metrics do not measure generalisation", ", ".join(shared[:3]), more, name,
            )  # fmt: skip


def _files_of(sources: Sequence[SourceSettings]) -> set[str]:
    paths: set[str] = set()
    for source in sources:
        # A set that is not used may be missing. For a set that is used, opening it raises the error.
        with suppress(FileNotFoundError, ValueError):
            paths |= source.files()
    return paths


def check_sources(sources: Sequence[SourceSettings], name: str) -> None:
    """Validate the sources of a set.

    Args:
        sources: sources of the set.
        name: key of the set, for errors.

    Raises:
        ValueError: there are none, or one is invalid.
    """
    if not sources:
        raise ValueError(f"{name} is empty; expected a list of sources, each with a path")
    for index, source in enumerate(sources):
        source.check(f"{name}[{index}].")


def check_streamed(
    train: Sequence[SourceSettings], validation: Sequence[SourceSettings] | None, shuffle_window: int
) -> None:
    """Check the options of a training that streams its files.

    Raises:
        ValueError: a source cannot be streamed, there are no files for validation, or the window is empty.
    """
    check_number("data.init_args.shuffle_window", shuffle_window, at_least=1)
    for index, source in enumerate(train):
        if source.form != "tar" or source.weight != 1 or source.first is not None:
            raise ValueError(
                f"data.init_args.train[{index}] ({source.path}): with data.init_args.shuffle_window, training streams "
                "tar shards, each once per epoch, so other formats, weight and first do not apply. Without it, tar "
                "shards are read by random access and can be mixed with other files"
            )
    if validation is None:
        raise ValueError("data.init_args.shuffle_window: a stream needs data.init_args.validation with other files")
