"""The file of ranks that a report compares. The reference is numpy.load, with the rules of the file as plain loops."""

import io
import json
import warnings
import zipfile
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

import numpy as np

from tests.fuzz import plain_json
from tests.fuzz.mutations.byte_strings import MOST, mutate_bytes
from tests.fuzz.mutations.records import record_mutation
from tests.fuzz.reader import Input, InvalidInput, Reader

_HEADER = {"version": 1, "stage": "test", "protocol": "", "step": 26, "head_from": 40, "tail_to": 3}
_NUMBERS = ("history", "popularity", "rank", "candidates")
_NAMES = ("header", "users", "user_lengths", "targets", "target_lengths", *_NUMBERS)
_ITEMS = ("recommended", "item_events")
_STRANGE = (-1, 0, 1, 2, 2**31 - 1, -(2**31))
_TYPES = ("<i8", ">i4", "<f8", "|u1", "|b1", "<U3", "|S2", "|V4", "|O", "<m8[s]", "<c16")
_SHAPES = ("(1000000000000,)", "(-1,)", "()", "(0,)", "(3, 0)", "(3, 1)", "(True,)", "3", "(9999999999999999999999,)")


class Ranks(Reader):
    """Header, rows of (user, target, history, popularity, rank, candidates), recommended items and events of items."""

    def seeds(self) -> Sequence[Input]:
        return _seeds()

    def surround(self, folder: Path) -> None:
        for run in ("a", "b"):
            (folder / "runs" / run).mkdir(parents=True)
        for seed in self.seeds():
            (folder / seed.path.replace("/a/", "/b/")).write_bytes(seed.data)

    def restructure(self, random: Random, data: bytes) -> bytes:
        try:
            with zipfile.ZipFile(io.BytesIO(data)) as archive:
                members = [(member.filename, archive.read(member)) for member in archive.infolist()]
        except Exception:  # noqa: BLE001  (zipfile raises many kinds at what was mutated before)
            return mutate_bytes(random, data)
        if not members:
            return mutate_bytes(random, data)
        compression = zipfile.ZIP_STORED
        at, kind = random.randrange(len(members)), random.randrange(10)
        name, content = members[at]
        if kind == 0:
            del members[at]
        elif kind == 1:
            members.append((name, random.choice((content, members[0][1]))))
        elif kind == 2:
            members[at] = (random.choice((*_NAMES, *_ITEMS, "a", "../a", "")) + ".npy", content)
        elif kind == 3:
            compression = random.choice((zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA))
        elif kind == 4:
            members[at] = (name, content + bytes(2_000_000))
            compression = zipfile.ZIP_DEFLATED
        elif kind == 5:
            members[at] = (name, mutate_bytes(random, content))
        elif kind == 6:
            members[at] = (
                name,
                _written(random.choice(_SHAPES)),
            )
        else:
            members[at] = (name, _revalued(random, name, content))
        return _zip(members, compression)[:MOST]

    def read(self, path: Path) -> Any:
        from commands.report.comparison.paired_comparison import compare_runs
        from lightning_modules.recommender.item_ranks.rank_file import read_ranks

        compare_runs([path.parent, path.parents[1] / "b"])
        restored = read_ranks(path)
        numbers = (restored.history, restored.popularity, restored.rank, restored.candidates)
        rows = zip(restored.users, restored.targets, *(column.tolist() for column in numbers), strict=True)
        recommended = restored.recommended and tuple(array.tolist() for array in restored.recommended)
        return restored.header._asdict(), list(rows), recommended

    def reference(self, path: Path) -> Any:
        try:
            with zipfile.ZipFile(path) as archive:
                members = archive.infolist()
            if sum(member.file_size for member in members) > 100 * MOST:
                raise InvalidInput("it is a zip bomb")
            if len({member.filename for member in members}) < len(members):
                raise InvalidInput("a member occurs twice")
            with np.load(path, allow_pickle=False) as arrays:
                found = {name: arrays[name] for name in _NAMES}
                header = plain_json.parse(str(found["header"]))
                found |= {name: arrays[name] for name in (_ITEMS if header["version"] == 2 else ())}
            users, targets = (_texts(found[name], found[lengths]) for name, lengths in (_NAMES[1:3], _NAMES[3:5]))
        except InvalidInput:
            raise
        except Exception as error:
            raise InvalidInput(f"numpy.load finds {type(error).__name__}: {error}"[:200]) from error
        version = header.pop("version")
        if version not in (1, 2) or header.keys() != _HEADER.keys() - {"version"}:
            raise InvalidInput("it has another header")
        columns = [found[name].tolist() for name in _NUMBERS]
        if not users or users != sorted(set(users)) or any(len(column) != len(users) for column in (targets, *columns)):
            raise InvalidInput("its columns do not fit")
        rows = list(zip(users, targets, *columns, strict=True))
        for _, _, history, popularity, rank, candidates in rows:
            if not all(type(number) is int for number in (history, popularity, rank, candidates)):
                raise InvalidInput("a number is no integer")
            if history < 0 or popularity < 0 or not 1 <= rank <= candidates:
                raise InvalidInput("a rank is none of its candidates'")
        return header, rows, _recommended(found, len(users)) if version == 2 else None

    def names_location(self, message: str, data: bytes) -> bool:
        return True  # the message names the array, or what is wrong with the archive


