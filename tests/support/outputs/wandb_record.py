"""Reads W&B's offline record: protocol buffers in LevelDB's log format (blocks of 32 KiB)."""

import json
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

_BLOCK = 32768
_FULL, _FIRST, _MIDDLE, _LAST = 1, 2, 3, 4


class WandbRecord(NamedTuple):
    """One start of a run."""

    run_id: str
    project: str
    name: str
    config: dict[str, Any]
    history: list[dict[str, Any]]

    def series(self, metric: str) -> dict[int, float]:
        """{optimizer step: value}, steps counted as in metrics.jsonl."""
        return {row["trainer/global_step"]: row[metric] for row in self.history if metric in row}


def records_of(run_folder: Path) -> list[WandbRecord]:
    """Return the records of all starts of a run in order, without starts that were killed before the first write."""
    found = map(_read, sorted(run_folder.glob("wandb/offline-run-*/run-*.wandb")))
    return [record for record in found if record is not None]


def _read(path: Path) -> WandbRecord | None:
    from wandb.proto.wandb_internal_pb2 import Record  # type: ignore[attr-defined]  # generated when it is imported

    run: Any = None
    config: dict[str, Any] = {}
    history: list[dict[str, Any]] = []
    for content in _contents(path.read_bytes()):
        record = Record()
        record.ParseFromString(content)
        kind = record.WhichOneof("record_type")
        if kind == "run":
            run = record.run
        elif kind == "config":
            config |= {item.key: json.loads(item.value_json) for item in record.config.update}
        elif kind == "history":
            items = record.history.item
            history.append({item.key or "/".join(item.nested_key): json.loads(item.value_json) for item in items})
    return None if run is None else WandbRecord(run.run_id, run.project, run.display_name, config, history)


def _contents(file: bytes) -> Iterator[bytes]:
    offset, parts = 7, b""  # after W&B's header
    while offset + 7 <= len(file):
        if _BLOCK - offset % _BLOCK < 7:
            offset += _BLOCK - offset % _BLOCK
            continue
        _, length, kind = struct.unpack_from("<IHB", file, offset)
        part = file[offset + 7 : offset + 7 + length]
        offset += 7 + length
        parts = part if kind in (_FULL, _FIRST) else parts + part
        if kind in (_FULL, _LAST):
            yield parts
