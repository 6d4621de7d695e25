"""Finds the columns of Parquet files that hold the chats and their images."""

from collections.abc import Sequence
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING

from datamodules.vision_language.files.chat_formats import CHAT_FIELDS, IMAGE_FIELDS, misspelled_image_field
from datamodules.vision_language.files.parquet_row_groups import read_schema
from engine.io.json_records import describe_names

if TYPE_CHECKING:
    from pyarrow import DataType, Schema
    from pyarrow.parquet import FileMetaData


def find_columns(paths: Sequence[Path]) -> tuple[list[str], list[str]]:
    """Return the columns of the chats and, if there are any, of the images.

    There are several columns of a kind if the first is empty in some rows; the next is used there.

    Raises:
        ValueError: a file has no column of chats, two columns of a name, a column of another type, or lacks a column
            of another file.
    """
    owners: dict[str, Path] = {}  # {column: first file that needs it}
    names: dict[Path, set[str]] = {}
    for path in paths:
        footer, schema = read_schema(path)
        # pandas writes an empty part with columns of nulls. A part without rows has nothing to read.
        if not footer.num_rows and len(paths) > 1:
            continue
        _check_names(path, schema)
        chats, images = (_columns_of_field(fields, footer, schema) for fields in (CHAT_FIELDS, IMAGE_FIELDS))
        if not chats:
            raise ValueError(
                f"{path}: expected chats in one of the columns {', '.join(CHAT_FIELDS)} and images in one of "
                f"{', '.join(IMAGE_FIELDS)}; found {_described(schema)}{_hint(schema.names)}"
            )
        _check_types(path, schema, chats, images)
        names[path] = set(schema.names)
        for column in (*chats, *images):
            owners.setdefault(column, path)
    # Compared for each distinct owner, since most files need the same columns.
    for owner, path in product(dict.fromkeys(owners.values()), names):
        missing = {column for column in owners if owners[column] == owner} - names[path]
        if missing:
            raise ValueError(f"{path}: lacks the column {', '.join(sorted(missing))} that {owner} has")
    return [field for field in CHAT_FIELDS if field in owners], [field for field in IMAGE_FIELDS if field in owners]


def unread_image_columns(path: Path) -> list[str]:
    """Return columns that probably hold images and are not read: their name is misspelled, or they hold bytes."""
    from pyarrow import types

    schema = read_schema(path)[1]
    misspelt = misspelled_image_field(dict.fromkeys(schema.names))
    kinds = {field.name: field.type.value_type if _is_list(field.type) else field.type for field in schema}
    found = [
        name
        for name, kind in kinds.items()
        if name == misspelt or _is_binary(kind) or (types.is_struct(kind) and "bytes" in {field.name for field in kind})
    ]
    return [name for name in found if name not in (*CHAT_FIELDS, *IMAGE_FIELDS)]


def _check_names(path: Path, schema: "Schema") -> None:
    twice = [field for field in (*CHAT_FIELDS, *IMAGE_FIELDS) if schema.names.count(field) > 1]
    if twice:
        raise ValueError(f"{path}: found the column {twice[0]} twice, expected it once; rename or drop one of them")


def _described(schema: "Schema") -> str:
    """Return the names of columns for messages, of which some may have no value."""
    from pyarrow import types

    return describe_names(f"{field.name}{' (only nulls)' if types.is_null(field.type) else ''}" for field in schema)


def _hint(names: Sequence[str]) -> str:
    return ". For a table of questions, set format to questions" if "question" in names else ""


def _columns_of_field(fields: Sequence[str], footer: "FileMetaData", schema: "Schema") -> list[str]:
    """Return the columns that may hold a field; columns after a column that is filled in every row are not needed."""
    from pyarrow import types

    needed = []
    for field in fields:
        if field in schema.names and not types.is_null(schema.field(field).type):
            needed.append(field)
            if _is_full(field, footer):
                break
    return needed


def _is_full(column: str, footer: "FileMetaData") -> bool:
    """Return whether the statistics guarantee a value in every row, neither null nor an empty list."""
    leaves = [leaf for leaf in range(footer.num_columns) if footer.schema.column(leaf).path.split(".")[0] == column]
    groups = [footer.row_group(group) for group in range(footer.num_row_groups)]
    statistics = ([group.column(leaf).statistics for group in groups] for leaf in leaves)
    # A list that is null or empty has a null in its leaves, so one leaf without any null suffices.
    return any(
        all(group is not None and group.has_null_count and group.null_count == 0 for group in leaf)
        for leaf in statistics
    )


def _check_types(path: Path, schema: "Schema", chats: Sequence[str], images: Sequence[str]) -> None:
    from pyarrow import types

    for chat in chats:
        turns = schema.field(chat).type
        if not (_is_text(turns) or (_is_list(turns) and types.is_struct(turns.value_type))):
            raise ValueError(f"{path}: the column {chat} must be JSON text or a list of turns, found {turns}")
    for image in images:
        kind = schema.field(image).type
        kind = kind.value_type if _is_list(kind) else kind
        is_image_struct = types.is_struct(kind) and {"bytes", "path"} & {field.name for field in kind}
        if not (_is_text(kind) or _is_binary(kind) or is_image_struct):
            raise ValueError(
                f"{path}: the column {image} must hold an image's bytes, a path or both (bytes, path), or a list of "
                f"these; found {schema.field(image).type}"
            )


def _is_text(kind: "DataType") -> bool:
    from pyarrow import types

    kind = _decoded(kind)
    return types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind)


def _is_binary(kind: "DataType") -> bool:
    from pyarrow import types

    kind = _decoded(kind)
    checks = (types.is_binary, types.is_large_binary, types.is_binary_view, types.is_fixed_size_binary)
    return any(check(kind) for check in checks)


def _is_list(kind: "DataType") -> bool:
    from pyarrow import types

    views = types.is_list_view(kind) or types.is_large_list_view(kind)
    return views or types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind)


def _decoded(kind: "DataType") -> "DataType":
    """Return the type of the values of a dictionary-encoded column, which pandas writes for categories."""
    from pyarrow import types

    return kind.value_type if types.is_dictionary(kind) else kind
