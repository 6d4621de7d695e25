"""A recommender from the directory that `train.py export` has written, without its data and without Lightning."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch

from datamodules.recommender.batch import History
from lightning_modules.recommender.export import FORMAT
from lightning_modules.recommender.network import SequenceEncoder


class Recommendation(NamedTuple):
    """One of the best items."""

    item: str  # its own id
    score: float
    title: str | None


class ExportedRecommender:
    """Knows the items by their own ids.

    Attributes:
        encoder: in evaluation mode.
        settings: what config.json holds.
        item_ids: [V] own id of item i at i - 1.
        titles: [V], or None.
    """

    def __init__(
        self, encoder: SequenceEncoder, settings: dict[str, Any], item_ids: list[str], titles: list[str] | None
    ) -> None:
        self.encoder, self.settings, self.item_ids, self.titles = encoder.eval(), settings, item_ids, titles
        self._numbers = {item: number for number, item in enumerate(item_ids, start=1)}

    @torch.no_grad()
    def recommend(self, items: Sequence[str], times: Sequence[int], top_k: int | None = None) -> list[Recommendation]:
        """The best items for one history; those that are not known do not count, and of nothing nothing follows.

        Args:
            items: own ids, the oldest event first.
            times: of the events, seconds since 1970.
            top_k: how many; None: as many as the run's `predict`.

        Raises:
            ValueError: the lists do not fit together, a time is earlier than the one before it, or top_k is below 1.
        """
        top_k = self.settings["top_k"] if top_k is None else top_k
        if top_k < 1:
            raise ValueError(f"found top_k {top_k}, expected 1 or more")
        if len(items) != len(times):
            raise ValueError(f"found {len(items)} items and {len(times)} times, expected a time for each item")
        for place, (sooner, later) in enumerate(zip(times, times[1:], strict=False), start=1):
            if later < sooner:
                raise ValueError(
                    f"times[{place}]: found {later}, earlier than times[{place - 1}], {sooner}; expected the oldest "
                    "event first"
                )
        named = ((self._numbers.get(str(item)), int(time)) for item, time in zip(items, times, strict=True))
        known = [(number, time) for number, time in named if number is not None]
        if not known:
            return []
        numbers, moments = zip(*known, strict=True)
        scale = min((gap for a, b in zip(moments, moments[1:], strict=False) if (gap := b - a) > 0), default=1)
        last = self.encoder.max_length
        row = torch.tensor([numbers[-last:]]), torch.tensor([moments[-last:]])
        history = History(*row, torch.tensor([len(row[0][0])]), torch.tensor([scale]))
        scores = self.encoder.scores(self.encoder(history)[:, -1])[0]
        if self.settings["remove_seen"]:
            scores[list(numbers)] = -torch.inf
        best = scores.topk(min(top_k, len(self.item_ids)))
        found = zip(best.indices.tolist(), best.values.tolist(), strict=True)
        return [self._named(number, score) for number, score in found if score > -torch.inf]

    def _named(self, number: int, score: float) -> Recommendation:
        title = None if self.titles is None else self.titles[number - 1]
        return Recommendation(self.item_ids[number - 1], score, title)


def load_recommender(folder: str | Path) -> ExportedRecommender:
    """
    Raises:
        FileNotFoundError: a file is missing.
        ValueError: config.json is of another format, or the files do not belong together.
    """
    from safetensors.torch import load_file

    folder = Path(folder)
    settings, items = (json.loads((folder / name).read_text("utf-8")) for name in ("config.json", "items.json"))
    if settings.get("format") != FORMAT:
        raise ValueError(
            f"{folder / 'config.json'}: found format {settings.get('format')!r}, expected {FORMAT}: export it again"
        )
    if len(items["ids"]) != settings["num_items"]:
        raise ValueError(
            f"{folder / 'items.json'}: found {len(items['ids'])} ids, expected {settings['num_items']} as in "
            "config.json: the files of two exports?"
        )
    encoder = SequenceEncoder(settings["num_items"], settings["max_length"], **settings["architecture"])
    try:
        encoder.load_state_dict(load_file(folder / "model.safetensors"))
    except RuntimeError as error:
        raise ValueError(f"{folder / 'model.safetensors'} does not fit config.json: {error}") from error
    return ExportedRecommender(encoder, settings, items["ids"], items["titles"])