READERS = {"ranks": Ranks}


@cache
def _seeds() -> list[Input]:
    ordinary = _file(["a", "b c", "ü"], ["x", "y", "x"], [[3, 0, 9], [7, 1, 0], [1, 4, 5], [9, 9, 5]])
    single = _file(["1"], ["2"], [[0], [0], [1], [1]], {"stage": "val", "protocol": "request_time"})
    more = {"recommended": [[2, 1], [3, 0], [1, 3]], "item_events": [4, 0, 2]}
    columns = ["x", "y", "x"], [[3, 0, 9], [7, 1, 0], [1, 4, 5], [9, 9, 5]]
    with_items = _file(["a", "b c", "ü"], *columns, {"version": 2}, more)
    val = "runs/a/ranks-val.npz"
    return [Input("runs/a/ranks-test.npz", ordinary), Input(val, single), Input("runs/a/ranks-test.npz", with_items)]


def _recommended(found: dict[str, Any], users: int) -> tuple[list[list[int]], list[int]]:
    items, events = (found[name].tolist() for name in _ITEMS)
    if not isinstance(events, list) or not all(type(number) is int and number >= 0 for number in events):
        raise InvalidInput("the events of items are no counts")
    if not any(events) or not isinstance(items, list) or len(items) != users:
        raise InvalidInput("there are no events, or the recommended items do not fit")
    if not all(isinstance(own, list) and own for own in items):
        raise InvalidInput("a user has no list of items")
    if not all(type(item) is int and 0 <= item <= len(events) for own in items for item in own):
        raise InvalidInput("a recommended item is none of the items")
    return items, events


def _file(
    users: list[str],
    targets: list[str],
    numbers: list[list[int]],
    header: Any = None,
    more: dict[str, list[Any]] | None = None,
) -> bytes:
    arrays: dict[str, Any] = {"header": np.array(json.dumps(_HEADER | (header or {})))}
    for name, texts in (("user", users), ("target", targets)):
        encoded = [text.encode() for text in texts]
        arrays[f"{name}s"] = np.frombuffer(b"".join(encoded), np.uint8)
        arrays[f"{name}_lengths"] = np.array([len(text) for text in encoded], np.int32)
    arrays |= {name: np.array(column, np.int32) for name, column in zip(_NUMBERS, numbers, strict=True)}
    arrays |= {name: np.array(content, np.int32) for name, content in (more or {}).items()}
    return _zip([(f"{name}.npy", _saved(array)) for name, array in arrays.items()], zipfile.ZIP_STORED)


def _zip(members: list[tuple[str, bytes]], compression: int) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", compression) as archive, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of names that occur twice
        for name, content in members:
            archive.writestr(zipfile.ZipInfo(name), content, compression)
    return file.getvalue()


def _saved(array: Any) -> bytes:
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


def _written(shape: str) -> bytes:
    text = f"{{'descr': '<i4', 'fortran_order': False, 'shape': {shape}, }}".encode()
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text + bytes(12)


def _revalued(random: Random, name: str, content: bytes) -> bytes:
    """Return an array with another value, type or shape."""
    try:
        array = np.load(io.BytesIO(content), allow_pickle=False)
    except Exception:  # noqa: BLE001  (of what was mutated before)
        return mutate_bytes(random, content)
    if name == "header.npy":
        text = record_mutation(tuple(_HEADER))(random, str(array).encode()).decode("utf-8", "replace")
        return _saved(np.array(text))
    kind = random.randrange(4)
    if kind == 0 and array.size and array.dtype.kind in "iu":
        flat = array.astype(np.int64).ravel()
        flat[random.randrange(flat.size)] = random.choice(_STRANGE)
        return _saved(flat.astype(array.dtype))
    if kind == 1:
        try:
            return _saved(array.astype(random.choice(_TYPES)))
        except (ValueError, TypeError):
            return mutate_bytes(random, content)
    if kind == 2:
        return _saved(random.choice((array[:0], array[:1], array[::-1], array.reshape(-1, 1))) if array.ndim else array)
    return _saved(np.concatenate([array, array]) if array.ndim else array)


def _texts(joined: Any, lengths: Any) -> list[str]:
    content, ends = joined.tobytes(), np.cumsum(lengths).tolist()
    if lengths.min(initial=0) < 0 or (ends[-1] if ends else 0) != len(content):
        raise InvalidInput("the lengths do not fit")
    return [content[begin:end].decode("utf-8", "surrogatepass") for begin, end in zip([0, *ends], ends, strict=False)]
