"""Cuts causal attention into tiles: a few rows and a range of queries, without the keys after the last query.

So the masked half of the matrix costs little, and on a CPU a tile stays in the cache from the scores to the mixed
values.
"""

from collections.abc import Iterator
from typing import NamedTuple

from torch import Tensor

CPU_TILE = 1 << 19
"""Scores in a tile on a CPU: 2 MB, which fit a core's cache."""
QUERIES = 50
"""Queries in a tile on a CPU."""
OTHER_TILE = 1 << 27
"""Scores in a tile on other devices: 512 MB."""


class Tile(NamedTuple):
    """Slices of the batch, of the queries and of the keys."""

    rows: slice  # of the batch
    queries: slice
    keys: slice  # from the first to the last query


def tiles(query: Tensor) -> Iterator[Tile]:
    """Return the tiles of queries [B, H, L, D] and as many keys, always in the same order."""
    batch, heads, length, _ = query.shape
    on_cpu = query.device.type == "cpu"
    wide = QUERIES if on_cpu else length
    for first in range(0, length, wide):
        last = min(first + wide, length)
        # As many rows of the batch as fit: an early range of queries sees few keys, so its tiles have more rows.
        rows = max(1, (CPU_TILE if on_cpu else OTHER_TILE) // (heads * (last - first) * last))
        for row in range(0, batch, rows):
            yield Tile(slice(row, row + rows), slice(first, last), slice(0, last))
