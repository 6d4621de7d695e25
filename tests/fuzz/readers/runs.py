"""Mutates a file of a run folder, and reads the folder for the report, for a resume and for an export.

Lines of metrics.jsonl that are no record are counted, so the reference counts them, too. The other files of a run have
no reference: the report shows what they hold, and must neither fail nor take the folder for another run.
"""

import json
import math
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from random import Random
from typing import Any, ClassVar

import yaml

from tests.fuzz import plain_json
from tests.fuzz.mutations.records import line_record_mutation, record_mutation
from tests.fuzz.mutations.tables import mutate_lines
from tests.fuzz.reader import Input, InvalidInput, Reader, Unknown

_KEYS = (
    "step",
    "epoch",
    "time",
    "train/loss",
    "val/ndcg",
    "test/ndcg",
    "event",
    "fields",
    "level",
    "message",
    "rank",
    "process",
)
_TIME = "2026-01-02T03:04:{:02}Z"
_METRICS = (
    "".join(
        json.dumps({"step": step, "epoch": 0, "time": _TIME.format(step), "train/loss": 1 / step}) + "\n"
        for step in range(1, 9)
    )
    + json.dumps({"step": 8, "epoch": 0, "time": _TIME.format(9), "val/ndcg": 0.5, "test/ndcg": None})
    + "\n"
)
_LOG = "".join(
    json.dumps({"time": _TIME.format(step), "level": level, "step": step, "message": "a", "fields": fields}) + "\n"
    for step, level, fields in (
        (0, "info", {"event": "run_started"}),
        (3, "warning", {}),
        (5, "info", {"event": "checkpoint_saved", "seconds": 0.1}),
        (8, "info", {"event": "run_ended"}),
    )
)
_CONFIG = (
    "seed_everything: 1\nbest_checkpoint:\n  monitor: val/ndcg\n  mode: max\nmodel:\n  init_args:\n    sizes: [1, 2]\n"
)
_FILES = {
    "metrics.jsonl": _METRICS,
    "log.jsonl": _LOG,
    "log-1.jsonl": _LOG,
    "config.yaml": _CONFIG,
    "config-2.yaml": _CONFIG.replace("1", "2"),
    "environment.json": '{"python": "3.11", "packages": {"torch": "2.6"}}',
    ".beginning.json": '{"saved_at": [1700000000.0]}',
    "examples/val-8.json": '{"examples": [{"name": "a", "question": "?", "expected": "b", "answer": "c"}]}',
}


_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # they differ in what a byte-order mark is


class Report(Reader):
    """The data of the report's page."""

    slow_tier: ClassVar[int] = 100

    names: ClassVar[tuple[str, ...]] = tuple(name for name in _FILES if not name.startswith("."))

    def seeds(self) -> Sequence[Input]:
        return [Input(f"runs/a/{name}", _FILES[name].encode()) for name in self.names]

    def surround(self, folder: Path) -> None:
        (folder / "runs" / "a").mkdir(parents=True)
        for name, text in _FILES.items():
            (folder / "runs" / "a" / name).parent.mkdir(exist_ok=True)
            (folder / "runs" / "a" / name).write_text(text, encoding="utf-8")

    def mutate(self, random: Random, seed: Input) -> Input:
        if random.random() < 0.5:
            kind = mutate_lines if seed.path.endswith(".yaml") else line_record_mutation(_KEYS)
            if seed.path.endswith(".json"):
                kind = record_mutation(_KEYS)
            return seed._replace(data=kind(random, seed.data))
        return super().mutate(random, seed)

    def read(self, path: Path) -> Any:
        from commands.report.metric_series import read_metrics
        from commands.report.page import write_page

        run = path.parent.parent if path.parent.name == "examples" else path.parent
        write_page([run], run / "report.html")
        history = read_metrics(run / "metrics.jsonl", None, "max", 1000)
        losses = history.series["train/loss"].points() if "train/loss" in history.series else []
        return history.unreadable, [point.mean for point in losses if point.mean is not None]

    def reference(self, path: Path) -> Any:
        if path.name != "metrics.jsonl":
            raise Unknown("the report shows what the file holds")
        unreadable, losses, last = 0, [], -math.inf
        for line in path.read_bytes().decode("utf-8", "replace").replace("\r", "\n").split("\n"):
            if not line.strip():
                continue
            try:
                record = plain_json.parse(line)
                step = record["step"]
                datetime.fromisoformat(record["time"].replace("Z", "+00:00"))
                assert type(step) is int
                assert type(record.get("epoch") or 0) is int
                assert record == dict(record)
                loss = record.get("train/loss")
                _refuse_lenient(line)
            except (InvalidInput, LookupError, TypeError, ValueError, AttributeError, AssertionError):
                unreadable += 1
                continue
            if record.get("altered") or type(loss) not in (int, float) or not math.isfinite(loss) or step <= last:
                raise Unknown(
                    "lines of altered evaluations, of other types or of repeated steps have rules of their own"
                )
            losses.append(loss)
            last = step
        return unreadable, losses

    def agrees(self, actual: Any, expected: Any) -> bool:
        return bool(actual[0] == expected[0] and len(actual[1]) == len(expected[1]))


