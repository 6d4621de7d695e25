"""Reads and writes the rank of each user of an evaluation, `ranks-test.npz`, without torch and without pickle.

The file is an uncompressed zip of numpy arrays (.npz), which has a CRC-32 of each array:

| array | content |
|---|---|
| `header` | JSON with the keys of `RankHeader`, and `version` |
| `users`, `user_lengths` | original ids of the users, in UTF-8 without separators, and the number of bytes of each |
| `targets`, `target_lengths` | original ids of the held-out items, likewise |
| `history`, `popularity`, `rank`, `candidates` | int32 [U], see `UserRanks` |
| `recommended`, `item_events` | int32 [U, K] and [I], see `Recommended`; in version 2 only |

Users are in ascending order of their ids, so the file is the same for every world size and order of batches.
"""

import io
import json
import struct
import zipfile
import zlib
from collections.abc import Sequence
from pathlib import Path
from tokenize import TokenError
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from engine.system.installation import PROGRAM
from engine.system.runs_directory import run_options

VERSION, VERSION_WITH_ITEMS = 1, 2
"""Without and with the items that are recommended to each user."""

_COLUMNS = ("history", "popularity", "rank", "candidates")
_ITEMS = ("recommended", "item_events")
_TEXTS = (("users", "user_lengths"), ("targets", "target_lengths"))
_ENCODING = {"encoding": "utf-8", "errors": "surrogatepass"}

_UNREADABLE = (
    zipfile.BadZipFile, zlib.error, struct.error, ValueError, LookupError, TypeError, EOFError, OverflowError,
    MemoryError, RuntimeError, SyntaxError, TokenError,
)  # fmt: skip
"""Errors of reading a file that is truncated or has changed; zipfile and numpy's headers raise many kinds."""


class RankHeader(NamedTuple):
    """Facts of an evaluation."""

    stage: str  # `val` or `test`
    protocol: str  # begins the names of the metrics: `request_time`, or "" for the past alone
    step: int  # optimizer steps of the checkpoint
    head_from: int  # items with at least this number of training events are the head
    tail_to: int  # items with at most this number of training events are the tail

    @property
    def prefix(self) -> str:
        """Beginning of the metrics' names: `test/` or `test/request_time/`."""
        return "/".join(filter(None, (self.stage, self.protocol))) + "/"


class Recommended(NamedTuple):
    """Items that are recommended to the users of an evaluation, without seen ones."""

    items: NDArray[np.integer]  # [U, K] numbers of the best items, from 1, the best first; 0 where fewer are left
    item_events: NDArray[np.integer]  # [I] number of training events of each item; that of item i is at i - 1


class UserRanks(NamedTuple):
    """Ranks of an evaluation, in ascending order of the user's id."""

    header: RankHeader
    users: Sequence[str]  # [U] original ids
    targets: Sequence[str]  # [U] original ids of the held-out items
    history: NDArray[np.integer]  # [U] number of events of the user's history, not only of the last `max_length`
    popularity: NDArray[np.integer]  # [U] number of training events of the target
    rank: NDArray[np.integer]  # [U] rank of the target, from 1
    candidates: NDArray[np.integer]  # [U] number of ranked items, the target included: the worst rank
    recommended: Recommended | None = None  # None if the evaluation has not kept them


class RankFileError(ValueError):
    """A file of ranks that is truncated or has changed. The message states what was found and what to do."""


def rank_file(folder: Path, stage: str) -> Path:
    """Return the path of the ranks of a stage (`val` or `test`) in a run's folder."""
    return folder / f"ranks-{stage}.npz"


def encode(ranks: UserRanks) -> bytes:
    """Return the content of the file. Equal ranks have equal bytes."""
    # The order of the original ids, because the order of gathering depends on the world size.
    order = sorted(range(len(ranks.users)), key=ranks.users.__getitem__)
    version = VERSION if ranks.recommended is None else VERSION_WITH_ITEMS
    arrays: dict[str, NDArray[Any]] = {"header": np.array(json.dumps({"version": version, **ranks.header._asdict()}))}
    for (name, lengths), texts in zip(_TEXTS, (ranks.users, ranks.targets), strict=True):
        encoded = [texts[index].encode(**_ENCODING) for index in order]
        arrays[name] = np.frombuffer(b"".join(encoded), np.uint8)
        arrays[lengths] = np.array([len(text) for text in encoded], np.int32)
    for name in _COLUMNS:
        arrays[name] = np.asarray(getattr(ranks, name))[order].astype(np.int32)
    if ranks.recommended is not None:
        arrays[_ITEMS[0]] = np.asarray(ranks.recommended.items)[order].astype(np.int32)
        arrays[_ITEMS[1]] = np.asarray(ranks.recommended.item_events).astype(np.int32)
    content = io.BytesIO()
    np.savez(content, **arrays)  # type: ignore[arg-type]  # numpy's stubs take the names for its other parameters
    return content.getvalue()


def read_ranks(path: Path) -> UserRanks:
    """Read a file of ranks.

    Raises:
        RankFileError: the file is truncated, has changed, or is of another version.
        OSError: the file cannot be read.
    """
    content = path.read_bytes()
    try:
        return _decode(content)
    except _UNREADABLE as error:
        found = str(error) or type(error).__name__
        raise RankFileError(
            f"{path}: found {found.splitlines()[0][:200]}\n"
            "expected the complete ranks of an evaluation, as they were written\n"
            f"write them again with `{PROGRAM} {_command(path)} {run_options(path.parent)}`"
        ) from error


