"""Writes all files of an export: graph and weights, and for retrieval vectors and an index of the items."""

import logging
from pathlib import Path
from typing import TYPE_CHECKING

from datamodules.recommender.interface import RecommenderData
from engine.export.artifacts import ExportedModel
from lightning_modules.recommender.export import faiss_index, vectors
from lightning_modules.recommender.export.model_card import model_card
from lightning_modules.recommender.export.onnx_export import Recommender, export_recommender, graph_inputs

if TYPE_CHECKING:
    import faiss

log = logging.getLogger("lockstep")

_BATCH = 256
_MAX_USERS = 256
"""Number of users whose recommendations by the files are compared with the encoder's."""

_MAX_SCORES = 1 << 25
"""Scores of these users in memory, 128 MB. With millions of items fewer users are compared."""


def export_files(
    recommender: Recommender, folder: Path, data: RecommenderData, with_vectors: bool, index: str | None
) -> ExportedModel:
    """Write the files and compare each with the encoder.

    Args:
        recommender: recommender to export.
        folder: existing, empty directory.
        data: histories of users.
        with_vectors: whether to write the vectors of all users and items.
        index: factory string of the FAISS index, which also needs `with_vectors`; None: no index.

    Returns:
        The files, and what the model card states about them.

    Raises:
        ValueError: the files give other recommendations than the encoder, or FAISS cannot build the index.
    """
    # First of all: a wrong factory string shall fail before minutes of export.
    empty = faiss_index.empty_index(recommender.architecture.hidden_size, index) if index else None
    histories = data.some_histories(_compared_users(recommender))
    checked = export_recommender(recommender, folder, histories)
    exported = model_card(recommender, list(graph_inputs(histories, recommender)), checked)
    if not with_vectors:
        return exported
    return add_vectors(exported, recommender, folder, data, (empty, index or ""))


def _compared_users(recommender: Recommender) -> int:
    # At least 8, so that a comparison means something for the largest catalog as well.
    return max(8, min(_MAX_USERS, _MAX_SCORES // recommender.catalog.num_items))


def add_vectors(
    exported: ExportedModel,
    recommender: Recommender,
    folder: Path,
    data: RecommenderData,
    index: tuple["faiss.Index | None", str] = (None, ""),
) -> ExportedModel:
    """Write the vectors and an optional index, and add them to the model card.

    Args:
        exported: card of the other files.
        recommender: recommender to export.
        folder: directory of the export.
        data: histories of all users.
        index: untrained index, or None, and its description.

    Raises:
        ValueError: the files give other recommendations than the model, or FAISS cannot build the index.
    """
    histories = data.whole_histories(_BATCH)
    users, checked = vectors.write_vectors(recommender, folder, data.user_ids, histories, _compared_users(recommender))
    files, usage = exported.files | vectors.FILES, f"{exported.usage}\n\n{vectors.USAGE}"
    if index[0] is not None:
        top_k = min(recommender.top_k, recommender.catalog.num_items)
        recall = faiss_index.write_index(folder, index[0], users, top_k, index[1])
        log.info("%s", recall)
        checked = f"{checked} {recall}"
        files = files | {faiss_index.FILE: "FAISS index of `item_vectors.npy` by inner product"}
        usage = f"{usage}\n\n{faiss_index.USAGE}"
    return exported._replace(files=files, usage=usage, checked=f"{exported.checked} {checked}")
