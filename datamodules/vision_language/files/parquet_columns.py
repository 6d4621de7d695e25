"""Which columns of Parquet files hold the chats and their images."""

from collections.abc import Sequence
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

from datamodules.vision_language.files.forms import CHAT_FIELDS, IMAGE_FIELDS
from datamodules.vision_language.files.row_groups import read_footer

if TYPE_CHECKING:
    from pyarrow import Schema
    from pyarrow.parquet import FileMetaData


def columns_of(paths: Sequence[Path]) -> tuple[list[str], list[str]]:
    """The columns of the files' chats and, if they have any, of their images.

    Of each kind there are several where a column has rows without: there the next one counts.

    Raises:
        ValueError: a file has no column of chats, one of another type, or lacks one that another file needs.
    """
    owners: dict[str, Path] = {}  # of each column the first file that needs it
    names: dict[Path, set[str]] = {}
    for path in paths:
        footer = read_footer(path)
        schema = footer.schema.to_arrow_schema()
        chats, images = (_needed(fields, footer, schema) for fields in (CHAT_FIELDS, IMAGE_FIELDS))
        if not chats:
            raise ValueError(
                f"{path}: expected chats in one of the columns {', '.join(CHAT_FIELDS)} and images in one of "
                f"{', '.join(IMAGE_FIELDS)}; found {', '.join(schema.names)}"
            )
        _check_types(path, schema, chats, images)
        names[path] = set(schema.names)
        for column in (*chats, *images):
            owners.setdefault(column, path)
    for owner, path in product(dict.fromkeys(owners.values()), paths):
        missing = {column for column in owners if owners[column] == owner} - names[path]
        if missing:
            raise ValueError(f"{path}: lacks the column {', '.join(sorted(missing))} that {owner} has")
    return [field for field in CHAT_FIELDS if field in owners], [field for field in IMAGE_FIELDS if field in owners]


def _needed(fields: Sequence[str], footer: "FileMetaData", schema: "Schema") -> list[str]:
    """The columns that a row may have its field in: none after one that has something in every row."""
    from pyarrow import types

    needed = []
    for field in fields:
        if field in schema.names and not types.is_null(schema.field(field).type):
            needed.append(field)
            if _is_full(field, footer):
                break
    return needed


def _is_full(column: str, footer: "FileMetaData") -> bool:
    """Whether it is said to have something in every row: neither null nor an empty list."""
    leaves = [leaf for leaf in range(footer.num_columns) if footer.schema.column(leaf).path.split(".")[0] == column]
    groups = [footer.row_group(group) for group in range(footer.num_row_groups)]
    said = ([group.column(leaf).statistics for group in groups] for leaf in leaves)
    return any(all(one is not None and one.has_null_count and one.null_count == 0 for one in leaf) for leaf in said)


def _check_types(path: Path, schema: "Schema", chats: Sequence[str], images: Sequence[str]) -> None:
    from pyarrow import types

    for chat in chats:
        turns = schema.field(chat).type
        if not (_is_text(turns) or (_is_list(turns) and types.is_struct(turns.value_type))):
            raise ValueError(f"{path}: the column {chat} must be JSON text or a list of turns, found {turns}")
    for image in images:
        kind = schema.field(image).type
        kind = kind.value_type if _is_list(kind) else kind
        named = types.is_struct(kind) and {"bytes", "path"} & {field.name for field in kind}
        if not (_is_text(kind) or types.is_binary(kind) or types.is_large_binary(kind) or named):
            raise ValueError(
                f"{path}: the column {image} must hold an image's bytes, a path or both (bytes, path), or a list of "
                f"such; found {schema.field(image).type}"
            )


def _is_text(kind: Any) -> bool:
    from pyarrow import types

    return types.is_string(kind) or types.is_large_string(kind)


def _is_list(kind: Any) -> bool:
    from pyarrow import types

    return types.is_list(kind) or types.is_large_list(kind)
