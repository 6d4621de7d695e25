"""Writes vectors of users and items, for retrieval by other programs. A score is the dot product of the two.

DIR/item_vectors.npy     float32 [V, C]; row i belongs to item i + 1
DIR/item_vectors.jsonl   {"item": id} of each row, in order
DIR/user_vectors.npy     float32 [U, C]; the state after a user's whole history
DIR/user_vectors.jsonl   {"user": id} of each row, in order

The scores have no bias and no scale: `user_vectors @ item_vectors.T` equals the scores of `predict`.
"""

import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from datamodules.recommender.batch import RankingBatch
from lightning_modules.recommender.export.onnx_export import Recommender
from lightning_modules.recommender.networks.last_position import encode_last_position

_ALLOWED = 1e-4
"""Largest difference of a dot product from the model's score, relative to the largest score, as for ONNX."""

FILES = {
    "item_vectors.npy": "float32 [items, size]: the items' vectors",
    "item_vectors.jsonl": "the item of each row of `item_vectors.npy`",
    "user_vectors.npy": "float32 [users, size]: a vector for each user of the data, from the whole history",
    "user_vectors.jsonl": "the user of each row of `user_vectors.npy`",
}

USAGE = """Vectors of users and items, for retrieval; the score of an item for a user is their dot product:

```python
import json

import numpy as np

ids = [json.loads(line)["item"] for line in open("item_vectors.jsonl", encoding="utf-8")]
scores = np.load("user_vectors.npy", mmap_mode="r")[:1] @ np.load("item_vectors.npy").T
print([ids[item] for item in np.argsort(-scores[0])[:10]])
```

The items of the user's history are among them. A vector is of the moment of the export: events after it do not change
it."""


class SampledUsers(NamedTuple):
    """Users by which the files, and an index of them, are compared with the model."""

    rows: NDArray[np.int64]  # [S] their rows in user_vectors.npy
    vectors: NDArray[np.float32]  # [S, C], read from the file
    scores: NDArray[np.float32]  # [S, V + 1] by the model, -inf for items that are not to be recommended


class _Sample(NamedTuple):
    rows: NDArray[np.int64]
    scores: Tensor
    seen: list[NDArray[np.int64]]


def write_vectors(
    recommender: Recommender, folder: Path, users: Sequence[str], histories: Iterable[RankingBatch], sampled: int
) -> tuple[SampledUsers, str]:
    """Write the four files, and compare their scores and best items with the model's.

    Args:
        recommender: recommender to export, in evaluation mode.
        folder: existing directory.
        users: [U] ids.
        histories: batches of the users' histories, in their order.
        sampled: largest number of users to compare.

    Returns:
        The compared users, and a sentence on the comparison for the model card.

    Raises:
        ValueError: the model's scores are not the dot products of the files.
    """
    encoder, catalog = recommender.encoder, recommender.catalog
    items = encoder.output_weight.detach().float().cpu().numpy()
    np.save(folder / "item_vectors.npy", items, allow_pickle=False)
    _write_lines(folder / "item_vectors.jsonl", ({"item": item} for item in catalog.item_ids))
    _write_lines(folder / "user_vectors.jsonl", ({"user": user} for user in users))
    path, shape = folder / "user_vectors.npy", (len(users), items.shape[1])
    # Written in place: the vectors of all users may not fit into memory.
    file = np.lib.format.open_memmap(path, mode="w+", dtype=np.float32, shape=shape)
    sampled_rows = np.linspace(0, len(users) - 1, min(sampled, len(users))).astype(np.int64)
    parts, written = [], 0
    for vectors, batch in _encode_batches(recommender, histories):
        file[written : written + len(vectors)] = vectors.numpy()
        # Histories come in the order of users, so rows of this batch begin at `written`.
        parts.append(
            _score_sample(
                recommender, vectors, batch, sampled_rows[np.isin(sampled_rows, batch.users.numpy())], written
            )
        )
        written += len(vectors)
    if written != len(users):
        raise ValueError(f"export: found {written} histories, expected one for each of {len(users)} users")
    file.flush()
    # Closes the map before the file is read.
    del file
    return _compare_scores(recommender, folder, [part for part in parts if len(part.rows)])


@torch.no_grad()
def _encode_batches(
    recommender: Recommender, histories: Iterable[RankingBatch]
) -> Iterator[tuple[Tensor, RankingBatch]]:
    for batch in histories:
        yield encode_last_position(recommender.encoder, batch.history).float(), batch


def _score_sample(
    recommender: Recommender, vectors: Tensor, batch: RankingBatch, rows: NDArray[np.int64], first: int
) -> _Sample:
    """Return the model's scores of some users of a batch, whose first row in the file is given."""
    indices = torch.from_numpy(rows - first)
    with torch.no_grad():
        scores = recommender.encoder.scores(vectors[indices])
    return _Sample(rows, scores, [batch.seen[index].numpy() for index in indices])


def _compare_scores(recommender: Recommender, folder: Path, parts: Sequence[_Sample]) -> tuple[SampledUsers, str]:
    rows = np.concatenate([part.rows for part in parts])
    expected = torch.cat([part.scores for part in parts]).numpy()
    # Vectors are read from the files, not from memory: the comparison covers what other programs read.
    vectors = np.ascontiguousarray(np.load(folder / "user_vectors.npy", mmap_mode="r")[rows])
    dot_products = np.full_like(expected, -np.inf)
    dot_products[:, 1:] = vectors @ np.load(folder / "item_vectors.npy").T
    difference = float(np.abs(dot_products[:, 1:] - expected[:, 1:]).max() / max(np.abs(expected[:, 1:]).max(), 1e-30))
    if not difference <= _ALLOWED:
        raise ValueError(
            f"export: the dot products of users' and items' vectors differ from the model's scores by {difference:.1g} "
            f"of the largest, expected {_ALLOWED:.0e} at most: nothing was written. Export without "
            "model.init_args.export_vectors and export_index"
        )
    if recommender.remove_seen:
        # Seen items are removed after the difference of scores was taken, in which infinities would be NaN.
        for row, seen in enumerate(seen for part in parts for seen in part.seen):
            dot_products[row, seen] = expected[row, seen] = -np.inf
    k = min(recommender.top_k, recommender.catalog.num_items)
    ours, models = (np.argsort(-scores, axis=1, kind="stable")[:, :k] for scores in (dot_products, expected))
    checked = (
        f"For {len(rows)} users the dot products of the vectors differ from the model's scores by {difference:.1g} of "
        f"the largest at most; {np.mean(ours == models):.1%} of the ranks of the best {k} items hold the same item."
    )
    return SampledUsers(rows, vectors, expected), checked


def _write_lines(path: Path, rows: Iterable[dict[str, str]]) -> None:
    with path.open("w", encoding="utf-8") as file:
        for row in rows:
            file.write(json.dumps(row, ensure_ascii=False) + "\n")
