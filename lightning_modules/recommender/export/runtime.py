"""Loads an exported recommender, without its data or Lightning."""

from collections.abc import Iterable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import torch

from datamodules.recommender.batch import History
from engine.timestamp import EXPECTED_TIME, to_seconds
from lightning_modules.recommender.baselines import POPULARITY, most_popular
from lightning_modules.recommender.export.export_content import read_export_settings, read_items
from lightning_modules.recommender.features.event_inputs import Values, encode_events, event_encoding_of
from lightning_modules.recommender.item_scores import best_items
from lightning_modules.recommender.networks.architecture import ArchitectureSettings
from lightning_modules.recommender.networks.sequence_encoder import SequenceEncoder


class Recommendation(NamedTuple):
    """An item that `recommend` returns."""

    item: str
    """Id in the data."""
    score: float
    """Score of the encoder; with a `fallback` the number of training events of the item."""
    title: str | None
    fallback: str | None = None
    """`popularity` if the history has no known item, so that the most popular items are recommended."""


class ExportedRecommender:
    """Recommends items, which have the ids of the data.

    Attributes:
        encoder: the network, in evaluation mode.
        settings: content of config.json.
        item_ids: [V] ids; item i has the id at i - 1.
        titles: [V] titles, or None.
        popularity: [V] training events of each item, or None in exports that have none.
    """

    def __init__(
        self,
        encoder: SequenceEncoder,
        settings: dict[str, Any],
        item_ids: list[str],
        titles: list[str] | None,
        popularity: list[int] | None = None,
    ) -> None:
        self.encoder, self.settings, self.item_ids, self.titles = encoder.eval(), settings, item_ids, titles
        self.popularity = popularity
        features = settings.get("event_features")
        self._event_features = None if features is None else event_encoding_of(features)
        self._numbers = {item: number for number, item in enumerate(item_ids, start=1)}

    @torch.no_grad()
    def recommend(
        self,
        items: Sequence[str],
        times: Sequence[float | str],
        top_k: int | None = None,
        request_time: float | str | None = None,
        allow: Iterable[str] | None = None,
        deny: Iterable[str] = (),
        features: Values | None = None,
    ) -> list[Recommendation]:
        """Return the best items for a history. Unknown items are ignored.

        Without a known item these are the most popular items, whose `fallback` is "popularity".

        Args:
            items: ids of the events' items, the oldest first.
            times: times of the events, in seconds since 1970 or as ISO 8601 dates (UTC unless they have an offset).
            top_k: number of items; None: the run's setting.
            request_time: time of the request, in the same form; only models with request time read it, and they need
                it.
            allow: ids of the only items to recommend; None: all. Unknown ids are ignored.
            deny: ids of items not to recommend, likewise.
            features: {column: values of the events, None where missing} for models with event features; a column may be
                missing.

        Raises:
            ValueError: the lists do not fit together, a time is invalid (milliseconds, for example) or earlier than
                the previous time, top_k is below 1, `request_time` is missing or earlier than the last event, `allow`
                has no known item, or a feature is invalid.
        """
        top_k = self.settings["top_k"] if top_k is None else top_k
        if top_k < 1:
            raise ValueError(f"found top_k {top_k}, expected 1 or more")
        if len(items) != len(times):
            raise ValueError(f"found {len(items)} items and {len(times)} times, expected a time for each item")
        moments = _ascending_seconds(times)
        # The times of all events count for the request: the last may be of an unknown item.
        request = self._request_time(moments, request_time)
        item_numbers = [self._numbers.get(str(item)) for item in items]
        rows = [index for index, number in enumerate(item_numbers) if number is not None]
        known_events = [
            (number, int(time)) for number, time in zip(item_numbers, moments, strict=True) if number is not None
        ]
        excluded = self._excluded_items(allow, deny)
        if not known_events:
            return self._most_popular(top_k, excluded)
        numbers, seconds = zip(*known_events, strict=True)
        # The scale is of the whole history, as in training, and not of the last events that the encoder reads.
        scale = min((gap for a, b in zip(seconds, seconds[1:], strict=False) if (gap := b - a) > 0), default=1)
        last = self.encoder.max_length
        row = torch.tensor([numbers[-last:]]), torch.tensor([seconds[-last:]])
        event_features = self._encode_features(features, rows[-last:], len(items))
        history = History(*row, torch.tensor([len(row[0][0])]), torch.tensor([scale]), request, *event_features)
        # A single history has no padding, so its last column is its last event. [V + 1]
        scores = self.encoder.scores(self.encoder(history)[:, -1])[0]
        if self.settings["remove_seen"]:
            # All known items, also those before the last `max_length`.
            scores[list(numbers)] = -torch.inf
        scores[excluded] = -torch.inf
        best, values = best_items(scores.unsqueeze(0), top_k)  # as `predict` orders items of equal scores
        ranked = zip(best[0].tolist(), values[0].tolist(), strict=True)
        return [self._recommendation(number, score) for number, score in ranked if score > -torch.inf]

    def _request_time(self, times: Sequence[float], time: float | str | None) -> torch.Tensor | None:
        """Return the time of the request, [1]; None if the model does not read it."""
        moment = None if time is None else _parse_time("request_time", time)
        if not self.encoder.request_time:
            return None
        if moment is None:
            raise ValueError(
                "found no `request_time`, and this model reads the time of the request; give it in seconds"
            )
        if len(times) and moment < times[-1]:
            raise ValueError(
                f"request_time: found {time}, earlier than the last of times, {times[-1]}; expected a later time"
            )
        return torch.tensor([int(moment)])

    def _encode_features(
        self, features: Values | None, rows: Sequence[int], events: int
    ) -> tuple[torch.Tensor | None, torch.Tensor | None]:
        """Return the features of the events of some events of a history; None if the model reads none."""
        if self._event_features is not None:
            return encode_events(self._event_features, features, rows, events)
        if features:
            raise ValueError(f"features: found {', '.join(features)}, and the model reads no features of events")
        return None, None

    def _excluded_items(self, allow: Iterable[str] | None, deny: Iterable[str]) -> torch.Tensor:
        """Return the items that are not to be recommended: bool [V + 1]."""
        excluded = torch.zeros(len(self.item_ids) + 1, dtype=torch.bool)
        if allow is not None:
            allowed = self._known_items(allow)
            if not allowed:
                raise ValueError("allow: found no id of an item of the model; expected at least one, or None for all")
            excluded[:] = True
            excluded[allowed] = False
        excluded[self._known_items(deny)] = True
        return excluded

    def _known_items(self, ids: Iterable[str]) -> list[int]:
        # Ids are text in the export; a caller may have integers.
        return [self._numbers[item] for item in map(str, ids) if item in self._numbers]

    def _most_popular(self, top_k: int, excluded: torch.Tensor) -> list[Recommendation]:
        counts = self.popularity or []
        if counts and excluded.any():
            counts = torch.tensor(counts).masked_fill(excluded[1:], 0).tolist()
        best = most_popular(counts, top_k)
        return [self._recommendation(number, count)._replace(fallback=POPULARITY) for number, count in best]

    def _recommendation(self, number: int, score: float) -> Recommendation:
        title = None if self.titles is None else self.titles[number - 1]
        return Recommendation(self.item_ids[number - 1], score, title)