class Resume(Reader):
    """The checkpoint, the config and the beginning that a resumed run begins with."""

    slow_tier: ClassVar[int] = 100

    def seeds(self) -> Sequence[Input]:
        return [Input("runs/a/.beginning.json", _FILES[".beginning.json"].encode())]

    def surround(self, folder: Path) -> None:
        from tests.fuzz.readers.checkpoints import saved

        Report().surround(folder)
        (folder / "runs" / "a" / "checkpoints").mkdir()
        (folder / "runs" / "a" / "checkpoints" / "last.ckpt").write_bytes(saved())

    def restructure(self, random: Random, data: bytes) -> bytes:
        return record_mutation(("saved_at",))(random, data)

    def read(self, path: Path) -> Any:
        from commands.runs.checkpoint_selection import newest_checkpoint_since_start, resolve_checkpoint

        resolve_checkpoint("last", path.parent)
        return newest_checkpoint_since_start(path.parent) is not None

    def reference(self, path: Path) -> Any:
        begun = plain_json.parse(path.read_bytes().removeprefix(b"\xef\xbb\xbf"))
        if not isinstance(begun, dict) or not isinstance(begun.get("saved_at"), list):
            raise InvalidInput("it is no beginning")
        if not all(type(time) in (int, float) for time in begun["saved_at"]):
            raise InvalidInput("a time is no number")
        return 1_700_000_000.0 not in begun["saved_at"]

    def names_location(self, message: str, data: bytes) -> bool:
        return True  # the file is one short line


class Export(Report):
    """Metrics, config and environment of the run whose checkpoint is exported, and the model card of them."""

    names: ClassVar[tuple[str, ...]] = ("metrics.jsonl", "config-2.yaml", "environment.json")

    def mutate(self, random: Random, seed: Input) -> Input:
        if seed.path.endswith("metrics.jsonl") and random.random() < 0.7:
            keys = (*_KEYS, "altered", "test/loss", "val/loss")
            return seed._replace(data=line_record_mutation(keys)(random, seed.data))
        return super().mutate(random, seed)

    def seeds(self) -> Sequence[Input]:
        evaluated = (
            '{"step": 8, "altered": "", "val/ndcg": 0.5, "val/loss": 1}\n{"step": 8, "altered": "a", "test/x": 2}\n'
        )
        lines = (_METRICS + evaluated + evaluated.replace("8", "4")).encode()
        return [seed._replace(data=lines) if "metrics" in seed.path else seed for seed in super().seeds()]

    def read(self, path: Path) -> Any:
        from commands.export.model_card import write_card
        from commands.runs.provenance import training_of
        from engine.export.artifacts import DatasetCard, ExportedModel

        found = training_of(path.parent / "checkpoints" / "best.ckpt", {"global_step": 8, "epoch": 1})
        model = ExportedModel("a", "b.", {"model.onnx": "c"}, "d", "onnx")
        write_card(path.parent, "e", model, DatasetCard("f", "g.", "h"), found)
        return {"metrics.jsonl": found.metrics, "config-2.yaml": found.config, "environment.json": found.environment}[
            path.name
        ]

    def reference(self, path: Path) -> Any:
        data = path.read_bytes()
        if path.suffix == ".yaml":
            try:
                found = yaml.load(data.decode(), _LOADER)
            except (yaml.YAMLError, ValueError, RecursionError) as error:
                raise InvalidInput(f"PyYAML finds {str(error)[:150]}") from error
            if not isinstance(found, dict | None):
                raise InvalidInput("it is no mapping")
            return found or {}
        if path.suffix == ".json":
            found = plain_json.parse(data.removeprefix(b"\xef\xbb\xbf"))
            if not isinstance(found, dict):
                raise InvalidInput("it is no object")
            return found
        stages: dict[str, dict[str, float]] = {"val": {}, "test": {}}
        for line in data.split(b"\n"):
            stage = next((stage for stage in stages if f'"{stage}/'.encode() in line), None)
            if stage is None:
                continue
            try:
                record = plain_json.parse(line.removeprefix(b"\xef\xbb\xbf"))
            except InvalidInput:
                continue
            _refuse_lenient(line.decode())
            if isinstance(record, dict) and record.get("step") == 8 and record.get("altered") == "":
                values = {name: value for name, value in record.items() if name.startswith(f"{stage}/")}
                stages[stage] = {name: value for name, value in values.items() if type(value) in (int, float)}
        return stages["val"] | stages["test"]

    def agrees(self, actual: Any, expected: Any) -> bool:
        return bool(actual == expected)


READERS = {"report": Report, "resume": Resume, "export": Export}


def _refuse_lenient(line: str) -> None:
    if any(mark in line for mark in ("NaN", "Infinity", "e999", "[[[", "9" * 300)):
        raise Unknown("a line that strict JSON does not allow is no record")
    record = json.loads(line.removeprefix("\ufeff"), object_pairs_hook=_unique)
    try:
        json.dumps(record, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        raise Unknown("strict JSON has no half of a pair of surrogates") from None


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len(dict(pairs)) < len(pairs):
        raise Unknown("strict JSON has each key once")
    return dict(pairs)
