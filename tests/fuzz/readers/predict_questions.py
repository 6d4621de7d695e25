"""Questions for `predict` about the user's timelines and images: JSON lines that name files.

The reference is plain_json. Readers of their own read what the other families predict for: histories, questions, pdf,
pages, images.
"""

import json
import math
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any

from tests.fuzz import plain_json
from tests.fuzz.mutations.records import line_record_mutation
from tests.fuzz.reader import Input, InvalidInput, Reader, Unknown
from tests.fuzz.readers.images import write_images
from tests.fuzz.readers.timelines import Timelines

_CAPACITIES = {
    "cpu_cores": (8, 16, 32, 48, 64, 96, 128),
    "cpu_mem_gb": (32, 64, 128, 192, 256, 384, 512),
    "gpu_sm": (100,),
    "gpu_mem_gb": (16, 24, 32, 40, 48, 64, 80),
}
_MOST = 1e9
_CHATS = {"messages", "conversations", "texts"}


class PredictTimelines(Reader):
    """Rows of (question, {channel: shares of the capacity}), where a share is None if nothing was measured."""

    def seeds(self) -> Sequence[Input]:
        rows: list[dict[str, Any]] = [
            {"question": "Trend of é?", "values": {"gpu_sm": [80, 75.5, None, 60], "cpu_cores": [3, 60, 2, 1]}},
            {"question": "this: <series> Peak?", "csv": "machine.csv", "capacities": {"gpu_sm": 50}},
            {"question": "Idle?", "values": {"cpu_mem_gb": [0, 10.5]}, "capacities": {"cpu_mem_gb": 400}},
        ]
        return [Input("questions.jsonl", "\n".join(json.dumps(row, ensure_ascii=False) for row in rows).encode())]

    def surround(self, folder: Path) -> None:
        (folder / "machine.csv").write_text("time_ms,gpu_sm\n0,50\n100,\n200,25\n")

    def restructure(self, random: Random, data: bytes) -> bytes:
        return line_record_mutation(("question", "csv", "values", "capacities", *_CAPACITIES))(random, data)

    def read(self, path: Path) -> Any:
        from datamodules.temporal.batch import SeriesLayout
        from datamodules.temporal.timelines.recorded.predict_questions import TimelinePredictDataset

        found = TimelinePredictDataset(path, SeriesLayout(4, "patch", 4), "question_first")
        rows = []
        for index, row in enumerate(found.rows):
            item = found.item(0, index)
            item.messages[0]["content"].encode()
            found.collate([row.curves])
            shares = {
                key: [float(value) if known else None for value, known in zip(*column, strict=True)]
                for key, *column in zip(_CAPACITIES, row.curves[0].T, row.curves[1].T, strict=True)
            }
            text = row.question.replace("<series>", "").split()
            rows.append((text, {key: values for key, values in shares.items() if any(v is not None for v in values)}))
        return rows

    def reference(self, path: Path) -> Any:
        lines = plain_json.lines(b"\n".join(path.read_bytes().removeprefix(b"\xef\xbb\xbf").splitlines()))
        return [self._row(record, path.parent) for _, record in lines]

    def agrees(self, actual: Any, expected: Any) -> bool:
        return len(actual) == len(expected) and all(
            own[0] == other[0]
            and own[1].keys() == other[1].keys()
            and all(map(_close, own[1].values(), other[1].values()))
            for own, other in zip(
                actual,
                ((text, dict(sorted(rows.items(), key=_capacity_index))) for text, rows in expected),
                strict=True,
            )
        )

    def _row(self, record: Any, folder: Path) -> tuple[list[str], dict[str, list[float | None]]]:
        question = _question(record, {"question", "csv", "values", "capacities"})
        if question.count("<series>") > 1 or ("csv" in record) == ("values" in record):
            raise InvalidInput("a line has no series or several")
        capacities = record.get("capacities")
        capacities = {} if capacities is None else capacities
        if not isinstance(capacities, dict) or not set(capacities) <= set(_CAPACITIES):
            raise InvalidInput("a line has other capacities")
        if not all(_is_number(size) and 0 < size <= _MOST for size in capacities.values()):
            raise InvalidInput("a capacity is no number above 0")
        values = record.get("values")
        if "csv" in record:
            if not isinstance(record["csv"], str) or not record["csv"] or "\0" in record["csv"]:
                raise InvalidInput("csv is no path")
            path = folder / record["csv"]
            if not path.is_file():
                raise InvalidInput("the file does not exist")
            length, steps = Timelines().reference(path)
            found = {key for step in steps.values() for key in step}
            values = {
                key: [steps.get(step, {}).get(key) for step in range(length)] for key in _CAPACITIES if key in found
            }
        if not isinstance(values, dict) or not values or not set(values) <= set(_CAPACITIES):
            raise InvalidInput("values is no {channel: numbers}")
        if not all(isinstance(column, list) for column in values.values()) or len({*map(len, values.values())}) != 1:
            raise InvalidInput("values have different lengths")
        if not next(iter(values.values())) or not all(
            value is None or _is_number(value) and 0 <= value <= _MOST for column in values.values() for value in column
        ):
            raise InvalidInput("a value is no number from 0 on")
        return question.replace("<series>", "").split(), _shares(values, capacities)


