"""Samples of tar shards in WebDataset's layout: files that follow each other and share a name up to its first dot.

``000012.jpg 000012.json``, ``000012.0.jpg 000012.1.jpg 000012.txt``: images, and a chat as the family's other files
have it, or a caption. Files of other kinds are passed over, as other tools put theirs beside them.
"""

import re
from collections.abc import Iterator
from itertools import groupby
from typing import BinaryIO, NamedTuple

from datamodules.multimodal.unusable import UnusableSample
from datamodules.vision_language.shards.tar_members import MOST_BYTES, Member, members

IMAGES = ("jpg", "jpeg", "png", "webp", "gif", "bmp")

_MOST_FILES = 1000
"""Files of one sample."""


class TarSample(NamedTuple):
    """A sample as it stands in its shard; its contents are read when they are needed, if that is possible."""

    shard: str
    number: int  # in the shard, from 0
    begin: int  # where it begins in the shard, in bytes
    key: str
    files: dict[str, Member]  # by what follows the key's dot: "jpg", "0.jpg", "json"

    @property
    def name(self) -> str:
        return f"{self.shard}, sample {self.number} ({self.key})"


def tar_samples(file: BinaryIO, shard: str, keep: bool, begin: int = 0, number: int = 0) -> Iterator[TarSample]:
    """The samples of a shard in their order, from the one on that has this number and begins there.

    Arguments and errors as of `members`.
    """
    named = ((_split(member.name), member) for member in members(file, shard, keep, begin))
    grouped = groupby((one for one in named if _of_a_sample(one[0][0])), key=lambda one: one[0][0])
    for number, (key, group) in enumerate(grouped, number):
        files: dict[str, Member] = {}
        for (_, suffix), member in group:
            if suffix in files:
                raise ValueError(f"{shard}: {member.name} stands there twice in sample {number}")
            if len(files) == _MOST_FILES:
                raise ValueError(f"{shard}: sample {number} ({key}) has more than {_MOST_FILES} files")
            files[suffix] = member
        yield TarSample(shard, number, next(iter(files.values())).begin, key, files)


def contents(sample: TarSample, suffix: str, file: BinaryIO | None) -> bytes:
    """One file of a sample.

    Args:
        sample: whose contents were kept, or stand in `file`.
        suffix: which of its files.
        file: its shard, open.

    Raises:
        UnusableSample: it is larger than MOST_BYTES.
        ValueError: the shard ends before.
    """
    member = sample.files[suffix]
    if member.size > MOST_BYTES:
        raise UnusableSample(f"{sample.name}: {member.name} has {member.size:,} bytes, expected at most {MOST_BYTES:,}")
    if member.data is not None:
        return member.data
    assert file is not None
    file.seek(member.offset)
    data = file.read(member.size)
    if len(data) < member.size:
        raise ValueError(f"{sample.shard}: ends in {member.name}, sample {sample.number}; copy or write it again")
    return data


def image_suffixes(sample: TarSample) -> list[str]:
    """Its images in the order of their markers: by number (2 before 10), then by name."""
    return sorted((suffix for suffix in sample.files if suffix.rpartition(".")[2] in IMAGES), key=_by_number)


def _by_number(suffix: str) -> list[tuple[int, str]]:
    parts = filter(None, re.split(r"(\d+)", suffix))
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in parts]


def _split(name: str) -> tuple[str, str]:
    """Key and suffix of a file's name."""
    folder, slash, last = name.rpartition("/")
    stem, _, suffix = last.partition(".")
    return folder + slash + stem, suffix.lower()


def _of_a_sample(key: str) -> bool:
    """Not a hidden file, nor one about the shard as a whole, as WebDataset keeps them: `__index__.json`."""
    last = key.rpartition("/")[2]
    return bool(last) and not (last.startswith("__") and last.endswith("__"))
