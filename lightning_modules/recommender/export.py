"""Writes a trained recommender for other programs, once as a graph and once as weights.

    DIR/model.onnx          from item numbers to scores and the best items
    DIR/model.safetensors   the encoder's weights
    DIR/config.json         how the encoder is built, what the graph takes and gives
    DIR/items.json          the items' own ids (and titles): item 1 is the first
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from datamodules.recommender.batch import Catalog, History, RankingBatch
from engine.onnx_file import require_close, require_onnx, run_onnx, write_onnx
from lightning_modules.recommender.network import SequenceEncoder
from lightning_modules.recommender.scoring_graph import ScoringGraph

FORMAT = 1
"""Of config.json; another number, and a loader refuses it."""

OUTPUTS = "scores", "top_items", "top_scores"


class Recommender(NamedTuple):
    """What is exported."""

    encoder: SequenceEncoder
    architecture: Mapping[str, Any]  # arguments of SequenceEncoder
    catalog: Catalog
    top_k: int
    remove_seen: bool


def export(recommender: Recommender, folder: Path, batch: RankingBatch) -> str:
    """Writes the four files into a folder that is there, and compares graph and encoder.

    Args:
        batch: histories of real users.

    Returns:
        What was compared, in a sentence.

    Raises:
        ValueError: a package is missing, or onnxruntime recommends other items than the encoder.
    """
    from safetensors.torch import save_model

    require_onnx()
    encoder, _, catalog, top_k, remove_seen = recommender
    recommender.encoder.eval()
    graph = ScoringGraph(encoder, min(top_k, catalog.num_items))
    inputs = graph_inputs(batch, recommender)
    write_onnx(folder / "model.onnx", graph, inputs, OUTPUTS, _axes(inputs))
    checked = _compared(encoder, folder / "model.onnx", inputs)
    save_model(encoder, str(folder / "model.safetensors"))
    settings = {
        "format": FORMAT,
        "num_items": catalog.num_items,
        "max_length": catalog.max_length,
        "architecture": dict(recommender.architecture),
        "top_k": graph.top_k,
        "remove_seen": remove_seen,
        "inputs": list(inputs),
        "outputs": list(OUTPUTS),
    }
    titles = None if catalog.titles is None else list(catalog.titles)
    _write_json(folder / "config.json", settings, indent=2)
    _write_json(folder / "items.json", {"ids": list(catalog.item_ids), "titles": titles}, indent=0)
    return checked


def graph_inputs(batch: RankingBatch, recommender: Recommender) -> dict[str, Tensor]:
    """What the graph takes of a batch."""
    inputs = {"items": batch.history.items}
    if recommender.architecture["attention"] == "time_interval":
        inputs |= {"times": batch.history.times, "time_scale": batch.history.time_scale}
    if recommender.remove_seen:
        inputs["seen"] = batch.seen
    return inputs


def _axes(inputs: Mapping[str, Tensor]) -> dict[str, dict[int, Any]]:
    rows, events = torch.export.Dim("batch"), torch.export.Dim("length")
    axes = {
        "items": {0: rows, 1: events},
        "times": {0: rows, 1: events},
        "time_scale": {0: rows},
        "seen": {0: rows, 1: torch.export.Dim("seen")},
    }
    return {name: axes[name] for name in inputs}


# -- the comparison --------------------------------------------------------------------------------------------------


def _compared(encoder: SequenceEncoder, path: Path, inputs: Mapping[str, Tensor]) -> str:
    """Of all histories at once, and of the last one by itself: the graph takes any number of rows."""
    everyone = {name: value.numpy() for name, value in inputs.items()}
    one = {name: value[-1:] for name, value in everyone.items()}
    (scores, items, best), (alone, *_) = run_onnx(path, everyone, one)
    expected = _scores(encoder, inputs)
    difference = require_close(scores[:, 1:], expected[:, 1:], "scores")
    require_close(alone[:, 1:], expected[-1:, 1:], "scores of a single history")
    if "seen" in everyone:
        np.put_along_axis(expected, everyone["seen"], -np.inf, axis=1)
    same = same_best(items, best, expected, allowed=1e-4 * float(np.abs(scores[:, 1:]).max()))
    return (
        f"onnxruntime and torch recommend the same {items.shape[1]} items to {len(items)} users of the validation data "
        f"({same:.1%} of the places hold the very same item, the others one of equal score up to rounding); their "
        f"scores differ by {difference:.1g} of the largest at most."
    )


def same_best(
    items: NDArray[np.int64], best: NDArray[np.float32], expected: NDArray[np.float32], allowed: float
) -> float:
    """Compares the best items with those by `expected` scores.

    Two items that score alike up to rounding may change places.

    Args:
        items, best: [B, K], the graph's, with their scores.
        expected: [B, V + 1], -inf where an item is out of competition.

    Returns:
        The share of places with the same item.

    Raises:
        ValueError: names a row in which an item stands that does not score as the one that should.
    """
    order = np.argsort(-expected, axis=1, kind="stable")[:, : items.shape[1]]
    should = np.take_along_axis(expected, order, axis=1)
    for found in (np.take_along_axis(expected, items, axis=1), best):
        out = (should == -np.inf) | (found == -np.inf)
        with np.errstate(invalid="ignore"):
            wrong = np.where(out, should != found, ~(np.abs(found - should) <= allowed))
        if wrong.any():
            row = int(np.flatnonzero(wrong.any(1))[0])
            raise ValueError(
                f"export: to history {row} onnxruntime recommends items {items[row].tolist()}, torch "
                f"{order[row].tolist()}: nothing was written. Another version of onnxruntime or torch may agree "
                "(constraints.txt has those that the tests run with)"
            )
    return float((items == order)[should > -np.inf].mean())


@torch.no_grad()
def _scores(encoder: SequenceEncoder, inputs: Mapping[str, Tensor]) -> NDArray[np.float32]:
    """[B, V + 1] as `predict` computes them."""
    items = inputs["items"]
    lengths = (items > 0).sum(1)
    times, scale = inputs.get("times", torch.zeros_like(items)), inputs.get("time_scale", torch.ones_like(lengths))
    states = encoder(History(items, times, lengths, scale))
    return encoder.scores(states[torch.arange(len(items)), (lengths - 1).clamp_min(0)]).numpy()


def _write_json(path: Path, content: object, indent: int) -> None:
    path.write_text(json.dumps(content, indent=indent, ensure_ascii=False) + "\n", encoding="utf-8")
