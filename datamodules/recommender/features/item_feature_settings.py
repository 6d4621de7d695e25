"""Defines the options of the item features."""

from dataclasses import dataclass, field


@dataclass(frozen=True)
class ItemFeatures:
    """A table with a row for each item, and its columns that are features.

    Args:
        path: CSV, TSV, RecBole `.item` or Parquet file with a header; null is the generated table of the marketplace.
        item_column: column of the item id; null to detect it by its usual names (`item_id`, `movieId`, ...).
        categories: columns of categories; a cell may have several.
        separator: text between the categories of a cell; a Parquet column may be a list instead.
        numbers: columns of numbers. An empty cell is a missing number.
        vector: column of a vector of floats, such as a text embedding: a list or array in a Parquet file, of equal
            length in all rows.
        cold_items: also recommend items of the table that occur in no interaction.
    """

    path: str | None = None
    item_column: str | None = None
    categories: list[str] = field(default_factory=list)
    separator: str = "|"
    numbers: list[str] = field(default_factory=list)
    vector: str | None = None
    cold_items: bool = True

    def __post_init__(self) -> None:
        """Raise ValueError if no column is named, or a column is named twice."""
        key, columns = "data.init_args.item_features", self.columns
        if not columns:
            raise ValueError(f"{key}: found no column; name some with categories, numbers or vector")
        twice = sorted({name for name in columns if columns.count(name) > 1})
        if twice:
            raise ValueError(f"{key}: found the column {twice[0]!r} twice, expected each column once")
        if not self.separator:
            raise ValueError(f"{key}.separator: found an empty text, expected the text between two categories")

    @property
    def columns(self) -> list[str]:
        """Names of all columns that are read, besides the item."""
        return [*self.categories, *self.numbers, *([self.vector] if self.vector else [])]