class PredictImages(Reader):
    """Rows of (question, images)."""

    def seeds(self) -> Sequence[Input]:
        rows: list[dict[str, Any]] = [
            {"question": "What is é?", "image": "a.png", "id": 7},
            {"question": "First <image>\nthen <image>", "images": ["a.png", "deep/b.jpg"]},
            {"question": "And without?", "id": "x"},
            {"question": ["What is <image>?", "And <image>?"], "images": ["a.png", "deep/b.jpg"]},
        ]
        return [Input("questions.jsonl", "\n".join(json.dumps(row, ensure_ascii=False) for row in rows).encode())]

    def surround(self, folder: Path) -> None:
        write_images(folder)

    def restructure(self, random: Random, data: bytes) -> bytes:
        return line_record_mutation(("question", "image", "images", "id"))(random, data)

    def read(self, path: Path) -> Any:
        from datamodules.multimodal.batch import ImageLayout
        from datamodules.vision_language.chat_dataset import ImageProcessor
        from datamodules.vision_language.predict_questions import PredictDataset

        found = PredictDataset(path, ImageProcessor(ImageLayout(16, 4), 10_000))
        rows = []
        for index in range(len(found)):
            counts = found.item(0, index).counts
            images = [(picture.mode, picture.size) for picture in found.decode_images(index)]
            assert len(counts) == len(images), (counts, images)
            text = " ".join(message["content"] for message in found.messages(index))
            rows.append((text.replace("<image>", " ").split(), images))
        return rows

    def reference(self, path: Path) -> Any:
        lines = plain_json.lines(b"\n".join(path.read_bytes().removeprefix(b"\xef\xbb\xbf").splitlines()))
        return [self._row(record, path.parent) for _, record in lines]

    def _row(self, record: Any, folder: Path) -> tuple[list[str], list[tuple[str, tuple[int, int]]]]:
        keys = {"question", *_CHATS, "image", "images", "id"}
        if isinstance(record, dict) and set(record) <= keys and "question" not in record and set(_CHATS) & set(record):
            raise Unknown("a chat, which the reader of chats reads")
        if not isinstance(record, dict):
            raise InvalidInput("a line is no object")
        questions = record.get("question")
        questions = questions if isinstance(questions, list) and questions else [questions]
        texts = [_question({**record, "question": text}, keys - _CHATS) for text in questions]
        image, images = record.get("image"), record.get("images")  # null is no image
        if image is not None and images is not None:
            raise InvalidInput("a line has image and images")
        images = ([] if image is None else [image]) if images is None else images
        if not isinstance(images, list) or not all(isinstance(image, str) and image for image in images):
            raise InvalidInput("an image is no path")
        markers = [text.count("<image>") for text in texts]
        if sum(markers) not in (0, len(images)) or isinstance(record.get("id"), list | dict):
            raise InvalidInput("the markers are not those of the images, or the id is no text and no number")
        images = images[: markers[0]] if sum(markers) else images  # the others are read with their questions
        known = {folder / "a.png", folder / "deep/b.jpg"}
        if any("\0" in image or not (folder / image).is_file() for image in images):
            raise InvalidInput("an image does not exist")
        if any((folder / image).resolve() not in known for image in images):
            raise Unknown("another image of this machine")
        return " ".join(texts).replace("<image>", " ").split(), [("RGB", (11, 9))] * len(images)


READERS = {"predict_timelines": PredictTimelines, "predict_images": PredictImages}


def _question(record: Any, keys: set[str]) -> str:
    if not isinstance(record, dict) or not set(record) <= keys:
        raise InvalidInput("a line is no object, or has other keys")
    question = record.get("question")
    if not isinstance(question, str) or not question.strip():
        raise InvalidInput("a line has no question")
    try:
        question.encode()
    except UnicodeEncodeError as error:
        raise InvalidInput("a question has half of a character") from error
    return question


def _is_number(value: Any) -> bool:
    return type(value) in (int, float) and math.isfinite(value)


def _shares(values: dict[str, list[float | None]], capacities: dict[str, float]) -> dict[str, list[float | None]]:
    found = {}
    for key, column in values.items():
        most = max((value for value in column if value is not None), default=0)
        size = capacities.get(key) or next((size for size in _CAPACITIES[key] if size >= most), most)
        if most > size:
            raise InvalidInput("a value is above the capacity")
        if any(value is not None for value in column):
            found[key] = [None if value is None else value / size for value in column]
    return found


def _capacity_index(pair: tuple[str, Any]) -> int:
    return list(_CAPACITIES).index(pair[0])


def _close(actual: list[float | None], expected: list[float | None]) -> bool:
    return len(actual) == len(expected) and all(
        own is other if own is None or other is None else math.isclose(own, other, rel_tol=1e-5, abs_tol=1e-9)
        for own, other in zip(actual, expected, strict=True)
    )
