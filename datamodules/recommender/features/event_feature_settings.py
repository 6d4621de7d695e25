"""Defines the options of the event features."""

from dataclasses import dataclass, field

EVENT_OPTION = "data.init_args.event_features"

_TAKEN = ("items", "times", "request_time", "user")
"""Keys of a line of `predict_histories`, where features have keys of their own."""


@dataclass(frozen=True)
class EventFeatures:
    """Columns of the interactions that are features of an event, such as a rating, a device or the price paid.

    Args:
        categories: columns of categories, a single category in a cell.
        numbers: columns of numbers.
    """

    categories: list[str] = field(default_factory=list)
    numbers: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Raise ValueError if no column is named, a column is named twice, or its name has another meaning."""
        if not self.columns:
            raise ValueError(f"{EVENT_OPTION}: found no column; name some with categories or numbers")
        twice = sorted({name for name in self.columns if self.columns.count(name) > 1})
        if twice:
            raise ValueError(f"{EVENT_OPTION}: found the column {twice[0]!r} twice, expected each column once")
        if taken := next((name for name in self.columns if name in _TAKEN), None):
            raise ValueError(
                f"{EVENT_OPTION}: found the column {taken!r}, which is a key of predict_histories with another "
                f"meaning; expected other names than {', '.join(_TAKEN)}: rename the column"
            )

    @property
    def columns(self) -> list[str]:
        """Names of all columns, categories first."""
        return [*self.categories, *self.numbers]
