"""Reads `config.json` and `items.json` of an exported recommender, and checks that they belong together."""

from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

from engine.io.json_records import describe_value, parse_json
from lightning_modules.recommender.checkpoint_compatibility import items_identity
from lightning_modules.recommender.export.onnx_export import FORMAT

_AGAIN = "copy the export again, or export the run again"


class ExportedItems(NamedTuple):
    """Content of items.json: the item at an index has the number index + 1."""

    ids: list[str]
    titles: list[str] | None
    popularity: list[int] | None  # training events of each item; None in exports that have none


def read_export_settings(path: Path) -> dict[str, Any]:
    """Return the content of config.json, whose settings of the encoder are not checked.

    Raises:
        OSError: the file cannot be read.
        ValueError: it is corrupt or of another format; the message names it.
    """
    settings = _read_object(path)
    if settings.get("format") != FORMAT:
        raise ValueError(f"{path}: found format {settings.get('format')!r}, expected {FORMAT}: export it again")
    for key in ("num_items", "max_length", "top_k"):
        if type(settings.get(key)) is not int or settings[key] < 1:
            _refuse(path, key, settings.get(key), "an integer of at least 1")
    if type(settings.get("remove_seen")) is not bool:
        _refuse(path, "remove_seen", settings.get("remove_seen"), "true or false")
    if not isinstance(settings.get("architecture"), dict):
        _refuse(path, "architecture", settings.get("architecture"), "the settings of the encoder")
    return settings


def read_items(path: Path, settings: dict[str, Any]) -> ExportedItems:
    """Return the content of items.json.

    Args:
        path: the file.
        settings: content of config.json. Exports of earlier versions have no checksum of the items in it.

    Raises:
        OSError: the file cannot be read.
        ValueError: it is corrupt, or of another export; the message names it.
    """
    content, number = _read_object(path), settings["num_items"]
    ids = _column(path, content, "ids", str)
    if ids is None:
        _refuse(path, "ids", ids, "a list of texts")
    if repeated := next((name for name, count in Counter(ids).items() if count > 1), None):
        raise ValueError(f"{path}: found the id {repeated!r} more than once, expected each item once: {_AGAIN}")
    if len(ids) != number:
        raise ValueError(
            f"{path}: found {len(ids)} ids, expected {number} as in config.json: the files of two exports?"
        )
    if "items" in settings and settings["items"] != items_identity(ids):
        raise ValueError(
            f"{path}: found other ids than config.json was written with: the files of two exports? {_AGAIN}"
        )
    items = ExportedItems(ids, _column(path, content, "titles", str), _column(path, content, "popularity", int))
    for key, column in (("titles", items.titles), ("popularity", items.popularity)):
        if column is not None and len(column) != number:
            _refuse(path, key, f"{len(column)} values", f"{number}, one for each id")
    return items


def _column(path: Path, content: dict[str, Any], key: str, kind: type) -> Any:
    values = content.get(key)
    if values is not None and not (isinstance(values, list) and all(type(value) is kind for value in values)):
        _refuse(path, key, values, f"a list of {'texts' if kind is str else 'integers'}")
    return values


def _read_object(path: Path) -> dict[str, Any]:
    data = path.read_bytes()
    try:
        content = parse_json(data)
    except ValueError as error:
        raise ValueError(f"{path}: not JSON ({error}); {_AGAIN}") from error
    if not isinstance(content, dict):
        _refuse(path, "the file", content, "an object")
    return content


def _refuse(path: Path, key: str, found: object, expected: str) -> NoReturn:
    shown = "nothing" if found is None else found if isinstance(found, str) else describe_value(found)
    raise ValueError(f"{path}: {key}: found {shown}, expected {expected}; {_AGAIN}")