def _command(path: Path) -> str:
    return "validate" if path.stem.endswith("-val") else "test"


def _decode(file: bytes) -> UserRanks:
    with zipfile.ZipFile(io.BytesIO(file)) as archive:
        if len(set(archive.namelist())) < len(archive.namelist()):
            raise ValueError("an array twice")
        header, version = _parse_header(str(_read_array(archive, "header", len(file))))
        names = [*_COLUMNS, *(part for pair in _TEXTS for part in pair)]
        names += _ITEMS if version == VERSION_WITH_ITEMS else ()
        arrays = {name: _read_array(archive, name, len(file)) for name in names}
    history, popularity, rank, candidates = (arrays[name] for name in _COLUMNS)
    users, targets = (_split_texts(arrays[name], arrays[lengths], name) for name, lengths in _TEXTS)
    recommended = Recommended(*(arrays[name] for name in _ITEMS)) if version == VERSION_WITH_ITEMS else None
    ranks = UserRanks(header, users, targets, history, popularity, rank, candidates, recommended)
    _check_ranks(ranks)
    if recommended:
        _check_recommended(recommended, len(users))
    return ranks


def _read_array(archive: zipfile.ZipFile, name: str, file_size: int) -> NDArray[Any]:
    member = archive.getinfo(f"{name}.npy")
    # The file is not compressed, so no member can be larger than the file.
    if member.compress_type != zipfile.ZIP_STORED or member.file_size > file_size:
        raise ValueError(f"array {name} compressed or larger than the file")
    content = io.BytesIO(archive.read(member))  # raises if the CRC-32 is wrong
    array: NDArray[Any] = np.lib.format.read_array(content, allow_pickle=False)
    return array


def _parse_header(text: str) -> tuple[RankHeader, int]:
    """Return the header and the version of the file."""
    fields = json.loads(text, object_pairs_hook=_each_key_once)
    version = fields.pop("version", None) if isinstance(fields, dict) else None
    if version not in (VERSION, VERSION_WITH_ITEMS):
        raise ValueError(f"version {version!r} instead of {VERSION} or {VERSION_WITH_ITEMS}")
    if fields.keys() != set(RankHeader._fields) or fields["stage"] not in ("val", "test"):
        raise ValueError(f"header {text[:100]!r}")
    numbers = [fields[name] for name in ("step", "head_from", "tail_to")]
    if not isinstance(fields["protocol"], str) or any(type(number) is not int for number in numbers):
        raise ValueError(f"header {text[:100]!r}")
    return RankHeader(**fields), version


def _each_key_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    content = dict(pairs)
    if len(content) < len(pairs):
        raise ValueError("a key of the header twice")
    return content


def _split_texts(joined: NDArray[Any], lengths: NDArray[Any], name: str) -> list[str]:
    if joined.dtype != np.uint8 or joined.ndim != 1 or lengths.dtype != np.int32 or lengths.ndim != 1:
        raise ValueError(f"array {name} of {joined.dtype} and {lengths.dtype}")
    if np.any(lengths < 0) or lengths.sum(dtype=np.int64) != len(joined):
        raise ValueError(f"{len(joined)} bytes in {name}, and lengths that add up to {lengths.sum(dtype=np.int64)}")
    content, ends = joined.tobytes(), np.cumsum(lengths, dtype=np.int64).tolist()
    return [content[begin:end].decode(**_ENCODING) for begin, end in zip([0, *ends], ends, strict=False)]


def _check_ranks(ranks: UserRanks) -> None:
    users = ranks.users
    for name in _COLUMNS:
        column = getattr(ranks, name)
        if column.dtype != np.int32 or column.shape != (len(users),):
            raise ValueError(f"array {name} of {column.dtype} {column.shape} for {len(users)} users")
    if not users or len(ranks.targets) != len(users):
        raise ValueError(f"{len(users)} users and {len(ranks.targets)} targets")
    unsorted = next((after for before, after in zip(users, users[1:], strict=False) if before >= after), None)
    if unsorted is not None:
        raise ValueError(f"user {unsorted!r} out of order or twice")
    rank, candidates = ranks.rank, ranks.candidates
    wrong = (rank < 1) | (rank > candidates) | (ranks.history < 0) | (ranks.popularity < 0)
    if np.any(wrong):
        user = int(np.argmax(wrong))
        raise ValueError(
            f"rank {rank[user]} among {candidates[user]} candidates for user {users[user]!r}, with a history of "
            f"{ranks.history[user]} events and a target of {ranks.popularity[user]}"
        )


def _check_recommended(recommended: Recommended, num_users: int) -> None:
    items, events = recommended
    if items.dtype != np.int32 or items.ndim != 2 or len(items) != num_users or not items.shape[1]:
        raise ValueError(f"array recommended of {items.dtype} {items.shape} for {num_users} users")
    if events.dtype != np.int32 or events.ndim != 1 or np.any(events < 0) or not np.any(events):
        raise ValueError(f"array item_events of {events.dtype} {events.shape}, or without events")
    if np.any((items < 0) | (items > len(events))):
        raise ValueError(f"recommended items {items.min()} to {items.max()} of {len(events)}")
