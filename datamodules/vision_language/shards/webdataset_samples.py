"""Groups members of a tar archive to samples as WebDataset does: files with the same name up to the first dot.

Examples are `000012.jpg 000012.json` and `000012.0.jpg 000012.1.jpg 000012.txt`: images, and a chat in one of the
family's formats, or a caption. Files of other types are ignored, since other tools add their own.
"""

import re
from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import BinaryIO, NamedTuple

from datamodules.vision_language.shards.tar_index import MAX_BYTES, TarMember, iter_members, shown_name
from engine.data.errors import BadSampleError

IMAGES = ("jpg", "jpeg", "png", "webp", "gif", "bmp")

UNREAD_IMAGES = ("avif", "heic", "heif", "jfif", "jp2", "jxl", "svg", "tif", "tiff")
"""Suffixes of images that are not read; a sample may have them beside an image that is."""

_MAX_FILES = 1000
"""Maximum number of files of a sample."""


class TarSample(NamedTuple):
    """A sample of a shard. Its contents are read on demand, if the shard has random access."""

    shard: str
    number: int  # in the shard, from 0
    begin: int  # offset in the shard, in bytes
    key: str
    files: dict[str, TarMember]  # by the suffix after the key's dot: "jpg", "0.jpg", "json"

    @property
    def name(self) -> str:
        """Shard, number and key, for messages."""
        return f"{self.shard}, sample {self.number} ({shown_name(self.key)})"


def iter_samples(file: BinaryIO, shard: str, keep: bool, begin: int = 0, number: int = 0) -> Iterator[TarSample]:
    """Yield the samples of a shard in order, beginning with the sample of this number at the offset `begin`.

    For other arguments and errors see `iter_members`.

    Raises:
        ValueError: a sample has too many files, or the same file twice, or other samples are between its files.
    """
    seen: dict[str, tuple[int, frozenset[str]]] = {}  # {key: (number, suffixes)}
    entries = ((_split(member.name), member) for member in iter_members(file, shard, keep, begin))
    # groupby joins adjacent members only, as WebDataset does: the files of a sample follow each other in a shard.
    grouped = groupby((entry for entry in entries if _is_sample(entry[0][0])), key=lambda entry: entry[0][0])
    for index, (key, group) in enumerate(grouped, number):
        files: dict[str, TarMember] = {}
        for (_, suffix), member in group:
            if suffix in files:
                raise ValueError(f"{shard}: {shown_name(member.name)} occurs twice in sample {index}")
            if len(files) == _MAX_FILES:
                raise ValueError(f"{shard}: sample {index} ({shown_name(key)}) has more than {_MAX_FILES} files")
            files[suffix] = member
        first, suffixes = seen.setdefault(key, (index, frozenset(files)))
        # Two whole samples of the same name have the same suffixes; the parts of a single sample have different ones.
        if first != index and suffixes.isdisjoint(files):
            raise ValueError(
                f"{shard}: the files of {shown_name(key)} are apart: {_list_suffixes(suffixes)} as sample {first}, "
                f"{_list_suffixes(files)} as sample {index}; write the files of a sample next to each other"
            )
        yield TarSample(shard, index, next(iter(files.values())).begin, key, files)


def read_contents(sample: TarSample, suffix: str, file: BinaryIO | None) -> bytes:
    """Read a file of a sample.

    Args:
        sample: the sample.
        suffix: suffix of the file.
        file: the open shard; None if the contents were kept.

    Raises:
        BadSampleError: the file is larger than MAX_BYTES.
        ValueError: the shard ends too early.
    """
    member = sample.files[suffix]
    if member.size > MAX_BYTES:
        raise BadSampleError(
            f"{sample.name}: {shown_name(member.name)} has {member.size:,} bytes, expected at most {MAX_BYTES:,}"
        )
    if member.data is not None:
        return member.data
    assert file is not None
    file.seek(member.offset)
    data = file.read(member.size)
    if len(data) < member.size:
        raise ValueError(
            f"{sample.shard}: ends in {shown_name(member.name)}, sample {sample.number}; copy or write it again"
        )
    return data


def image_suffixes(sample: TarSample) -> list[str]:
    """Return the suffixes of the images in the order of their markers: by number (2 before 10), then by name."""
    return sorted((suffix for suffix in sample.files if suffix.rpartition(".")[2] in IMAGES), key=_sort_key)


def _sort_key(suffix: str) -> list[tuple[int, str]]:
    parts = filter(None, re.split(r"(\d+)", suffix))
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in parts]


def _split(name: str) -> tuple[str, str]:
    """Return key and suffix of a file name."""
    folder, slash, last = name.rpartition("/")
    stem, _, suffix = last.partition(".")
    return folder + slash + stem, suffix.lower()


def _list_suffixes(suffixes: Iterable[str]) -> str:
    return shown_name(", ".join(f".{suffix}" for suffix in sorted(suffixes)))


def _is_sample(key: str) -> bool:
    """Return whether a key is neither hidden nor WebDataset's metadata of a shard, such as `__index__.json`."""
    last = key.rpartition("/")[2]
    return bool(last) and not (last.startswith("__") and last.endswith("__"))
