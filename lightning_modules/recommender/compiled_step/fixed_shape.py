"""Pads micro-batches of a recommender to one shape, because a compiled graph has fixed shapes."""

from collections.abc import Sequence
from functools import partial

from torch import Tensor

from datamodules.recommender.batch import History, TrainBatch


def fixed_shape(parts: Sequence[TrainBatch], rows: int, length: int) -> TrainBatch:
    """Join the parts of a micro-batch into one of `rows` rows of `length` events; further rows are padding.

    Raises:
        ValueError: the parts have more rows.
    """
    samples = sum(len(part.users) for part in parts)
    if samples > rows:
        raise ValueError(f"found a micro-batch of {samples} rows, expected at most {rows}")
    histories, negatives = [part.history for part in parts], [part.negatives for part in parts]
    # Negatives of the whole row, [rows, 1, n], or of each event, [rows, length, n].
    shared = all(column.shape[1] == 1 for column in negatives)
    join_rows, join_events = partial(_join_columns, (rows,)), partial(_join_columns, (rows, length))
    history = History(
        items=join_events([history.items for history in histories]),
        times=join_events([history.times for history in histories]),
        lengths=join_rows([history.lengths for history in histories]),
        time_scale=join_rows([history.time_scale for history in histories], padding=1),  # a divisor
        request_time=_join_if_any((rows,), [history.request_time for history in histories]),
        event_codes=_join_if_any((rows, length), [history.event_codes for history in histories]),
        event_numbers=_join_if_any((rows, length), [history.event_numbers for history in histories]),
    )
    return TrainBatch(
        history,
        join_events([part.targets for part in parts]),
        _join_columns((rows, 1), negatives) if shared else join_events(negatives),
        join_rows([part.users for part in parts], padding=-1),
    )


def _join_if_any(sizes: Sequence[int], columns: Sequence[Tensor | None]) -> Tensor | None:
    """Return `_join_columns` of columns that all parts have, or none."""
    present = [column for column in columns if column is not None]
    return _join_columns(sizes, present) if present else None


def _join_columns(sizes: Sequence[int], columns: Sequence[Tensor], padding: int = 0) -> Tensor:
    """Return [*sizes, ...] with the rows of the columns [b, l, ...] and padding."""
    first = columns[0]
    padded = first.new_full((*sizes, *first.shape[len(sizes) :]), padding)
    start = 0
    for column in columns:
        part = (slice(start, start + len(column)), *map(slice, column.shape[1 : len(sizes)]))
        padded[part] = column
        start += len(column)
    return padded