def _ascending_seconds(times: Sequence[float | str]) -> list[float]:
    """Return the times of events in seconds since 1970. Raises ValueError if one is earlier than the previous."""
    moments = [_parse_time(f"times[{index}]", time) for index, time in enumerate(times)]
    for index, (sooner, later) in enumerate(pairwise(moments), start=1):
        if later < sooner:
            raise ValueError(
                f"times[{index}]: found {times[index]}, earlier than times[{index - 1}], {times[index - 1]}; "
                "expected the oldest event first"
            )
    return moments


def _parse_time(name: str, time: float | str) -> float:
    """Return a time in seconds since 1970; raise ValueError if it is invalid."""
    seconds = to_seconds(time)
    if seconds is None:
        raise ValueError(f"{name}: found {time!r}, expected {EXPECTED_TIME}")
    return seconds


def load_recommender(folder: str | Path) -> ExportedRecommender:
    """Load a recommender from the folder of an export.

    Raises:
        FileNotFoundError: a file is missing, or the folder is not an export.
        ValueError: a file is corrupt or of another format, or the files do not belong together.
    """
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    folder = Path(folder)
    config, weights = folder / "config.json", folder / "model.safetensors"
    if not config.is_file():
        raise FileNotFoundError(f"{folder} has no config.json: expected the folder that `train.py export` wrote")
    settings = read_export_settings(config)
    items = read_items(folder / "items.json", settings)
    try:
        architecture = ArchitectureSettings(**settings["architecture"])
        encoder = SequenceEncoder(settings["num_items"], settings["max_length"], architecture)
        recommender = ExportedRecommender(encoder, settings, *items)
    # The settings reach many constructors, which raise errors of many types.
    except Exception as error:
        raise ValueError(f"{config}: its settings build no encoder: {error}; export the run again") from error
    try:
        encoder.load_state_dict(load_file(weights))
    except SafetensorError as error:
        raise ValueError(f"{weights}: is corrupt: {error}; copy the export again, or export the run again") from error
    except RuntimeError as error:
        raise ValueError(f"{weights} does not fit config.json: {error}") from error
    return recommender
