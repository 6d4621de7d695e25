"""Builds a FAISS index of the item vectors, and measures its recall.

Douze et al., "The Faiss library", arXiv 2401.08281.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from lightning_modules.recommender.export.vectors import SampledUsers

if TYPE_CHECKING:
    import faiss

FILE = "items.faiss"
INDEX_OPTION = "model.init_args.export_index"

USAGE = """Search in the index, with `pip install faiss-cpu`. Ask for as many more items as the user has seen:

```python
import faiss
import numpy as np

index = faiss.read_index("items.faiss")
scores, rows = index.search(np.load("user_vectors.npy", mmap_mode="r")[:1], 100)  # rows of item_vectors.npy, best first
```"""


def empty_index(size: int, description: str) -> "faiss.Index":
    """Return an untrained index for inner products.

    Args:
        size: C of the vectors.
        description: factory string of FAISS, such as `HNSW32`, and after a space parameters of the search, such as
            `IVF1024,Flat nprobe=32`.

    Raises:
        ValueError: FAISS does not know it.
    """
    import faiss

    factory, _, parameters = description.strip().partition(" ")
    try:
        index = faiss.index_factory(size, factory, faiss.METRIC_INNER_PRODUCT)
        if parameters.strip():
            space: Any = faiss.ParameterSpace()  # annotated as int, the type of another overload
            space.set_index_parameters(index, parameters.strip())
    except RuntimeError as error:
        reason = str(error).rpartition(": ")[2].strip()
        raise ValueError(
            f"{INDEX_OPTION}: found {description!r}, expected a factory string of FAISS for vectors of {size} "
            f"numbers, such as HNSW32 or 'IVF1024,Flat nprobe=32' (FAISS: {reason[:120]})"
        ) from error
    return index


def write_index(folder: Path, index: "faiss.Index", users: SampledUsers, top_k: int, description: str) -> str:
    """Fill the index with item_vectors.npy, write it, and compare it with the exact ranking.

    Args:
        folder: directory with the vectors.
        index: index from `empty_index`.
        users: users to compare.
        top_k: k of the recall.
        description: for the message.

    Returns:
        A sentence with the recall, for log and model card.

    Raises:
        ValueError: FAISS cannot train this index on these items.
    """
    import faiss

    # The vectors are read from the file that is published, so the index belongs to it.
    vectors = np.load(folder / "item_vectors.npy")
    try:
        index.train(vectors)
        index.add(vectors)
    except RuntimeError as error:
        reason = str(error).rpartition(": ")[2].strip()
        raise ValueError(
            f"{INDEX_OPTION}: found {description!r}, which FAISS cannot build from {len(vectors)} items "
            f"({reason[:120]}); choose fewer clusters or another index"
        ) from error
    faiss.write_index(index, str(folder / FILE))
    recall = recall_at(index, users, top_k)
    return (
        f"The FAISS index {description} has a recall@{top_k} of {recall:.4f} against the exact ranking "
        f"({len(users.rows)} users, {len(vectors):,} items)."
    )


def recall_at(index: "faiss.Index", users: SampledUsers, top_k: int) -> float:
    """Return the share of the exact top k that a search finds; excluded items are removed from both.

    A search for a user asks for k items and as many more as are excluded.
    """
    shares = [_recall(index, vector, scores, top_k) for vector, scores in zip(users.vectors, users.scores, strict=True)]
    return float(np.mean([share for share in shares if share is not None] or [1.0]))


def _recall(index: "faiss.Index", vector: NDArray[np.float32], scores: NDArray[np.float32], top_k: int) -> float | None:
    """Return the recall of a user; None if all items are excluded."""
    excluded = np.flatnonzero(scores == -np.inf)[1:]  # of the items, without the padding
    best = 1 + np.argsort(-scores[1:], kind="stable")[: min(top_k, len(scores) - 1 - len(excluded))]
    if not len(best):
        return None
    _, rows = index.search(vector[None], min(top_k + len(excluded), len(scores) - 1))
    # FAISS fills up with -1 if a search visits fewer items than asked for.
    items = 1 + rows[0][rows[0] >= 0]
    items = items[~np.isin(items, excluded)][:top_k]
    return float(np.isin(best, items).mean())
