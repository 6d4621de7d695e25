"""Lists of item ids, one on each line. The reference is str.splitlines' idea of a line, with LF alone."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.fuzz.reader import Input, InvalidInput, Reader, Unknown, text_of

_IDS = ["1193", "é", "a b", "sku-7"]


class ItemLists(Reader):
    """(numbers of known items, unknown ids)."""

    def seeds(self) -> Sequence[Input]:
        return [
            Input("allow.txt", "\n".join(_IDS).encode()),
            Input("deny.txt", ("\ufeff" + "\r\n".join([*_IDS, "", "none", "1193"]) + "\r\n").encode()),
        ]

    def read(self, path: Path) -> Any:
        from datamodules.recommender.reading.item_lists import read_item_list

        items_read = read_item_list(path, {item: number for number, item in enumerate(_IDS, 1)})
        return items_read.items.tolist(), items_read.unknown

    def reference(self, path: Path) -> Any:
        text = text_of(path)
        if "\x00" in text or "\r" in text.replace("\r\n", ""):
            raise Unknown("a binary file, or lines that end with CR alone")
        ids = [line.removesuffix("\r") for line in text.split("\n")]
        ids = [item for item in dict.fromkeys(ids) if item.strip()]
        if not ids:
            raise InvalidInput("it has no id")
        return sorted(_IDS.index(item) + 1 for item in ids if item in _IDS), [item for item in ids if item not in _IDS]


READERS = {"item_lists": ItemLists}
