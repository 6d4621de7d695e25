"""Exports a trained recommender, as a graph and as weights.

DIR/model.onnx          graph from item numbers to scores and the best items
DIR/model.safetensors   weights of the encoder
DIR/config.json         settings of the encoder, inputs and outputs of the graph
DIR/items.json          ids (and titles) of the items and their numbers of training events; the first is item 1
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from datamodules.recommender.batch import Catalog, EventEncoding, History, RankingBatch
from engine.export.onnx import check_close, export_onnx, run_onnx
from lightning_modules.recommender.checkpoint_compatibility import items_identity
from lightning_modules.recommender.export.onnx_graph import ScoringGraph, given_features
from lightning_modules.recommender.features.event_inputs import event_encoding_settings
from lightning_modules.recommender.networks.architecture import ArchitectureSettings
from lightning_modules.recommender.networks.attention.kinds import reads_times
from lightning_modules.recommender.networks.sequence_encoder import SequenceEncoder

FORMAT = 1
"""Version of config.json; loaders refuse others."""

OUTPUTS = "scores", "top_items", "top_scores"

PAUSE = 5 * 365 * 86_400 + 1
"""Seconds between the first two events of the artificial histories that `export_recommender` compares, too."""

LATER = 3
"""Seconds between the last event of these histories and the request."""


class Recommender(NamedTuple):
    """What `export_recommender` writes of a trained recommender, and what its model card states."""

    encoder: SequenceEncoder
    architecture: ArchitectureSettings
    catalog: Catalog
    """Items that can be recommended."""
    top_k: int
    """Number of best items that the graph returns."""
    remove_seen: bool
    """Whether the graph excludes the items of a history."""
    popularity: Sequence[int] | None = None
    """[V] number of training events of each item, for histories without a known item."""
    feature_columns: str | None = None
    """Columns of features that the item vectors include."""
    num_cold_items: int = 0
    """Number of items at the end of the catalog that occur in no interaction."""
    event_features: EventEncoding | None = None
    """Features of events that the encoder reads."""


def export_recommender(recommender: Recommender, folder: Path, batch: RankingBatch) -> str:
    """Write the four files, and compare the graph with the encoder.

    Args:
        recommender: recommender to export.
        folder: existing, empty directory.
        batch: histories of real users.

    Returns:
        A sentence on the comparison, for the model card.

    Raises:
        ValueError: onnxruntime recommends other items than the encoder.
    """
    from safetensors.torch import save_model

    encoder, _, catalog, top_k, remove_seen, popularity, *_ = recommender
    # eval() switches off dropout, whose masks would be constants of the graph.
    recommender.encoder.eval()
    graph = ScoringGraph(encoder, min(top_k, catalog.num_items))
    timed = reads_times(recommender.architecture.attention)
    inputs = graph_inputs(add_long_pauses(batch) if timed else batch, recommender)
    export_onnx(folder / "model.onnx", graph, inputs, OUTPUTS, _dynamic_axes(inputs))
    users = f"{len(batch.users)} users of the data" + (", also after a pause of five years" if timed else "")
    checked = _compare_outputs(encoder, folder / "model.onnx", inputs, users)
    save_model(encoder, str(folder / "model.safetensors"))
    settings = {
        "format": FORMAT,
        "num_items": catalog.num_items,
        "items": items_identity(list(map(str, catalog.item_ids))),
        "max_length": catalog.max_length,
        "architecture": recommender.architecture.content(),
        "top_k": graph.top_k,
        "remove_seen": remove_seen,
        "inputs": list(inputs),
        "outputs": list(OUTPUTS),
    }
    if recommender.event_features is not None:
        settings["event_features"] = event_encoding_settings(recommender.event_features)
    titles = None if catalog.titles is None else list(catalog.titles)
    _write_json(folder / "config.json", settings, indent=2)
    items = {"ids": list(catalog.item_ids), "titles": titles, "popularity": popularity}
    _write_json(folder / "items.json", items, indent=0)
    return checked


def add_long_pauses(batch: RankingBatch) -> RankingBatch:
    """Return the rows of a batch, and the same rows with other times: years after the first event, seconds apart.

    The times of real users may be close together, and a graph may be right for them alone: a graph that computes in
    float32 counts seconds exactly for 194 days. In the added rows a second is the unit, so each second counts.
    """
    # Gaps of 1 to 7 seconds after the pause, none like its neighbor
    gaps = 1 + 5 * torch.arange(batch.history.times.shape[1]) % 7
    gaps[0], gaps[1:2] = 0, PAUSE
    times = gaps.cumsum(0).expand_as(batch.history.times)
    spread = batch.history._replace(times=times, time_scale=torch.ones_like(batch.history.time_scale))
    if batch.history.request_time is not None:
        last = times.gather(1, (batch.history.lengths - 1).clamp_min(0).unsqueeze(1)).squeeze(1)
        spread = spread._replace(request_time=last + LATER)
    columns = zip(batch.history._asdict().items(), spread, strict=True)
    history = History(**{
        name: torch.cat((column, other))
        for (name, column), other in columns if column is not None and other is not None
    })  # fmt: skip
    return RankingBatch(history, *(torch.cat((column, column)) for column in batch[1:]))


def graph_inputs(batch: RankingBatch, recommender: Recommender) -> dict[str, Tensor]:
    """Return the inputs of the graph for a batch."""
    # The graph takes only what this architecture reads, so that callers need not invent the rest.
    inputs = {"items": batch.history.items}
    if reads_times(recommender.architecture.attention):
        inputs["times"] = batch.history.times
    in_units = recommender.architecture.time_buckets != "log"  # which are of seconds
    if recommender.architecture.attention == "time_interval" and in_units:
        inputs["time_scale"] = batch.history.time_scale
    if recommender.architecture.request_time:
        assert batch.history.request_time is not None, "`some_histories` have the time of the request"
        inputs["request_time"] = batch.history.request_time
    if recommender.event_features is not None:
        codes, numbers = batch.history.event_codes, batch.history.event_numbers
        assert codes is not None and numbers is not None, "the data have the features that the encoder reads"
        inputs |= {"event_codes": codes} if recommender.event_features.categories else {}
        inputs |= {"event_numbers": numbers} if recommender.event_features.numbers else {}
    if recommender.remove_seen:
        inputs["seen"] = batch.seen
    return inputs


def _dynamic_axes(inputs: Mapping[str, Tensor]) -> dict[str, dict[int, Any]]:
    # Any number of histories of any length, as other programs send them.
    rows, events = torch.export.Dim("batch"), torch.export.Dim("length")
    axes = {
        "items": {0: rows, 1: events},
        "times": {0: rows, 1: events},
        "time_scale": {0: rows},
        "request_time": {0: rows},
        "event_codes": {0: rows, 1: events},
        "event_numbers": {0: rows, 1: events},
        "seen": {0: rows, 1: torch.export.Dim("seen")},
    }
    return {name: axes[name] for name in inputs}


# -- the comparison --------------------------------------------------------------------------------------------------


def _compare_outputs(encoder: SequenceEncoder, path: Path, inputs: Mapping[str, Tensor], users: str) -> str:
    """Compare on all histories at once, and on the last alone, because the graph takes any number of rows."""
    batch = {name: value.numpy() for name, value in inputs.items()}
    single = {name: value[-1:] for name, value in batch.items()}
    (scores, items, best), (alone, *_) = run_onnx(path, batch, single)
    expected = _scores(encoder, inputs)
    difference = check_close(scores[:, 1:], expected[:, 1:], "scores")
    check_close(alone[:, 1:], expected[-1:, 1:], "scores of a single history")
    if "seen" in batch:
        # Column 0 takes the padding of `seen`.
        np.put_along_axis(expected, batch["seen"], -np.inf, axis=1)
    same = compare_best_items(items, best, expected, allowed=1e-4 * float(np.abs(scores[:, 1:]).max()))
    return (
        f"onnxruntime and torch recommend the same {items.shape[1]} items to {users} "
        f"({same:.1%} of the ranks hold the very same item, the others one of equal score up to rounding); their "
        f"scores differ by {difference:.1g} of the largest at most."
    )


def compare_best_items(
    items: NDArray[np.int64], best: NDArray[np.float32], expected: NDArray[np.float32], allowed: float
) -> float:
    """Compare the graph's best items with those by the encoder's scores.

    Items whose scores are equal up to rounding may be exchanged.

    Args:
        items: [B, K] best items of the graph, from 1.
        best: [B, K] their scores by the graph.
        expected: [B, V + 1] scores by the encoder, -inf for excluded items.
        allowed: largest difference of two scores that counts as rounding.

    Returns:
        The share of positions with the same item.

    Raises:
        ValueError: an item's score differs from the expected item's score; the message names the row.
    """
    order = np.argsort(-expected, axis=1, kind="stable")[:, : items.shape[1]]
    expected_best = np.take_along_axis(expected, order, axis=1)
    for scores in (np.take_along_axis(expected, items, axis=1), best):
        # The difference of two infinities is NaN, so excluded items are compared for equality.
        excluded = (expected_best == -np.inf) | (scores == -np.inf)
        with np.errstate(invalid="ignore"):
            wrong = np.where(excluded, expected_best != scores, ~(np.abs(scores - expected_best) <= allowed))
        if wrong.any():
            row = int(np.flatnonzero(wrong.any(1))[0])
            raise ValueError(
                f"export: to history {row} onnxruntime recommends items {items[row].tolist()}, torch "
                f"{order[row].tolist()}: nothing was written. Another version of onnxruntime or torch may agree "
                "(constraints.txt has those that the tests run with)"
            )
    return float((items == order)[expected_best > -np.inf].mean())


@torch.no_grad()
def _scores(encoder: SequenceEncoder, inputs: Mapping[str, Tensor]) -> NDArray[np.float32]:
    """Return the scores [B, V + 1] that `predict` computes."""
    items = inputs["items"]
    lengths = (items > 0).sum(1)
    times, scale = inputs.get("times", torch.zeros_like(items)), inputs.get("time_scale", torch.ones_like(lengths))
    features: tuple[Tensor | None, Tensor | None] = (None, None)
    if encoder.event_features is not None:
        features = given_features(items, inputs.get("event_codes"), inputs.get("event_numbers"))
    states = encoder(History(items, times, lengths, scale, inputs.get("request_time"), *features))  # [B, L, C]
    return encoder.scores(states[torch.arange(len(items)), (lengths - 1).clamp_min(0)]).numpy()


def _write_json(path: Path, content: object, indent: int) -> None:
    path.write_text(json.dumps(content, indent=indent, ensure_ascii=False) + "\n", encoding="utf-8")
