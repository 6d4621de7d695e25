"""The part of an export that is for retrieval: vectors of users and items, and an index of the items."""

import logging
from pathlib import Path
from typing import TYPE_CHECKING

from datamodules.recommender.interface import RecommenderData
from engine.export.artifacts import ExportedModel
from lightning_modules.recommender.export import faiss_index, vectors
from lightning_modules.recommender.export.export import Recommender

if TYPE_CHECKING:
    import faiss

log = logging.getLogger("lockstep")

_BATCH = 256
_SAMPLED = 256
_SCORES = 1 << 25
"""Most scores of the sampled users in memory: 128 MB."""


def add_vectors(
    exported: ExportedModel,
    recommender: Recommender,
    folder: Path,
    data: RecommenderData,
    index: tuple["faiss.Index | None", str] = (None, ""),
) -> ExportedModel:
    """Write the vectors, and the index if there is one, and add them to the model card.

    Args:
        exported: card of the other files.
        recommender: recommender to export.
        folder: directory of the export.
        data: histories of all users.
        index: untrained index, or None, and its description.

    Raises:
        ValueError: the files give other recommendations than the model, or FAISS cannot build the index.
    """
    sampled = max(8, min(_SAMPLED, _SCORES // recommender.catalog.num_items))
    users, checked = vectors.write_vectors(recommender, folder, data.user_ids, data.whole_histories(_BATCH), sampled)
    files, usage = exported.files | vectors.FILES, f"{exported.usage}\n\n{vectors.USAGE}"
    if index[0] is not None:
        top_k = min(recommender.top_k, recommender.catalog.num_items)
        recall = faiss_index.write_index(folder, index[0], users, top_k, index[1])
        log.info("%s", recall)
        checked = f"{checked} {recall}"
        files = files | {faiss_index.FILE: "FAISS index of `item_vectors.npy` by inner product"}
        usage = f"{usage}\n\n{faiss_index.USAGE}"
    return exported._replace(files=files, usage=usage, checked=f"{exported.checked} {checked}")
