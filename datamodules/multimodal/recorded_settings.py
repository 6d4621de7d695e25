"""Writes the settings of generated samples as checkpoints record them, whatever classes and fields are called now.

A checkpoint within an epoch has the settings of its samples as text, and a resume compares the texts. The texts have
the names of the version that recorded them first, so that a rename in the program does not change them.
"""

from collections.abc import Mapping
from dataclasses import fields
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from _typeshed import DataclassInstance


def recorded_fields(settings: "DataclassInstance", names: Mapping[str, str]) -> dict[str, Any]:
    """Return the values of all fields by the recorded names.

    Args:
        settings: a dataclass.
        names: {name of a field: recorded name}, of the renamed fields.
    """
    return {names.get(field.name, field.name): getattr(settings, field.name) for field in fields(settings)}


def recorded_text(class_name: str, values: Mapping[str, Any]) -> str:
    """Return settings as `CLASS(FIELD=VALUE, ...)`.

    Args:
        class_name: recorded name of the class.
        values: values by their recorded names, in the recorded order.
    """
    return f"{class_name}({', '.join(f'{name}={value!r}' for name, value in values.items())})"
